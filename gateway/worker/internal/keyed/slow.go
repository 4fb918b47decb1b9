package keyed

import (
	"time"

	"github.com/keyway-go/keyway/internal/placement"
)

const (
	slowSteps  = 4  // looks per Limits.SlowKey
	slowAtOnce = 16 // keys logged per look
)

// lookForSlow logs the keys that are held or waited for longer than Limits.SlowKey. It reports false if none is busy, so
// that looks end.
func (k *Keys) lookForSlow(now time.Duration) bool {
	busy, left := false, slowAtOnce
	for i := range k.Parts {
		found, some := k.Parts[i].Table.Slow(now, k.cfg.SlowKey, left)
		busy = busy || some
		left -= len(found)
		for _, f := range found {
			args := []any{"key", f.Key, "partition", i, "for", f.For, "waiting", f.Waiters, "holder", f.Token}
			switch {
			case f.Held && f.Key == placement.Lock: // the balancer's
			case f.Held:
				k.cfg.Log.Warn("a key is held for long: holder is the token of the execution that holds it", args...)
			case f.Token == 0:
				k.cfg.Log.Warn("callers wait long for a key: an execution at a former owner holds it", args...)
			default:
				k.cfg.Log.Warn("callers wait long for a key: many wait for it, or its executions are long", args...)
			}
		}
	}
	if busy {
		return true
	}
	// A key that is asked for from now on begins the looks again. A key that was asked for before
	// found them on, so it is held now and Running counts it.
	k.looks.Store(false)
	return k.Running() > 0 && k.looks.CompareAndSwap(false, true)
}
