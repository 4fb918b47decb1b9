// Package holds has the messages by which a member asks the owner of keys to hold them for it. They
// are calls over the link (docs/link.md) with short bodies; docs/protocol-locks.md explains their
// use. Each call may be repeated.
package holds

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/wire/packed"
)

// Methods of the calls. Acquire and Extend are for the key of the link's request, and wait and are
// refused as any request for it. Renew and Release have two forms. Without a key they go to a
// worker that has granted keys, and name keys of any partitions. With a key and an epoch in the
// link's request they go to the owner of the key's partition, name only keys of this partition, and
// wait and are refused as any request.
const (
	Acquire = ":acquire" // a Request, for the key of the link's request; answered with a Grant, an Occupancy (409), or another status
	Renew   = ":renew"   // Refs; answered with Answers
	Release = ":release" // Refs; answered with Answers
	Inspect = ":inspect" // nothing, for the key of the link's request, which is routed as one; answered with an Occupancy
	Extend  = ":extend"  // a Request with ID, Firm and Lease; answered with a Grant, or 410 if the key is not held for that ID
	Abandon = ":abandon" // a Request with ID and Call, for the key of the link's request, which is routed as one; answered with 200 whatever has become of it
)

// ID names a hold. Its holder draws it.
type ID [16]byte

// NewID returns a random ID.
func NewID() (id ID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

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

// MaxKeys bounds how many keys are held together.
const MaxKeys = 64

var errMalformed = errors.New("holds: malformed call between members")

// Request asks for a key, or for another lease of a key that is held, which never shortens what is left; or it gives up a
// hold that no other request has found.
type Request struct {
	ID     ID
	Call   uint64        // tells attempts of one request, which carry the same number, from other requests by its ID; 0 if there are none
	Try    bool          // do not wait
	Firm   bool          // the holder does not renew by itself
	Shared bool          // others may hold the key shared at the same time, with the same token
	Lease  time.Duration // without a renewal; 0 and longer ones stand for the session TTL
	Wait   time.Duration // bounds the wait; 0 and longer ones stand for the worker's own bound
	Turns  int           // further callers that get the key by the hold, one after the other; less than MaxTurns
	Label  string        // the holder's name for operators; up to MaxLabel bytes of UTF-8 text
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
	p := packed.Reader{Rest: b}
	copy(r.ID[:], p.Bytes(len(r.ID)))
	readFlags(&p, &r.Try, &r.Firm, &r.Shared)
	r.Call, r.Lease, r.Wait = p.Number(math.MaxUint64), p.Duration(), p.Duration()
	r.Turns = int(p.Number(MaxTurns - 1))
	if r.Label = string(p.Rest); p.Bad || !IsLabel(r.Label) {
		return Request{}, fmt.Errorf("%w: no request for a key", errMalformed)
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

// flagByte packs flags into a byte, the first as bit 0.
func flagByte(flags ...bool) (b byte) {
	for i, set := range flags {
		if set {
			b |= 1 << i
		}
	}
	return b
}

// readFlags reads a byte of flags, which has no others.
func readFlags(p *packed.Reader, flags ...*bool) {
	b := p.Number(1<<len(flags) - 1)
	for i, flag := range flags {
		*flag = b>>i&1 != 0
	}
}

func appendPromise(b []byte, p holder.Promise) []byte {
	return appendDuration(appendDuration(b, p.Cancel), p.Surrender)
}

// Grant says that a key is held.
type Grant holder.Grant

// Append appends the grant to b.
func (g Grant) Append(b []byte) []byte {
	b = appendPromise(appendDuration(binary.AppendUvarint(b, uint64(g.Token)), g.Lease), g.Promise)
	if g.Turns == 0 {
		return b
	}
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(g.Turns)), uint64(g.Next))
}

// ParseGrant parses what [Grant.Append] has made.
func ParseGrant(b []byte) (g Grant, err error) {
	p := packed.Reader{Rest: b}
	g.Token, g.Lease = int64(p.Number(math.MaxInt64)), p.Duration()
	g.Cancel, g.Surrender = p.Duration(), p.Duration()
	turns := len(p.Rest) > 0
	if turns {
		g.Turns, g.Next = int(p.Number(MaxTurns-1)), int64(p.Number(math.MaxInt64-MaxTurns))
	}
	if !p.Done() || g.Token == 0 || g.Lease == 0 || turns && (g.Turns == 0 || g.Next <= g.Token) {
		return Grant{}, fmt.Errorf("%w: no grant of a key", errMalformed)
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
	p, refs := packed.Reader{Rest: b}, make([]Ref, 0, min(len(b)/len(ID{}), MaxRefs))
	for len(p.Rest) > 0 && len(refs) < MaxRefs {
		var r Ref
		copy(r.ID[:], p.Bytes(len(r.ID)))
		r.Partition, r.Token = int(p.Number(uint64(partitions)-1)), int64(p.Number(math.MaxInt64))
		refs = append(refs, r)
	}
	if !p.Done() {
		return nil, fmt.Errorf("%w: bytes that name no holds, or more than %d, or partitions of another ring", errMalformed, MaxRefs)
	}
	return refs, nil
}

// Answers answers Renew and Release. A worker says of a hold Gone, Held, Elsewhere or Released. After Released the owner is
// asked again: it does not hold the key, or releases it.
type Answers struct {
	holder.Promise                 // for all that are renewed
	States         []holder.Answer // of each hold
}

// Append appends the answers to b.
func (a Answers) Append(b []byte) []byte {
	b = appendPromise(b, a.Promise)
	for _, s := range a.States {
		b = append(b, byte(s))
	}
	return b
}

// ParseAnswers parses what [Answers.Append] has made, for that many holds.
func ParseAnswers(b []byte, n int) (a Answers, err error) {
	p := packed.Reader{Rest: b}
	a.Cancel, a.Surrender = p.Duration(), p.Duration()
	for _, s := range p.Rest {
		a.States = append(a.States, holder.Answer(s))
		p.Bad = p.Bad || s > byte(holder.Released)
	}
	if p.Bad || len(a.States) != n {
		return Answers{}, fmt.Errorf("%w: bad states of %d holds", errMalformed, n)
	}
	return a, nil
}

// Occupancy says who has a key at its owner.
type Occupancy struct {
	Held    bool
	Lock    bool          // a hold has it; otherwise an execution, here or at a former owner
	Token   int64         // of the holder, 0 if unknown
	Shared  int           // number of shared holds; 0 for an exclusive one
	Label   string        // of the hold; if shared, of the one with the most left
	Left    time.Duration // of its lease
	Waiting int           // callers that wait for the key
}

// Refused is the error of a key that was not acquired: a sentence in place of what Why says.
type Refused struct {
	Why  error // one of package gateway's or locking's
	Key  string
	Text string // what the key is, such as "is held"
}

func (e *Refused) Error() string { return fmt.Sprintf("keyway: key %q %s", e.Key, e.Text) }

// Unwrap returns Why.
func (e *Refused) Unwrap() error { return e.Why }

// Append appends the occupancy to b.
func (o Occupancy) Append(b []byte) []byte {
	b = binary.AppendUvarint(append(b, flagByte(o.Held, o.Lock)), uint64(o.Token))
	b = appendDuration(b, o.Left)
	for _, n := range []int{o.Waiting, o.Shared} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return append(b, o.Label...)
}

// ParseOccupancy parses what [Occupancy.Append] has made.
func ParseOccupancy(b []byte) (o Occupancy, err error) {
	p := packed.Reader{Rest: b}
	readFlags(&p, &o.Held, &o.Lock)
	o.Token, o.Left = int64(p.Number(math.MaxInt64)), p.Duration()
	o.Waiting, o.Shared = int(p.Number(math.MaxInt32)), int(p.Number(math.MaxInt32))
	if o.Label = string(p.Rest); p.Bad || !IsLabel(o.Label) {
		return Occupancy{}, fmt.Errorf("%w: %d bytes do not say who has a key", errMalformed, len(b))
	}
	return o, nil
}

// Each calls f with all of a list at once, and returns the first error in the list's order.
func Each[E any](of []E, f func(i int, e E) error) error {
	errs := make([]error, len(of))
	var all sync.WaitGroup
	for i, e := range of {
		all.Go(func() { errs[i] = f(i, e) })
	}
	all.Wait()
	return cmp.Or(errs...)
}
