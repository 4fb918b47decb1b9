package keytable

// SetRemote marks the execution that holds key with token as one of another process, which may hold
// it for long: Slow leaves it out, and Close marks it in its list. It reports whether a Close has
// listed the execution before, without the mark. SetRemote panics if no execution holds key with
// that token.
func (t *Table) SetRemote(key string, token int64) (listed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.heldLocked("SetRemote", key, token)
	e.remote = e.remote || !e.listed
	return e.listed
}

// Install makes a remote execution hold its key in this table that held it in another one, with
// its token from there, until Unlock. The key is granted to no other caller meanwhile. To
// install it before any caller can be granted the key, call Install while the table is closed, and
// then [Table.Open] with higher tokens.
//
// An execution that a Close has listed may still hold such a key here, with a lower token: it was
// given up, or else the key would not have been granted elsewhere. Then the key is granted only
// after both have left it. Executions that share a key are installed one by one, along with others
// of the same token; callers can join them after [Table.Share]. In all other cases of a held key,
// Install reports false.
func (t *Table) Install(key string, token int64, shared bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, one := t.keys.need(key), hold{token: token, remote: true, listed: shared}
	if shared {
		one.sharers = 1
	}
	switch {
	case e.token == 0:
		e.hold = one
	case shared && e.token == token && e.sharers > 0:
		e.sharers++
	case shared && e.heir != nil && e.heir.token == token && e.heir.sharers > 0:
		e.heir.sharers++
	case e.listed && (!e.remote || e.sharers > 0) && e.token < token && e.heir == nil:
		heir := one // which alone must live on
		e.heir = &heir
	default:
		return false
	}
	return true
}

// Share lets callers join the executions that have shared key with that token since before the
// table was closed or they were installed. The caller of Share must know that the key had no other
// holder since.
func (t *Table) Share(key string, token int64) {
	t.mu.Lock()
	defer t.unlock()
	e := t.keys.find(key)
	switch {
	case e == nil:
	case e.sharers > 0 && e.token == token:
		e.listed = false
		t.admitLocked(e)
	case e.heir != nil && e.heir.sharers > 0 && e.heir.token == token:
		e.heir.listed = false
	}
}
