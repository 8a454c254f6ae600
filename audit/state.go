package audit

import (
	"context"
	"errors"
	"time"

	"ipamaudit/checks"
)

// StateSchema names the format of the state.
const StateSchema = "ipamaudit/state/v1"

// State is what a run remembers for the next one. It is a cache and a journal:
// losing it costs a search, never a duplicate ticket. It holds no secret.
type State struct {
	Schema string `json:"schema"`
	// UpdatedAt and RunID are of the run that wrote it last.
	UpdatedAt time.Time `json:"updatedAt,omitzero"`
	RunID     string    `json:"runId,omitempty"`
	// Clusters by configured name.
	Clusters map[string]*ClusterState `json:"clusters"`
	// Tickets by ticket fingerprint (cluster and check).
	Tickets map[string]*TicketState `json:"tickets"`
	// Messages by channel and run id and part, see notify.
	Messages map[string]*MessageState `json:"messages"`
	// Channels of messages, by the name that is configured.
	Channels map[string]*ChannelState `json:"channels,omitempty"`
}

// NewState returns an empty state.
func NewState() *State {
	return &State{
		Schema: StateSchema, Clusters: map[string]*ClusterState{},
		Tickets: map[string]*TicketState{}, Messages: map[string]*MessageState{}, Channels: map[string]*ChannelState{},
	}
}

// ClusterState is what is remembered of a cluster.
type ClusterState struct {
	// ID is pinned once known, so that a cluster that cannot be reached keeps
	// its fingerprints.
	ID string `json:"id"`
	// GUID is Calico's clusterGUID, by which the cluster is recognised where a
	// run cannot read the better id.
	GUID string `json:"guid,omitempty"`
	// Failures counts the nights in a row that it could not be audited.
	Failures int `json:"failures,omitempty"`
	// FailedRun is the run that counted in Failures last.
	FailedRun string `json:"failedRun,omitempty"`
	// LastComplete is when it was last audited completely.
	LastComplete time.Time `json:"lastComplete,omitzero"`
	// CleanRuns counts complete runs in a row, per check, in which the check found nothing.
	CleanRuns map[string]int `json:"cleanRuns,omitempty"`
	// CleanRun is the run that counted in CleanRuns last, per check.
	CleanRun map[string]string         `json:"cleanRun,omitempty"`
	Findings map[string]*FindingRecord `json:"findings"`
	// Pools remember what the trend is made from, by name, as of PoolsRun;
	// PoolsBefore is from the run before that.
	Pools       map[string]PoolTrend `json:"pools,omitempty"`
	PoolsRun    string               `json:"poolsRun,omitempty"`
	PoolsBefore map[string]PoolTrend `json:"poolsBefore,omitempty"`
}

// FindingRecord is what is remembered of a finding, by fingerprint.
type FindingRecord struct {
	Check     string          `json:"check"`
	Subject   checks.Subject  `json:"subject"`
	Title     string          `json:"title"`
	Severity  checks.Severity `json:"severity"`
	Affected  int             `json:"affected"`
	FirstSeen time.Time       `json:"firstSeen"`
	LastSeen  time.Time       `json:"lastSeen"`
	// Runs counts consecutive sightings; where one look proves nothing, those that
	// share a thing with the sighting before.
	Runs int `json:"runs"`
	// Sample has hashes of the things that the last sighting was about, at most
	// 32, for findings that wait for a second look.
	Sample []string `json:"sample,omitempty"`
	// RunID is the run that counted last: repeating a run counts nothing twice.
	RunID string `json:"runId"`
	// Before is what it was before RunID, nil when RunID found it first. With it
	// a repeated run tells the same story as the first time.
	Before *Previous `json:"before,omitempty"`
	// ResolvedRun is the run that found it gone; the next run forgets it.
	ResolvedRun string `json:"resolvedRun,omitempty"`
}

// PoolTrend is a pool's figures of the last run.
type PoolTrend struct {
	BlocksFree uint64 `json:"blocksFree"`
	Available  uint64 `json:"available"`
}

// TicketState is what is remembered of a ticket.
type TicketState struct {
	Cluster string `json:"cluster"`
	Check   string `json:"check"`
	// ID never changes, Key does when an issue is moved.
	ID  string `json:"id,omitempty"`
	Key string `json:"key,omitempty"`
	URL string `json:"url,omitempty"`
	// ContentHash is of what was written last; an equal hash means no write.
	ContentHash string `json:"contentHash,omitempty"`
	// Severity written last: a worse one is commented.
	Severity checks.Severity `json:"severity,omitempty"`
	// CommentedHash is of the last comment.
	CommentedHash string `json:"commentedHash,omitempty"`
	Reopened      int    `json:"reopened,omitempty"`
	// Resolved is true after the tool has told the ticket that the problem is gone.
	Resolved bool `json:"resolved,omitempty"`
	// MissingSince is when the ticket could not be seen first; zero while it can be.
	MissingSince time.Time `json:"missingSince,omitzero"`
	// Unfinished is true while what a new ticket gets besides its fields, the list
	// of what is affected and the link to the run, may be missing.
	Unfinished bool `json:"unfinished,omitempty"`
	// Intent is a call that may or may not have happened.
	Intent *Intent `json:"intent,omitempty"`
}

// Intent is written before a call that must not be repeated blindly.
type Intent struct {
	Op        string    `json:"op"`
	RunID     string    `json:"runId"`
	StartedAt time.Time `json:"startedAt"`
	Attempt   int       `json:"attempt"`
}

// MessageState is what is remembered of a Slack message.
type MessageState struct {
	Channel string `json:"channel"`
	// TS is Slack's message id; empty while only an intent is known.
	TS        string    `json:"ts,omitempty"`
	ThreadTS  string    `json:"threadTs,omitempty"`
	Permalink string    `json:"permalink,omitempty"`
	RunID     string    `json:"runId"`
	Hash      string    `json:"hash,omitempty"`
	PostedAt  time.Time `json:"postedAt,omitzero"`
	Intent    *Intent   `json:"intent,omitempty"`
}

// ChannelState is what a channel is still to be told.
type ChannelState struct {
	// ToldRun is the run whose digest the channel got last, ToldAsOf the moment
	// up to which that digest knew what had changed.
	ToldRun  string    `json:"toldRun,omitempty"`
	ToldAsOf time.Time `json:"toldAsOf,omitzero"`
	// Untold are changes, by the fingerprint of the finding. Those that were told
	// stay until another run begins: the one that told them may be repeated.
	Untold map[string]*Change `json:"untold,omitempty"`
	// LostAt is when there were more changes than are kept; zero for never.
	LostAt time.Time `json:"lostAt,omitzero"`
}

// Change is what became of a finding since a channel was told of it.
type Change struct {
	Cluster string         `json:"cluster"`
	Check   string         `json:"check"`
	Subject checks.Subject `json:"subject"`
	Title   string         `json:"title"`
	// Previous is what it is now, or was when it went.
	Previous
	// Gone is true after a run found it resolved.
	Gone bool `json:"gone,omitempty"`
	// Hidden is true while it is suppressed: it is told when that ends.
	Hidden bool `json:"hidden,omitempty"`
	// Before is what the channel was told, nil for nothing; Was what it was before
	// its last change, or the worst that it was where Before is nil.
	Before *Previous `json:"before,omitempty"`
	Was    *Previous `json:"was,omitempty"`
	// At is when it changed last.
	At time.Time `json:"at"`
}

// Store keeps the State between runs.
type Store interface {
	// Load returns the stored state, an empty one where there is none yet, and
	// an error (never an empty state) where it is damaged or of a later schema.
	Load(ctx context.Context) (*State, error)
	// Save replaces the stored state atomically. It needs the lock and fails with
	// ErrLostLock when another run has taken over.
	Save(ctx context.Context, s *State) error
	// Lock keeps other runs from writing until unlock is called. It fails with
	// ErrLocked while another run holds it.
	Lock(ctx context.Context) (unlock func(), err error)
	// String names the place for people.
	String() string
}

// ErrLocked is returned while another run holds the lock.
var ErrLocked = errors.New("another run holds the state lock")

// ErrLostLock is returned when the lock went to another run meanwhile.
var ErrLostLock = errors.New("the state lock was taken over by another run")
