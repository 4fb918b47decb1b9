// Package holds is what members say to each other when one holds keys at their
// owner for another: calls over the link (docs/link.md) with short bodies, of
// which docs/protocol.md tells the rest. All of them may be repeated.
package holds

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Methods of the calls. Acquire and Extend are for the key of the link's request, and wait and
// are refused as any request for it. Renew and Release come in two forms: to a worker that has
// granted keys, of any partitions; and, with a key and an epoch in the link's request, to whoever
// owns the key's partition, of that one alone, when it waits and is refused as any request.
const (
	Acquire = ":acquire" // a Request, for the key of the link's request; answered with a Grant, an Occupancy (409), or another status
	Renew   = ":renew"   // Refs; answered with a Renewal
	Release = ":release" // Refs; answered with States
	Inspect = ":inspect" // nothing, for the key of the link's request, which is routed as one; answered with an Occupancy
	Extend  = ":extend"  // an Extension; answered with a Grant, or 410 if the key is not held for that ID
	Abandon = ":abandon" // a Made, for the key of the link's request, which is routed as one; answered with 200 whatever has become of it
)

// ID names a hold. Its holder draws it.
type ID [16]byte

// NewID returns a random ID.
func NewID() (id ID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// Along is the key of a context value. A context of it descends from a hold of that
// key at another member.
type Along string

// Ref names a lock, with the partition of its key.
type Ref struct {
	ID        ID
	Partition int
	Token     int64 // with which it was granted; 0 for whichever lock has the ID
}

// MaxRefs is how many holds one call may name.
const MaxRefs = 2048

// maxRef is the length of the longest Ref, in bytes.
const maxRef = len(ID{}) + binary.MaxVarintLen32 + binary.MaxVarintLen64 - 1

// MaxBody is the length of the longest body of a call, in bytes.
const MaxBody = MaxRefs * maxRef

// MaxLabel is the length of the longest label, in bytes.
const MaxLabel = 64

// MaxTurns is how many callers may have a key one after the other by one hold.
const MaxTurns = 64

var errMalformed = errors.New("holds: malformed call between members")

// Request asks for a key.
type Request struct {
	ID     ID
	Call   uint64        // tells attempts of one request, which carry the same number, from other requests; 0 is nobody's
	Try    bool          // do not wait
	Firm   bool          // whoever asks does not renew by itself
	Shared bool          // others may hold the key shared at the same time, with the same token
	Lease  time.Duration // for how long it is held without a renewal; 0, and what is more, stand for the session TTL
	Wait   time.Duration // how long to wait at most; 0, and what is more, stand for as long as the worker lets anybody wait
	Turns  int           // how many more are to have the key by the hold, one after the other; less than MaxTurns
	Label  string        // who asks, for people; up to MaxLabel bytes of text in UTF-8
}

// Append appends the request to b.
func (r Request) Append(b []byte) []byte {
	b = append(append(b, r.ID[:]...), flagByte(r.Try, r.Firm, r.Shared))
	b = appendDuration(appendDuration(binary.AppendUvarint(b, r.Call), r.Lease), r.Wait)
	b = binary.AppendUvarint(b, uint64(r.Turns))
	return append(b, r.Label...)
}

// ParseRequest parses what [Request.Append] has made.
func ParseRequest(b []byte) (r Request, err error) {
	b, ok := cutHead(b, &r.ID, &r.Try, &r.Firm, &r.Shared)
	if !ok {
		return Request{}, fmt.Errorf("%w: no request for a key", errMalformed)
	}
	if r.Call, b, ok = cutNumber(b); !ok {
		return Request{}, fmt.Errorf("%w: a request without a number", errMalformed)
	}
	for _, d := range []*time.Duration{&r.Lease, &r.Wait} {
		if *d, b, ok = cutDuration(b); !ok {
			return Request{}, fmt.Errorf("%w: a request with bad times", errMalformed)
		}
	}
	if r.Turns, b, ok = cutTurns(b); !ok {
		return Request{}, fmt.Errorf("%w: a request for more than %d turns", errMalformed, MaxTurns)
	}
	if r.Label = string(b); !IsLabel(r.Label) {
		return Request{}, fmt.Errorf("%w: a label of %d bytes that is too long or no text", errMalformed, len(b))
	}
	return r, nil
}

// IsLabel reports whether a label may be that of a request.
func IsLabel(label string) bool {
	return len(label) <= MaxLabel && utf8.ValidString(label) && !strings.ContainsFunc(label, unicode.IsControl)
}

func appendDuration(b []byte, d time.Duration) []byte {
	return binary.AppendUvarint(b, uint64(max(d, 0)))
}

func cutDuration(b []byte) (d time.Duration, rest []byte, ok bool) {
	v, b, ok := cutNumber(b)
	return time.Duration(v), b, ok && time.Duration(v) >= 0
}

func cutNumber(b []byte) (v uint64, rest []byte, ok bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, false
	}
	return v, b[n:], true
}

// cutTurns takes a number of turns after the first from the front of b.
func cutTurns(b []byte) (turns int, rest []byte, ok bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 || v >= MaxTurns {
		return 0, nil, false
	}
	return int(v), b[n:], true
}

// Extension asks for a longer lease of a key that is held. It never shortens what is left.
type Extension struct {
	ID    ID
	Firm  bool          // as in a Request
	Lease time.Duration // from now on, and from each renewal on; 0 as in a Request
}

// Append appends the extension to b.
func (e Extension) Append(b []byte) []byte {
	return appendDuration(append(append(b, e.ID[:]...), flagByte(false, e.Firm)), e.Lease)
}

// ParseExtension parses what [Extension.Append] has made.
func ParseExtension(b []byte) (e Extension, err error) {
	var never bool
	b, ok := cutHead(b, &e.ID, &never, &e.Firm)
	if ok {
		e.Lease, b, ok = cutDuration(b)
	}
	if !ok || never || len(b) > 0 {
		return Extension{}, fmt.Errorf("%w: no extension of a lease", errMalformed)
	}
	return e, nil
}

// Made is a hold that a request has made, which ends unless another request has found it.
type Made struct {
	ID   ID
	Call uint64 // of the Request; not 0
}

// Append appends the hold to b.
func (m Made) Append(b []byte) []byte {
	return binary.AppendUvarint(append(b, m.ID[:]...), m.Call)
}

// ParseMade parses what [Made.Append] has made.
func ParseMade(b []byte) (m Made, err error) {
	n := copy(m.ID[:], b)
	call, rest, ok := cutNumber(b[n:])
	if !ok || len(rest) > 0 || call == 0 {
		return Made{}, fmt.Errorf("%w: no hold of a request", errMalformed)
	}
	m.Call = call
	return m, nil
}

// flagByte returns the byte with those flags, the first of which is bit 0.
func flagByte(flags ...bool) (b byte) {
	for i, set := range flags {
		if set {
			b |= 1 << i
		}
	}
	return b
}

// cutHead takes the id and those flags from the front of b. There must be no others.
func cutHead(b []byte, id *ID, flags ...*bool) (rest []byte, ok bool) {
	n := copy(id[:], b)
	if len(b) <= n || b[n]>>len(flags) != 0 {
		return nil, false
	}
	for i, flag := range flags {
		*flag = b[n]>>i&1 != 0
	}
	return b[n+1:], true
}

// Promise says how much longer the owner of a key can vouch for it, without
// another renewal of its own session.
type Promise struct {
	Cancel    time.Duration // until it would cancel its own executions
	Surrender time.Duration // until these must have ended
}

func (p Promise) append(b []byte) []byte {
	return appendDuration(appendDuration(b, p.Cancel), p.Surrender)
}

// cutPromise takes a promise from the front of b.
func cutPromise(b []byte) (p Promise, rest []byte, err error) {
	rest = b
	for _, d := range []*time.Duration{&p.Cancel, &p.Surrender} {
		var ok bool
		if *d, rest, ok = cutDuration(rest); !ok {
			return Promise{}, nil, fmt.Errorf("%w: %d bytes begin with no promise", errMalformed, len(b))
		}
	}
	return p, rest, nil
}

// Grant says that a key is held.
type Grant struct {
	Token int64
	Lease time.Duration // for how long without a renewal
	Promise
	Turns int   // how many more may have the key by the hold
	Next  int64 // token of the first of these, above Token, which those of the others follow; 0 if there are none
}

// Append appends the grant to b.
func (g Grant) Append(b []byte) []byte {
	b = g.append(appendDuration(binary.AppendUvarint(b, uint64(g.Token)), g.Lease))
	if g.Turns == 0 {
		return b
	}
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(g.Turns)), uint64(g.Next))
}

// ParseGrant parses what [Grant.Append] has made.
func ParseGrant(b []byte) (g Grant, err error) {
	token, n := binary.Uvarint(b)
	if n <= 0 || int64(token) <= 0 {
		return Grant{}, fmt.Errorf("%w: a grant without a token", errMalformed)
	}
	g.Token = int64(token)
	var ok bool
	if g.Lease, b, ok = cutDuration(b[n:]); !ok || g.Lease == 0 {
		return Grant{}, fmt.Errorf("%w: a grant without a lease", errMalformed)
	}
	if g.Promise, b, err = cutPromise(b); err != nil {
		return Grant{}, fmt.Errorf("%w: a grant with a bad promise", errMalformed)
	}
	if len(b) == 0 {
		return g, nil
	}
	if g.Turns, b, ok = cutTurns(b); ok {
		token, n = binary.Uvarint(b)
		g.Next = int64(token)
	}
	if !ok || g.Turns == 0 || n != len(b) || g.Next <= g.Token || g.Next > math.MaxInt64-MaxTurns {
		return Grant{}, fmt.Errorf("%w: a grant with bad turns", errMalformed)
	}
	return g, nil
}

// AppendRefs appends holds to b.
func AppendRefs(b []byte, refs []Ref) []byte {
	b = slices.Grow(b, len(refs)*maxRef)
	for i := range refs {
		b = binary.AppendUvarint(append(b, refs[i].ID[:]...), uint64(refs[i].Partition))
		b = binary.AppendUvarint(b, uint64(refs[i].Token))
	}
	return b
}

// ParseRefs parses what [AppendRefs] has made, for a ring of that many partitions.
func ParseRefs(b []byte, partitions int) ([]Ref, error) {
	refs := make([]Ref, 0, min(len(b)/len(ID{}), MaxRefs))
	for len(b) > 0 {
		var r Ref
		n := copy(r.ID[:], b)
		p, width := binary.Uvarint(b[n:])
		token, last := binary.Uvarint(b[n+max(width, 0):])
		if n < len(r.ID) || width <= 0 || p >= uint64(partitions) || last <= 0 || token > math.MaxInt64 || len(refs) == MaxRefs {
			return nil, fmt.Errorf("%w: bytes that name no holds, or more than %d, or partitions of another ring", errMalformed, MaxRefs)
		}
		r.Partition, r.Token = int(p), int64(token)
		refs, b = append(refs, r), b[n+width+last:]
	}
	return refs, nil
}

// State is what a worker says of a hold.
type State byte

// States.
const (
	Gone      State = iota // it does not hold the key
	Held                   // it holds the key, and goes on; or has released it
	Elsewhere              // it does not serve the key's partition, whose holds go along with it
	Released               // it has released what was held until then, and does not know whether the store has taken it: the owner is to be asked again, who does not hold it or releases it
	states
)

// AppendStates appends the states of holds to b.
func AppendStates(b []byte, list []State) []byte {
	for _, s := range list {
		b = append(b, byte(s))
	}
	return b
}

// ParseStates parses what [AppendStates] has made, for that many holds.
func ParseStates(b []byte, n int) ([]State, error) {
	list := make([]State, 0, len(b))
	for _, s := range b {
		list = append(list, State(s))
	}
	if len(b) != n || slices.ContainsFunc(list, func(s State) bool { return s >= states }) {
		return nil, fmt.Errorf("%w: bad states of %d holds", errMalformed, n)
	}
	return list, nil
}

// Renewal answers Renew.
type Renewal struct {
	Promise         // for all that are held
	States  []State // of each hold
}

// Append appends the renewal to b.
func (r Renewal) Append(b []byte) []byte { return AppendStates(r.append(b), r.States) }

// ParseRenewal parses what [Renewal.Append] has made, for that many holds.
func ParseRenewal(b []byte, n int) (r Renewal, err error) {
	if r.Promise, b, err = cutPromise(b); err == nil {
		r.States, err = ParseStates(b, n)
	}
	if err != nil {
		return Renewal{}, err
	}
	return r, nil
}
