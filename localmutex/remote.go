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
// while the table is closed, and then [Table.Open] with higher tokens.
//
// An execution that a Close has listed may hold such a key here still, with a lower token: it was
// given up, or else nobody would have been granted the key elsewhere. The key is granted to nobody then before
// both have left it. Of any other key that is held already, Install returns the execution, which is not installed.
func (t *Table) Install(executions []Held) (refused []Held) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range executions {
		switch e := t.keys.need(h.Key); {
		case e.token == 0:
			e.token, e.remote = h.Token, true
		case e.listed && !e.remote && e.token < h.Token && t.heirs[h.Key] == heir{}:
			if t.heirs == nil {
				t.heirs = make(map[string]heir)
			}
			t.heirs[h.Key] = heir{token: h.Token}
		default:
			refused = append(refused, h)
		}
	}
	return refused
}

// heir is a remote execution that holds a key which another one has not left yet.
type heir struct {
	token  int64
	listed bool // by Close
}

// inheritLocked has the heir of an entry's key, if there is one, hold it alone.
func (t *Table) inheritLocked(e *entry) {
	if h, ok := t.heirs[e.key]; ok {
		e.token, e.listed, e.remote = h.token, h.listed, true
		t.disinheritLocked(e.key)
	}
}

func (t *Table) disinheritLocked(key string) {
	if delete(t.heirs, key); len(t.heirs) == 0 {
		t.heirs = nil
	}
}
