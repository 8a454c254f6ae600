package state

import (
	"errors"
	"fmt"
	"time"

	"ipamaudit/audit"
)

// errNotLocked is a fault of the caller: without the lock two runs would
// overwrite each other.
var errNotLocked = errors.New("the state is not locked by this run")

// Holder is who holds a lock.
type Holder struct {
	// Name is a process ("pid 4711 on host-1") or the identity in a Lease.
	Name  string    `json:"name"`
	Since time.Time `json:"since,omitzero"`
}

// LockedError is audit.ErrLocked with who it is.
type LockedError struct {
	Where  string
	Holder Holder
	// Advice is what to do.
	Advice string
}

// Error names the holder.
func (e *LockedError) Error() string {
	who := e.Holder.Name
	if who == "" {
		who = "someone who left no name"
	}
	if !e.Holder.Since.IsZero() {
		who += " since " + e.Holder.Since.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%v: %s is held by %s. %s", audit.ErrLocked, e.Where, who, e.Advice)
}

// Unwrap returns audit.ErrLocked.
func (e *LockedError) Unwrap() error { return audit.ErrLocked }
