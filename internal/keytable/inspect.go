package keytable

import "time"

// Exhausted reports whether the table is open and has no token left, and which
// was the last: callers wait for an Advance beyond that.
func (t *Table) Exhausted() (last int64, exhausted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.minted, !t.closed && t.exhaustedLocked()
}

// Queued returns how many callers wait for key.
func (t *Table) Queued(key string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.keys.find(key); e != nil {
		return int(e.waiters)
	}
	return 0
}

// Len returns how many keys are held, blocked or waited for.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.keys.len()
}

// KeyState is what a table knows of a key at one moment.
type KeyState struct {
	Token   int64 // of the execution that holds the key; 0 if none here does
	Blocked bool  // an execution elsewhere holds it
	Waiters int   // that wait
	Clients int   // for how many clients; a caller of none counts as one
	Longest int   // how many of one client wait

	Seen time.Duration // when [Table.Slow] found Token's execution first; 0 if it has not yet, or a former one is still there ([Table.Install])
}

// Inspect returns the state of a key.
func (t *Table) Inspect(key string) (s KeyState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.keys.find(key)
	if e == nil {
		return s
	}
	s.Token, s.Seen, s.Blocked, s.Waiters = e.token, e.seen, e.blocked, int(e.waiters)
	if e.heir != nil {
		s.Token, s.Seen = e.heir.token, 0
	}
	for first := e.first; first != nil; first = first.line.behind {
		s.Clients++
		s.Longest = max(s.Longest, first.line.len)
	}
	return s
}

// Stats says what a table has done and does.
type Stats struct {
	Granted int64 // executions that have got a key so far
	Held    int   // keys that executions hold
	Blocked int   // keys that executions elsewhere hold
}

// Stats returns the present counts. It takes time in proportion to the keys that are
// held, blocked or waited for.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Stats{Granted: t.minted - t.skipped}
	for e := range t.keys.all {
		if e.token != 0 {
			s.Held++
		}
		if e.blocked {
			s.Blocked++
		}
	}
	return s
}

// Slow is a key that one execution has held, or a caller has waited for, for long.
type Slow struct {
	Key     string
	Token   int64         // of the execution that holds the key; 0 if none here does
	Held    bool          // by that execution for so long; otherwise a caller has waited
	For     time.Duration // at least
	Waiters int           // that wait now
}

// Slow looks at all keys at now, by the caller's clock, which must not read 0. It returns at most limit keys that were held
// or waited for as long as long, and whether any key is busy. An execution counts from the first
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
