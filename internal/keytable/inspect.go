package keytable

import "time"

// KeyState is what a table knows of a key at one moment.
type KeyState struct {
	Token   int64 // of the execution that holds the key; 0 if none here does
	Former  int64 // of one that has not left the key yet though Token's has been installed ([Table.Install]); 0 for none
	Blocked bool  // an execution elsewhere holds it
	Waiters int   // that wait
	Clients int   // for how many clients; a caller of none counts as one
	Longest int   // how many of one client wait

	Seen time.Duration // when [Table.Slow] found Token's execution first; 0 if it has not yet, or if there is a Former
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
		s.Token, s.Seen, s.Former = e.heir.token, 0, e.token
	}
	for first := e.first; first != nil; first = first.line.behind {
		s.Clients++
		s.Longest = max(s.Longest, first.line.len)
	}
	return s
}
