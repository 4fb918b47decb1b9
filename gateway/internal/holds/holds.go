// Package holds is what members say to each other when one holds keys at their
// owner for another: calls over the link (docs/link.md) with short bodies, of
// which docs/protocol.md tells the rest. All of them may be repeated.
package holds

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Methods of the calls.
const (
	Acquire = ":acquire" // a Request, for the key of the link's request; answered with a Grant, or a status
	Renew   = ":renew"   // IDs; answered with a Renewal
	Release = ":release" // IDs; answered with nothing
)

// ID names a hold. Its holder draws it.
type ID [16]byte

// NewID returns a random ID.
func NewID() (id ID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// MaxIDs is how many holds one call may name.
const MaxIDs = 2048

// MaxBody is the length of the longest body of a call, in bytes.
const MaxBody = MaxIDs * len(ID{})

var errMalformed = errors.New("holds: malformed call between members")

// Request asks for a key.
type Request struct {
	ID  ID
	Try bool // do not wait
}

// Append appends the request to b.
func (r Request) Append(b []byte) []byte {
	try := byte(0)
	if r.Try {
		try = 1
	}
	return append(append(b, r.ID[:]...), try)
}

// ParseRequest parses what [Request.Append] has made.
func ParseRequest(b []byte) (r Request, err error) {
	if len(b) != len(r.ID)+1 || b[len(r.ID)] > 1 {
		return r, fmt.Errorf("%w: %d bytes ask for a key", errMalformed, len(b))
	}
	return Request{ID: ID(b), Try: b[len(r.ID)] == 1}, nil
}

// Promise says how much longer the owner of a key can vouch for it, without
// another renewal of its own session.
type Promise struct {
	Cancel    time.Duration // until it would cancel its own executions
	Surrender time.Duration // until these must have ended
}

func (p Promise) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(max(p.Cancel, 0)))
	return binary.AppendUvarint(b, uint64(max(p.Surrender, 0)))
}

// cutPromise takes a promise from the front of b.
func cutPromise(b []byte) (p Promise, rest []byte, err error) {
	for _, d := range []*time.Duration{&p.Cancel, &p.Surrender} {
		v, n := binary.Uvarint(b)
		if n <= 0 || time.Duration(v) < 0 {
			return Promise{}, nil, fmt.Errorf("%w: %d bytes begin with no promise", errMalformed, len(b))
		}
		*d, b = time.Duration(v), b[n:]
	}
	return p, b, nil
}

// Grant says that a key is held.
type Grant struct {
	Token int64
	Promise
}

// Append appends the grant to b.
func (g Grant) Append(b []byte) []byte {
	return g.append(binary.AppendUvarint(b, uint64(g.Token)))
}

// ParseGrant parses what [Grant.Append] has made.
func ParseGrant(b []byte) (g Grant, err error) {
	token, n := binary.Uvarint(b)
	if n <= 0 || int64(token) <= 0 {
		return Grant{}, fmt.Errorf("%w: a grant without a token", errMalformed)
	}
	g.Token = int64(token)
	g.Promise, b, err = cutPromise(b[n:])
	if err != nil || len(b) > 0 {
		return Grant{}, fmt.Errorf("%w: a grant with a bad promise", errMalformed)
	}
	return g, nil
}

// AppendIDs appends holds to b.
func AppendIDs(b []byte, ids []ID) []byte {
	b = slices.Grow(b, len(ids)*len(ID{}))
	for i := range ids {
		b = append(b, ids[i][:]...)
	}
	return b
}

// ParseIDs parses what [AppendIDs] has made.
func ParseIDs(b []byte) ([]ID, error) {
	const size = len(ID{})
	if len(b)%size != 0 || len(b) > MaxBody {
		return nil, fmt.Errorf("%w: %d bytes name no holds", errMalformed, len(b))
	}
	ids := make([]ID, 0, len(b)/size)
	for part := range slices.Chunk(b, size) {
		ids = append(ids, ID(part))
	}
	return ids, nil
}

// Renewal answers Renew.
type Renewal struct {
	Promise        // for all that are held
	Held    []bool // for each hold: whether it goes on
}

// Append appends the renewal to b.
func (r Renewal) Append(b []byte) []byte {
	b = r.append(b)
	for _, held := range r.Held {
		if held {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	return b
}

// ParseRenewal parses what [Renewal.Append] has made, for that many holds.
func ParseRenewal(b []byte, n int) (r Renewal, err error) {
	r.Promise, b, err = cutPromise(b)
	if err != nil || len(b) != n || slices.ContainsFunc(b, func(held byte) bool { return held > 1 }) {
		return Renewal{}, fmt.Errorf("%w: a bad renewal of %d holds", errMalformed, n)
	}
	for _, held := range b {
		r.Held = append(r.Held, held == 1)
	}
	return r, nil
}
