package remote

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/wire/packed"
)

// Locks travel as a text, the base64 of:
//
//   - a byte for the form;
//   - the number of ended ids, and for each the id, the number of its request, and the answer to a release;
//   - for each lock its id, the number of its request, its token, the rest of its lease, its lease and its flags.
//     Its key, its label and the address that asked for it follow, each after its length.
//
// Request numbers have eight bytes, answers have one. Other numbers are uvarints. Times are milliseconds, rounded up.
const form = 3

// endedSize is how many bytes an ended id has in a text, at most.
const endedSize = (len(ID{})+8+1)*4/3 + 1

// Flags of a lock in a text.
const (
	flagBlocks = 1 << iota // it only blocks its key
	flagShared
	flagWritten // the store keeps it
	allFlags
)

// size returns how many bytes a lock has in a text, at most.
func (l *Lock) size() int {
	const others = len(ID{}) + 8 + 3*binary.MaxVarintLen64 + 4*binary.MaxVarintLen16
	return (others + len(l.Key) + len(l.Label) + len(l.From)) * 4 / 3
}

var errText = errors.New("worker: malformed text of locks")

// encode returns the text of locks and of ended ids at now; "" if there are none. A lock that ends has nothing left of its
// lease.
func encode(list []*Lock, done memory, now time.Duration) string {
	if len(list) == 0 && len(done.order) == 0 {
		return ""
	}
	b := append(make([]byte, 0, 2+64*len(list)+25*len(done.order)), form)
	b = binary.AppendUvarint(b, uint64(len(done.order)))
	for _, e := range done.order {
		b = append(binary.BigEndian.AppendUint64(append(b, e.id[:]...), e.call), byte(done.was[e]))
	}
	for _, l := range list {
		b = binary.BigEndian.AppendUint64(append(b, l.ID[:]...), l.Call)
		b = binary.AppendUvarint(b, uint64(l.Token))
		left, flags := l.Left(now), uint64(0)
		switch l.state {
		case removing:
			left = 0
		case blocked, lost:
			flags = flagBlocks
		}
		if l.Shared {
			flags |= flagShared
		}
		if l.Written() {
			flags |= flagWritten
		}
		for _, d := range []time.Duration{left, l.Lease} {
			b = binary.AppendUvarint(b, uint64((d+time.Millisecond-1)/time.Millisecond))
		}
		b = binary.AppendUvarint(b, flags)
		for _, s := range []string{l.Key, l.Label, l.From} {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	return base64.RawStdEncoding.EncodeToString(b)
}

// decode returns the locks of a text; their expires is the rest of their leases. If ttl is not 0, a lock that the store
// does not keep has a lease of at most ttl.
func decode(text string, ttl time.Duration, valid func(key string) bool) (list []arrival, done memory, err error) {
	if text == "" {
		return nil, done, nil
	}
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(b) == 0 || b[0] != form {
		return nil, done, fmt.Errorf("%w: %d bytes of another form", errText, len(text))
	}
	d := packed.Reader{Rest: b[1:]}
	for range d.Number(maxEnded) {
		done.add(ended{readID(&d), d.Uint64()}, holder.Answer(d.Number(uint64(holder.Held))))
	}
	for len(d.Rest) > 0 {
		l := arrival{&Lock{ID: readID(&d), Call: d.Uint64()}, held}
		l.Token = int64(d.Number(math.MaxInt64))
		l.expires = time.Duration(d.Number(math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
		l.Lease = time.Duration(d.Number(math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
		flags := d.Number(allFlags - 1)
		if l.Shared = flags&flagShared != 0; flags&flagBlocks != 0 {
			l.as = blocked
		}
		if flags&flagWritten != 0 {
			l.stored = l.Lease
		}
		for _, s := range []*string{&l.Key, &l.Label, &l.From} {
			*s = d.Text()
		}
		tooLong := ttl > 0 && l.stored == 0 && max(l.expires, l.Lease) > ttl+time.Millisecond
		if l.Token <= 0 || l.Lease <= 0 || tooLong || !valid(l.Key) {
			d.Bad = true
			break
		}
		list = append(list, l)
	}
	if d.Bad {
		return nil, memory{}, fmt.Errorf("%w: lock %d of it", errText, len(list))
	}
	return list, done, nil
}

func readID(d *packed.Reader) (id ID) {
	copy(id[:], d.Bytes(len(id)))
	return id
}
