package lock

import (
	"cmp"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/keyway-go/keyway/localmutex/locking"
)

// options are what the options of one call say, with the Locker's own in place
// of what they leave out.
func (l *Locker) options(opts []locking.Option) (locking.Options, error) {
	o, err := locking.Apply(opts)
	if err != nil {
		return o, err
	}
	if err := l.checkOptions(o); err != nil {
		return o, fmt.Errorf("%w: %w", locking.ErrOption, err)
	}
	o.TTL = cmp.Or(o.TTL.Truncate(time.Millisecond), l.cfg.TTL)
	o.Wait = cmp.Or(o.Wait, l.cfg.MaxWait)
	o.Label = cmp.Or(o.Label, l.cfg.Label)
	o.ReplicasWithin = cmp.Or(o.ReplicasWithin, l.cfg.Timeout)
	return o, nil
}

func (l *Locker) checkOptions(said locking.Options) error {
	switch {
	case said.Replicas > 0 && said.ReplicasWithin > 0 && said.ReplicasWithin < time.Millisecond:
		return fmt.Errorf("option Replicas within %v, want at least 1ms", said.ReplicasWithin)
	case said.Replicas > 0 && (l.node == nil || !l.node.replicates()):
		return errors.New("option Replicas is for one server or a cluster, not for a quorum or a ring")
	}
	return checkLabel(said.Label)
}

// lockLongestLabel is how long a label may be, in bytes.
const lockLongestLabel = 128

func checkLabel(label string) error {
	if len(label) > lockLongestLabel || !utf8.ValidString(label) {
		return fmt.Errorf("label %.*q, want UTF-8 of at most %d bytes", lockLongestLabel, label, lockLongestLabel)
	}
	return nil
}

// alike says whether a lock that was taken with some options, and has this TTL
// now, is what a caller with others wants.
func alike(want, taken locking.Options, ttl time.Duration) bool {
	return want.TTL == ttl && want.Label == taken.Label && want.Replicas <= taken.Replicas
}
