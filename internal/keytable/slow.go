package keytable

// Mark is a moment in the life of a table, to be compared with later ones.
type Mark struct {
	token   int64 // the last one minted by then
	arrival int64 // how many callers had come to wait by then
}

// Slow is a key that one execution has held, or a caller has waited for, since before some moment.
type Slow struct {
	Key     string
	Token   int64 // of the execution that holds the key; 0 if none here does
	Held    bool  // since before the moment; otherwise a caller has waited since then
	Waiters int   // that wait now
}

// Slow returns the keys that have been held or waited for since before a moment, at most limit of
// them. It reports each execution once, unless it is remote ([Table.SetRemote]), and each key that
// is waited for once as long as it is busy. It also returns the present moment, and whether any key
// is busy.
func (t *Table) Slow(since Mark, limit int) (found []Slow, now Mark, busy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := range t.keys.all {
		held := e.token != 0 && !e.remote && e.token <= since.token && !e.slowHeld
		waited := e.first != nil && e.first.arrival <= since.arrival && !e.slowWait
		if held || waited {
			if len(found) == limit {
				break
			}
			found = append(found, Slow{e.key, e.token, held, int(e.waiters)})
		}
		e.slowHeld, e.slowWait = e.slowHeld || held, e.slowWait || waited
	}
	return found, Mark{t.minted, t.arrivals}, t.keys.len() > 0
}
