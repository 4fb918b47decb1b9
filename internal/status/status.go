// Package status has the status that a worker reports, and the answers to an operator's questions
// about a cluster. They are the JSON of the admin address, which package gateway/admin serves, and
// of the questions between members.
package status

import "time"

// WorkerStatus is the status that a worker reports.
type WorkerStatus struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation"`
	Version     string `json:"version"` // of Keyway
	State       string `json:"state"`   // joining, active, drained or leaving
	NotReady    string `json:"not_ready,omitempty"`

	Wanted    int `json:"wanted"`    // partitions that the ring gives it
	Served    int `json:"served"`    // partitions that it serves
	Arriving  int `json:"arriving"`  // of those wanted, not served yet
	Departing int `json:"departing"` // of those served, another one's by the ring

	Missing []MissingStatus `json:"missing,omitempty"` // arriving partitions, by what they wait for; the most first

	Executions int64 `json:"executions"` // that have got their key since the worker's start

	BusyKeys int `json:"busy_keys"` // that are held or waited for
	Waiting  int `json:"waiting"`   // requests and calls that wait for keys
	Queue    int `json:"queue"`     // how many may
	Awaiting int `json:"awaiting"`  // that wait for a partition to arrive
	Holds    int `json:"holds"`     // keys that other members hold here, or wait for
	Locks    int `json:"locks"`     // those of them that they hold

	SessionSlackSeconds float64     `json:"session_slack_seconds"` // until nothing may start, if the store does not confirm the session
	Store               StoreStatus `json:"store"`

	Residue     []ResidueStatus `json:"residue,omitempty"`     // keys of its partitions that run on at a former owner
	Moves       []Move          `json:"moves,omitempty"`       // the latest first
	Quarantined []Quarantine    `json:"quarantined,omitempty"` // keys of the cluster's
	Hot         []HotKey        `json:"hot,omitempty"`         // the 20 keys that it was asked for most lately
	App         *AppStatus      `json:"app,omitempty"`         // behind a sidecar
}

// HotKey is a key that a worker has been asked for often lately.
type HotKey struct {
	At        string  `json:"at,omitempty"` // the worker, in a list of several
	Key       string  `json:"key"`
	PerSecond float64 `json:"per_second"` // at most, as far as what was sampled is like the rest
	Error     float64 `json:"error"`      // by how much PerSecond may be too high
	Waiting   int     `json:"waiting"`    // requests and calls that wait for it now
}

// MissingStatus is partitions that the ring gives a worker and that it does not serve so far, all
// from one worker.
type MissingStatus struct {
	Worker       string  `json:"worker,omitempty"` // that had them; "" if none is known to
	Gone         bool    `json:"gone,omitempty"`   // that is no member any more, at least not in the life in which it had them
	Partitions   int     `json:"partitions"`
	WaitsFor     string  `json:"waits_for,omitempty"`     // what they wait for, if no living worker owns them
	WaitsSeconds float64 `json:"waits_seconds,omitempty"` // how long that takes at most; 0 if it is not known
}

// StoreStatus says how a worker gets on with the store.
type StoreStatus struct {
	ID        string     `json:"id,omitempty"`         // the store's identity
	Answered  *time.Time `json:"answered,omitempty"`   // when it last did
	LastError string     `json:"last_error,omitempty"` // of a call that failed
	FailedAt  *time.Time `json:"failed_at,omitempty"`  // when that was
}

// Fails reports whether the latest call to the store failed.
func (s StoreStatus) Fails() bool {
	return s.FailedAt != nil && (s.Answered == nil || s.FailedAt.After(*s.Answered))
}

// ResidueStatus is the keys of moved partitions whose executions still run at one former owner.
// Requests for them wait at the present owner.
type ResidueStatus struct {
	Worker        string  `json:"worker"` // the former owner
	Keys          int     `json:"keys"`
	OldestSeconds float64 `json:"oldest_seconds"`
}

// AppStatus is the health of the app behind a sidecar.
type AppStatus struct {
	Up      bool   `json:"up"`
	Trouble string `json:"trouble,omitempty"` // why the worker has no place on the ring because of it
}

// Move is a group of partitions that a worker took over, gave away or lost for one reason and at
// about one time.
type Move struct {
	At             string    `json:"at,omitempty"`     // the worker that remembers it, in a list of several
	Direction      string    `json:"direction"`        // taken, given or lost
	Reason         string    `json:"reason"`           // join, rebalance, placement, leave, drain, app, store, withdrawn, death, restart, session, claimed, unowned or quarantine
	Because        string    `json:"because"`          // the reason in words
	Worker         string    `json:"worker,omitempty"` // the other one; "" if there is none
	Partitions     int       `json:"partitions"`
	Began          time.Time `json:"began"`           // when the first of them moved
	Ended          time.Time `json:"ended"`           // when the last of them did
	LongestSeconds float64   `json:"longest_seconds"` // that one of them took: from when the ring gave it to this worker until it was served, or from when it was closed until it was another one's
	Residue        int       `json:"residue"`         // keys of them that ran on at their former owner
	Running        int       `json:"running"`         // of these, those that still do, as far as this worker knows
}

// KeyStatus is what a worker knows of a key.
type KeyStatus struct {
	Worker       string  `json:"worker"`
	Incarnation  string  `json:"incarnation"`
	Key          string  `json:"key"`
	Partition    int     `json:"partition"`
	Served       bool    `json:"served"`                  // by this worker
	Epoch        int64   `json:"epoch,omitempty"`         // of the partition's record; 0 if it knows none
	Owner        string  `json:"owner,omitempty"`         // name of the worker that the record names; its incarnation if that is gone
	WaitsFor     string  `json:"waits_for,omitempty"`     // what the partition waits for, if no living worker owns it
	WaitsSeconds float64 `json:"waits_seconds,omitempty"` // how long that takes at most; 0 if it is not known

	Holder     *KeyHolder  `json:"holder,omitempty"`     // the holder of the key here
	Quarantine *Quarantine `json:"quarantine,omitempty"` // of the key
	Residue    *KeyResidue `json:"residue,omitempty"`    // the holder at a former owner

	Waiting     int       `json:"waiting"`               // callers that wait for the key
	Clients     int       `json:"clients"`               // of these callers; a call of the program itself counts as one
	MostOfOne   int       `json:"most_of_one,omitempty"` // how many of one client wait
	QueuePerKey int       `json:"queue_per_key"`         // how many may wait, unless the route says otherwise
	Rates       []KeyRate `json:"rates,omitempty"`

	Mismatch *KeyMismatch `json:"mismatch,omitempty"` // the latest that concerns the key
}

// KeyMismatch is an answer whose app said that it worked on another key than its execution's.
type KeyMismatch struct {
	Route  string    `json:"route,omitempty"`
	Key    string    `json:"key"`    // of the execution; "" for none
	App    string    `json:"app"`    // the first value of [HeaderKey] in the answer
	Values int       `json:"values"` // how many there were
	At     time.Time `json:"at"`
}

// KeyHolder is the execution that holds a key.
type KeyHolder struct {
	Token        int64   `json:"token"`
	Kind         string  `json:"kind"`                    // execution, or hold: another member holds the key
	Seconds      float64 `json:"seconds"`                 // for how long
	AtLeast      bool    `json:"at_least,omitempty"`      // or longer: nobody has looked before
	ClientGone   bool    `json:"client_gone,omitempty"`   // its client has left
	HeldBy       string  `json:"held_by,omitempty"`       // address of the member, of a hold
	Label        string  `json:"label,omitempty"`         // that the member has given it, of a hold
	Shared       int     `json:"shared,omitempty"`        // how many holds share the key, of which this is the one with the most left
	LeaseSeconds float64 `json:"lease_seconds,omitempty"` // until it is free, if the member is not heard of, of a hold
	LimitSeconds float64 `json:"limit_seconds,omitempty"` // for how long it may
}

// KeyResidue is an execution of a key at a former owner of its partition.
type KeyResidue struct {
	Worker  string  `json:"worker"`
	Token   int64   `json:"token"`
	Seconds float64 `json:"seconds"` // since the partition has come
}

// KeyRate is a route's rate for a key.
type KeyRate struct {
	Route     string  `json:"route"`
	PerSecond float64 `json:"per_second"`
	Burst     int     `json:"burst"`
	Left      float64 `json:"left"` // executions that may begin now
}

// RoutesStatus says which routes a router has in force.
type RoutesStatus struct {
	File   string    `json:"file"`            // "" if they are of flags
	Digest string    `json:"digest"`          // of what the file had in it
	Loaded time.Time `json:"loaded"`          // when they came into force
	Names  []string  `json:"routes"`          // in their order
	Error  string    `json:"error,omitempty"` // why the file, as it is now, is not in force
}
