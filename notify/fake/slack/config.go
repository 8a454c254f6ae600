// Package fakeslack is a small stateful Slack workspace: the methods of the Web
// API that post, edit and find messages, an incoming webhook, the limits and the
// refusals of the real one. Tests and the demo talk to it with slack-go. It keeps
// everything in memory.
//
// Slack documents most limits; the size of all blocks together it does not, that
// one was measured by others (slackapi/bolt-js#2509, #2867).
package fakeslack

import "time"

// Config describes the workspace. The zero value has one public channel,
// C0CALICO #calico-ipam, and lets any token in with every scope.
type Config struct {
	Token    string // the bot token that is let in; "" lets any in
	Scopes   []string
	Channels []Channel

	// Now is the server's clock; nil is the real one.
	Now func() time.Time

	// Pace is the least time between two posts to one channel; what comes sooner
	// is a 429. Slack allows about one a second. 0 does not look.
	Pace time.Duration

	// EditWindow is how long a message can be edited; 0 is for ever. A workspace
	// can set it.
	EditWindow time.Duration
}

// Channel is one channel.
type Channel struct {
	ID        string // C…, the only way to name it except for posting
	Name      string // without #
	Private   bool
	NotMember bool // the bot was not invited
	Archived  bool
}

// Scopes that the methods here ask for.
const (
	ChatWrite       = "chat:write"
	ChatWritePublic = "chat:write.public"
	ChannelsHistory = "channels:history"
	GroupsHistory   = "groups:history"
	ChannelsRead    = "channels:read"
	GroupsRead      = "groups:read"
	MetadataRead    = "metadata.message:read"
)

// AllScopes is every scope that a method here asks for.
func AllScopes() []string {
	return []string{ChatWrite, ChatWritePublic, ChannelsHistory, GroupsHistory, ChannelsRead, GroupsRead, MetadataRead}
}

// Who the bot is in this workspace.
const (
	TeamID    = "T0EXAMPLE"
	BotID     = "B0IPAMBOT"
	BotUserID = "U0IPAMBOT"
)

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Scopes == nil {
		c.Scopes = AllScopes()
	}
	if len(c.Channels) == 0 {
		c.Channels = []Channel{{ID: "C0CALICO", Name: "calico-ipam"}}
	}
	return c
}
