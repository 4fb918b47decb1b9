package worker

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
)

// Locks travel as a text: base64 of a byte for the form; how many releases are remembered, and of each the
// id and the request's number; and for each lock its id, that number, its token, what is left of its lease, its lease, its flags, and its key,
// its label and the address that asked for it, each with its length in front. Numbers are
// uvarints, times are milliseconds, rounded up.
const lockForm = 2

// releasedSize is how many bytes a release has in a text.
const releasedSize = (len(holds.ID{}) + 8) * 4 / 3

// Flags of a lock in a text.
const (
	flagBlocks = 1 << iota // it only blocks its key
	flagShared
	flagWritten // the store keeps it
	lockFlags
)

// size returns how many bytes a lock has in a text, at most.
func (l *lock) size() int {
	const others = len(holds.ID{}) + 8 + 3*binary.MaxVarintLen64 + 4*binary.MaxVarintLen16
	return (others + len(l.key) + len(l.label) + len(l.from)) * 4 / 3
}

var errLockText = errors.New("worker: malformed text of locks")

// lockText returns the text of locks, and of those that were released, at now, since the worker's start; "" for none. Of one
// that ends nothing is left.
func lockText(list []*lock, done []released, now time.Duration) string {
	if len(list) == 0 && len(done) == 0 {
		return ""
	}
	b := append(make([]byte, 0, 2+64*len(list)+24*len(done)), lockForm)
	b = binary.AppendUvarint(b, uint64(len(done)))
	for _, r := range done {
		b = binary.BigEndian.AppendUint64(append(b, r.id[:]...), r.call)
	}
	for _, l := range list {
		b = binary.BigEndian.AppendUint64(append(b, l.id[:]...), l.call)
		b = binary.AppendUvarint(b, uint64(l.token))
		left := l.expires - now
		if l.end != lockGranted {
			left = 0
		}
		for _, d := range []time.Duration{left, l.lease} {
			b = binary.AppendUvarint(b, uint64((max(d, 0)+time.Millisecond-1)/time.Millisecond))
		}
		b = binary.AppendUvarint(b, uint64(number(l.state != lockLive)*flagBlocks|number(l.shared)*flagShared|number(l.stored > 0)*flagWritten))
		for _, s := range []string{l.key, l.label, l.from} {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	return base64.RawStdEncoding.EncodeToString(b)
}

// parseLocks returns the locks of a text, with what was left of their leases as expires. The
// leases of those that the store does not keep are up to ttl, if that is not 0.
func parseLocks(text string, ttl time.Duration) (list []*lock, done []released, err error) {
	if text == "" {
		return nil, nil, nil
	}
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(b) == 0 || b[0] != lockForm {
		return nil, nil, fmt.Errorf("%w: %d bytes of another form", errLockText, len(text))
	}
	d := lockDecoder{rest: b[1:]}
	for range d.number(maxReleased) {
		done = append(done, released{holds.ID(d.bytes(len(holds.ID{}))), binary.BigEndian.Uint64(d.bytes(8))})
	}
	for len(d.rest) > 0 && !d.bad {
		l := &lock{id: holds.ID(d.bytes(len(holds.ID{}))), call: binary.BigEndian.Uint64(d.bytes(8))}
		l.token = int64(d.number(1<<63 - 1))
		l.expires = time.Duration(d.number(math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
		l.lease = time.Duration(d.number(math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
		flags := d.number(lockFlags - 1)
		if l.shared = flags&flagShared != 0; flags&flagBlocks != 0 {
			l.state = lockBlocks
		}
		if flags&flagWritten != 0 {
			l.stored = l.lease
		}
		for _, s := range []*string{&l.key, &l.label, &l.from} {
			*s = string(d.bytes(int(d.number(uint64(len(d.rest))))))
		}
		tooLong := ttl > 0 && l.stored == 0 && max(l.expires, l.lease) > ttl+time.Millisecond
		if l.token <= 0 || l.lease <= 0 || tooLong || gateway.CheckKey(l.key) != nil {
			d.bad = true
		}
		list = append(list, l)
	}
	if d.bad {
		return nil, nil, fmt.Errorf("%w: lock %d of it", errLockText, len(list))
	}
	return list, done, nil
}

// lockDecoder takes what a text consists of, until it is bad.
type lockDecoder struct {
	rest []byte
	bad  bool
}

// number takes a number that may be most.
func (d *lockDecoder) number(most uint64) uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || v > most {
		d.bad = true
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// bytes takes n bytes; zeros if there are fewer.
func (d *lockDecoder) bytes(n int) []byte {
	if len(d.rest) < n {
		d.bad = true
		return make([]byte, n)
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}
