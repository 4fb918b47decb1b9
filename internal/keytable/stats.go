package keytable

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
