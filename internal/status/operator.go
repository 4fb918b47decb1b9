package status

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/ring"
)

// Errors of what an operator asks of a cluster.
var (
	// ErrNoWorker means that no worker has the name that was given, or none on the ring has it.
	ErrNoWorker = errors.New("gateway: there is no such worker")

	// ErrNotLocked means that no lock of a key was there to release: an execution may hold it.
	ErrNotLocked = errors.New("gateway: the key is not locked")

	// ErrNotQuarantined means that a key is not quarantined.
	ErrNotQuarantined = errors.New("gateway: the key is not quarantined")

	// ErrNotAnswered means that a worker did not answer, or not with the requested data.
	ErrNotAnswered = errors.New("gateway: the worker does not answer")
)

// Ring says which worker should own each partition.
type Ring struct {
	Digest     string  `json:"digest"` // of the configuration and the active workers
	Partitions int     `json:"partitions"`
	Workers    []Share `json:"workers"` // on the ring
	Owners     []int   `json:"owners"`  // of each partition, as an index of Workers; -1 for none

	Placements []Placement `json:"placements"` // in force: partitions that do not go by the ring
}

// Placement says which worker should own a partition, in place of the one by the ring.
type Placement struct {
	Partition int    `json:"partition"`
	Worker    string `json:"worker"`
	By        string `json:"by"` // load, or hand: an operator
}

// PlacementsOf returns the placements of a view.
func PlacementsOf(view *ring.View) []Placement {
	list, _ := placement.Decode(view.Placements) // a membership takes only what can be read
	out := make([]Placement, len(list))
	for i, p := range list {
		if out[i] = (Placement{p.Partition, p.Worker, "load"}); p.Pinned {
			out[i].By = "hand"
		}
	}
	return out
}

// Share is a worker on the ring.
type Share struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation"`
	Partitions  int    `json:"partitions"` // that it should own
}

// Members are all members of the cluster.
type Members struct {
	Members []Member `json:"members"`
}

// Member is a member of the cluster.
type Member struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation,omitempty"`
	Role        string `json:"role"`
	State       string `json:"state"`
	Address     string `json:"address"`
	Gossip      string `json:"gossip"`
	Partitions  int    `json:"partitions"` // that the ring gives it
	View        string `json:"view"`       // digest of what it sees
}

// Workers are all members that are workers, by name.
type Workers struct {
	Workers []WorkerRow `json:"workers"`
}

// WorkerRow is a worker, and its own status.
type WorkerRow struct {
	Name    string        `json:"name"`
	Address string        `json:"address"`
	State   string        `json:"state"` // as the other members see it
	Status  *WorkerStatus `json:"status,omitempty"`
	Error   string        `json:"error,omitempty"` // why there is no status
}

// Quarantine is a key that has no executions, since workers have died while some of it ran.
type Quarantine struct {
	Key     string   `json:"key"`
	Workers []string `json:"workers"` // that have died
	Seconds float64  `json:"seconds"` // that are left
}

// LockRow is a key that a caller outside of its worker has locked.
type LockRow struct {
	At           string  `json:"at,omitempty"` // the worker
	Key          string  `json:"key"`
	Token        int64   `json:"token"`
	Label        string  `json:"label,omitempty"`   // what the holder calls itself
	HeldBy       string  `json:"held_by"`           // address of the member that asked for it
	Readers      int     `json:"readers,omitempty"` // that share the key; the other fields are those of the longest lease
	Written      bool    `json:"written,omitempty"` // the store keeps it, so that it outlives the worker
	LeaseSeconds float64 `json:"lease_seconds"`     // that are left without a renewal
}

// LockPage is a part of a list of locks, in an order of its own.
type LockPage struct {
	Locks  []LockRow `json:"locks"`            // one for each key, at most [MaxLockRows]
	Next   string    `json:"next,omitempty"`   // key after which the next page begins; "" for the last page
	Silent []string  `json:"silent,omitempty"` // workers that did not tell
}

// MaxLockRows is how many rows a [LockPage] has at most.
const MaxLockRows = 100

// HotKeys are the keys that workers were asked for most lately.
type HotKeys struct {
	Keys   []HotKey `json:"keys"`   // the hottest first
	Silent []string `json:"silent"` // workers that did not tell
}

// Moves are the moves that workers remember.
type Moves struct {
	Moves  []Move   `json:"moves"`  // the latest first
	Silent []string `json:"silent"` // workers that did not tell
}

// Explanation says what happens to requests for a key, and why they wait.
type Explanation struct {
	Route  string `json:"route,omitempty"`  // that the request takes
	Mode   string `json:"mode,omitempty"`   // of the route
	Source string `json:"source,omitempty"` // where the request has its key
	Key    string `json:"key,omitempty"`    // in its canonical form

	Partition int    `json:"partition"`
	Wanted    *Place `json:"wanted,omitempty"`   // the worker that should own it
	Placed    string `json:"placed,omitempty"`   // why it does not go by the ring: by load or by hand
	Believed  *Place `json:"believed,omitempty"` // where this process sends requests for the key
	Epoch     int64  `json:"epoch,omitempty"`    // of the partition, as this process knows it

	Worker      *KeyStatus `json:"worker,omitempty"`       // what the worker knows where requests go
	WorkerError string     `json:"worker_error,omitempty"` // why it has not said that
	Former      *KeyStatus `json:"former,omitempty"`       // what the former owner knows, where the key runs yet
	FormerError string     `json:"former_error,omitempty"` // why it has not said that

	Verdict []string `json:"verdict"` // the conclusion, in sentences
}

// Place is a worker.
type Place struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// CrowdForBatch is how many calls wait for a key when operators are told that batches would help.
const CrowdForBatch = 8

// Conclude sets the verdict.
func (e *Explanation) Conclude() {
	say := func(format string, args ...any) { e.Verdict = append(e.Verdict, fmt.Sprintf(format, args...)) }
	w := e.Worker
	switch {
	case e.Key == "":
		say("The request has no key, and no worker holds one for it.")
		return
	case e.Believed == nil:
		say("No worker is on the ring. Routers hold requests for the key until one is, or until their time is over.")
		return
	case w == nil:
		say("Worker %s, to which requests for the key go, has not said what it does: %s.", e.Believed.Name, e.WorkerError)
		return
	case !w.Served && w.WaitsFor != "":
		say("Nobody serves the key's partition %d at the moment: %s. Routers hold requests for it meanwhile.", e.Partition, w.WaitsFor)
		if w.Owner != "" {
			say("Worker %s had it before.", w.Owner)
		}
		if w.WaitsSeconds > 0 {
			say("It is served again in %s at most.", Seconds(w.WaitsSeconds))
		}
		return
	case !w.Served:
		say("Worker %s does not serve the key's partition %d, worker %s does; routers learn that with their next request.", w.Worker, e.Partition, w.Owner)
		return
	}
	if e.Wanted != nil && e.Wanted.Name != w.Worker {
		say("Partition %d is about to move from worker %s to %s.", e.Partition, w.Worker, e.Wanted.Name)
	}
	if e.Placed != "" {
		say("Partition %d is placed by %s, and does not go by the ring.", e.Partition, e.Placed)
	}
	if m := w.Mismatch; m != nil {
		say("At %s the app said that it worked on the key %q, but its request of route %q ran under the key %q: let the app use Keyway-Key of the request.", m.At.UTC().Format(time.RFC3339), m.App, m.Route, m.Key)
	}
	switch h := w.Holder; {
	case w.Quarantine != nil:
		say("The key is quarantined for another %s: workers %s died while executions of it ran. Mend the cause, then release it with ctl release.", Seconds(w.Quarantine.Seconds), strings.Join(w.Quarantine.Workers, " and "))
	case w.Residue != nil:
		say("An execution at worker %s, the partition's former owner, holds the key: the partition has moved to %s %s ago, while it ran.", w.Residue.Worker, w.Worker, Seconds(w.Residue.Seconds))
		switch {
		case e.Former != nil && e.Former.Holder != nil:
			say("It %s.", runs(e.Former.Holder))
		case e.FormerError != "":
			say("Worker %s has not said more: %s. When its session is over, the key is free.", w.Residue.Worker, e.FormerError)
		}
	case h == nil && w.Waiting == 0:
		say("The key is free: a request for it runs at once at worker %s.", w.Worker)
	case h == nil:
		say("The key is being passed on.")
	case h.Shared > 0:
		say("%d callers share the key at worker %s; the member at %s%s has the longest lease.", h.Shared, w.Worker, h.HeldBy, callsItself(h))
	case h.Kind == "hold":
		say("Another member, at %s%s, holds the key at worker %s: it %s.", h.HeldBy, callsItself(h), w.Worker, runs(h))
	default:
		say("An execution at worker %s holds the key: it %s.", w.Worker, runs(h))
	}
	switch {
	case w.Waiting == 0:
	case w.Clients == 1:
		say("Calls that wait for it: %d, from one client.", w.Waiting)
	default:
		say("Calls that wait for it: %d, from %d clients; one client made %d.", w.Waiting, w.Clients, w.MostOfOne)
	}
	if w.Waiting >= CrowdForBatch && w.Residue == nil {
		say("No placement can split a key: a batch answers the calls that wait for it with one execution (docs/batch.md).")
	}
	for _, r := range w.Rates {
		if r.Left < 1 {
			say("The rate of route %q, %v a second and %d at once, is used up.", r.Route, r.PerSecond, r.Burst)
		}
	}
}

// runs says how long an execution has run.
func runs(h *KeyHolder) string {
	var b strings.Builder
	if h.AtLeast && h.Seconds == 0 {
		b.WriteString("has begun in the last few seconds")
	} else {
		fmt.Fprintf(&b, "has run for %s", Seconds(h.Seconds))
		if h.AtLeast {
			b.WriteString(" or longer")
		}
		if h.LimitSeconds > 0 {
			fmt.Fprintf(&b, " of the %s that it may", Seconds(h.LimitSeconds))
		}
	}
	if h.ClientGone {
		b.WriteString(", and its client has left")
	}
	if h.LeaseSeconds > 0 {
		fmt.Fprintf(&b, ", and loses the key in %s unless the member renews it", Seconds(h.LeaseSeconds))
	}
	return b.String()
}

// callsItself returns what the member that holds a key calls itself.
func callsItself(h *KeyHolder) string {
	if h.Label == "" {
		return ""
	}
	return fmt.Sprintf(" (%q)", h.Label)
}

// Seconds returns a time as precisely as people want it.
func Seconds(s float64) string {
	d, precision := time.Duration(s*float64(time.Second)), time.Millisecond
	switch {
	case d >= time.Minute:
		precision = time.Second
	case d >= 10*time.Second:
		precision = 100 * time.Millisecond
	}
	return d.Round(precision).String()
}
