package localmutex

// SetRemote says that the execution that holds key with token is none of this
// process's, but somebody's elsewhere who may hold it for long: Slow does not tell of
// it, and what Close lists is marked. It reports whether a Close has listed the
// execution before, without the mark. SetRemote panics if no execution holds key with that token.
func (t *Table) SetRemote(key string, token int64) (listed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.heldLocked("SetRemote", key, token)
	e.remote = e.remote || !e.listed
	return e.listed
}

// Install has remote executions hold their keys in this table that have held them in
// another one, with the tokens that they have from there, until Unlock. Nobody is
// granted such a key any more: to install them before anybody can be, call Install
// while the table is closed, and then [Table.Open] with higher tokens. It returns those
// whose keys executions hold here already, which are not installed.
func (t *Table) Install(executions []Held) (refused []Held) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range executions {
		e := t.keys.need(h.Key)
		if e.token != 0 {
			refused = append(refused, h)
			continue
		}
		e.token, e.remote = h.Token, true
	}
	return refused
}
