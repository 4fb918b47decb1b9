package accesslog

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Entry is a request's line, as JSON. docs/observability.md explains the fields.
type Entry struct {
	Time   time.Time `json:"time"` // when the request came
	ID     string    `json:"id"`   // of its trace; "" for one that the line makes up
	Route  string    `json:"route,omitempty"`
	Method string    `json:"method,omitempty"`
	Path   string    `json:"path,omitempty"` // without the query
	Status int       `json:"status"`         // 499 if the client did not wait

	BytesIn  int64 `json:"bytes_in"` // of bodies
	BytesOut int64 `json:"bytes_out"`

	KeyHash   string `json:"key_hash,omitempty"`  // follows from Key
	Key       string `json:"key,omitempty"`       // "" for none
	Partition *int   `json:"partition,omitempty"` // is left out without a key

	Owner string   `json:"owner,omitempty"`   // the worker that was asked last; "" for none
	Way   string   `json:"way,omitempty"`     // what has carried the request
	Tries int      `json:"tries"`             // attempts at workers
	Hold  float64  `json:"hold_ms"`           // before the last of these
	Wait  *float64 `json:"wait_ms,omitempty"` // for the key, at the worker; nil if it is not known
	Run   *float64 `json:"run_ms,omitempty"`  // with the key held; likewise
	Total float64  `json:"total_ms"`          // to the end of the answer

	Error string `json:"error,omitempty"` // kind of the router's own answer; "" for none
}

// Milliseconds returns a time as lines have it.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// complete sets what follows from the other fields, and removes the key unless lines have keys.
func (e *Entry) complete(keys bool) {
	e.Time = e.Time.UTC().Truncate(time.Microsecond)
	if e.ID == "" {
		var id [16]byte
		rand.Read(id[:])
		e.ID = fmt.Sprintf("%x", id)
	}
	if e.Key == "" {
		e.Partition = nil
		return
	}
	e.KeyHash = fmt.Sprintf("%016x", xxhash.Sum64String(e.Key))
	if !keys {
		e.Key = ""
	}
}
