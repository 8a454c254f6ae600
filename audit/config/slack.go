package config

import (
	"regexp"
	"strings"
	"time"
)

// Slack is where digests are posted.
type Slack struct {
	Enabled        bool          `yaml:"enabled" doc:"post digests (in runs with --notify)"`
	Token          Secret        `yaml:"token" doc:"bot token (xoxb-…); scopes chat:write, channels:history, metadata.message:read"`
	TokenFile      string        `yaml:"tokenFile" doc:"or the file that holds it"`
	WebhookURL     Secret        `yaml:"webhookURL" doc:"instead of a token: posts only, no threads, no updates in place"`
	WebhookURLFile string        `yaml:"webhookURLFile" doc:"or the file that holds it"`
	CAFile         string        `yaml:"caFile" doc:"PEM file of further certificate authorities, of a proxy for instance"`
	APIURL         string        `yaml:"apiURL" default:"https://slack.com/api/" format:"url" doc:"where the API answers"`
	Channel        string        `yaml:"channel" format:"channel" doc:"id (C…) of the channel; clusters may have their own"`
	MinSeverity    string        `yaml:"minSeverity" default:"medium" enum:"low,medium,high,critical" doc:"lowest severity that is posted; failed clusters always are"`
	Mentions       Mentions      `yaml:"mentions" doc:"whom to call: here, channel, or ids of users (U…) and groups (S…)"`
	OnlyChanges    bool          `yaml:"onlyChanges" default:"true" doc:"stay silent when nothing changed"`
	Heartbeat      string        `yaml:"heartbeat" default:"monday" enum:"never,monday,tuesday,wednesday,thursday,friday,saturday,sunday" doc:"a digest even so on this day"`
	Timeout        time.Duration `yaml:"timeout" default:"30s" min:"1s" doc:"for one request"`
}

// Mentions lists whom a new finding of a severity calls.
type Mentions struct {
	Critical []string `yaml:"critical" format:"mention" doc:"new critical findings and failed clusters"`
	High     []string `yaml:"high" format:"mention" doc:"new high findings"`
	Medium   []string `yaml:"medium" format:"mention" doc:"new medium findings"`
}

// Of lists whom a severity calls.
func (m Mentions) Of(severity string) []string {
	switch severity {
	case "critical":
		return m.Critical
	case "high":
		return m.High
	case "medium":
		return m.Medium
	}
	return nil
}

// ChannelOf is the channel for the digest of a cluster.
func (s *Slack) ChannelOf(c Cluster) string {
	if c.Slack.Channel != "" {
		return c.Slack.Channel
	}
	return s.Channel
}

// TokenCredential is the bot token.
func (s *Slack) TokenCredential() Credential {
	return newCredential("slack.token", s.Token, s.TokenFile)
}

// WebhookCredential is the URL of the incoming webhook, which is a secret in itself.
func (s *Slack) WebhookCredential() Credential {
	return newCredential("slack.webhookURL", s.WebhookURL, s.WebhookURLFile)
}

// validate normalises apiURL too: slack-go appends method names to it and wants the slash.
func (s *Slack) validate(clusters []Cluster, f *findings) {
	if s.APIURL == "" {
		f.fail("slack.apiURL", "must not be empty")
	}
	s.APIURL = strings.TrimSuffix(s.APIURL, "/") + "/"
	token, webhook := s.TokenCredential(), s.WebhookCredential()
	token.validate(f)
	webhook.validate(f)
	f.plainHTTP("slack.apiURL", s.APIURL)
	if u := s.WebhookURL.Reveal(); u != "" && u != mask && formats["url"].problem(u) != "" {
		f.fail("slack.webhookURL", "is no http or https URL")
	}
	if !s.Enabled {
		return
	}
	switch {
	case token.IsSet() && webhook.IsSet():
		f.fail("slack.webhookURL", "is set together with a token: keep one of the two (the token can do more)")
	case !token.IsSet() && !webhook.IsSet() && !f.mentions("slack", "token", "tokenFile", "webhookURL", "webhookURLFile"):
		f.failToTell("slack.token", "is required to post: set token or tokenFile (or webhookURL)")
	}
	if webhook.IsSet() && !token.IsSet() {
		s.validateWebhook(clusters, f)
	} else {
		s.validateChannels(clusters, f)
	}
}

// validateWebhook refuses what would be ignored: a webhook is made for one channel.
func (s *Slack) validateWebhook(clusters []Cluster, f *findings) {
	for i, c := range clusters {
		if c.Slack.Channel != "" {
			f.fail(indexed("clusters", i)+".slack.channel", "needs a bot token: a webhook posts to its own channel only")
		}
	}
}

// channelID is the form that chat.update and conversations.history insist on.
var channelID = regexp.MustCompile(`^[CGD][A-Z0-9]{6,}$`)

func (s *Slack) validateChannels(clusters []Cluster, f *findings) {
	check := func(path, channel string) {
		if channel != "" && !channelID.MatchString(channel) {
			f.warn(path, "%s is a name: only by its id (C…) is a digest found again after a crash", quote(channel))
		}
	}
	check("slack.channel", s.Channel)
	if s.Channel == "" && len(clusters) == 0 {
		f.fail("slack.channel", "is required to post")
	}
	for i, c := range clusters {
		at := indexed("clusters", i)
		check(at+".slack.channel", c.Slack.Channel)
		if s.ChannelOf(c) == "" {
			f.fail("slack.channel", "is required: %s has no channel of its own", at)
		}
	}
}
