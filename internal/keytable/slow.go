package keytable

import "time"

// Slow is a key that one execution has held, or a caller has waited for, for long.
type Slow struct {
	Key     string
	Token   int64         // of the execution that holds the key; 0 if none here does
	Held    bool          // by that execution for so long; otherwise a caller has waited
	For     time.Duration // at least
	Waiters int           // that wait now
}

// Slow looks at all keys at now, by the caller's clock, which must not read 0. It returns those that were held or waited for
// as long as long, at most limit of them, and whether any key is busy. An execution counts from the first
// look that finds it, a waiting caller from its [Wait.Came]. Slow reports each execution once, unless it is remote
// ([Table.SetRemote]), and each key that is waited for once as long as it is busy.
func (t *Table) Slow(now, long time.Duration, limit int) (found []Slow, busy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := range t.keys.all {
		if e.token != 0 && e.seen == 0 {
			e.seen = now
		}
		held := e.token != 0 && !e.remote && !e.slowHeld && now-e.seen >= long
		waited := e.first != nil && !e.slowWait && now-e.first.came >= long
		if !held && !waited || len(found) == limit {
			continue
		}
		e.slowHeld, e.slowWait = e.slowHeld || held, e.slowWait || waited
		since := e.seen
		if !held {
			since = e.first.came
		}
		found = append(found, Slow{e.key, e.token, held, now - since, int(e.waiters)})
	}
	return found, t.keys.len() > 0
}
