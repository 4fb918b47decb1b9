package spool

// Account is what a client takes of a pool.
type Account struct {
	pool   *Pool
	client uint64 // 0: no particular client; it has no share
}

// charge is what a client takes of a resource.
type charge struct {
	client uint64
	of     Resource
}

// Of returns a client's account. The one of client 0 is bounded by the pool alone.
func (p *Pool) Of(client uint64) Account { return Account{p, client} }

// NewSpool returns a spool, which the caller should close. Its use is charged to the account.
func (a Account) NewSpool() *Spool {
	s := &Spool{account: a}
	s.more.L = &s.mu
	return s
}

// Take reports whether n more may be taken, and charges it if so: the client's share first, so that
// bytes refused to a client never count against the others.
func (a Account) Take(r Resource, n int64) bool {
	p := a.pool
	if !a.takeShare(r, n) {
		return false
	}
	if p.used[r].Add(n) > p.bounds[r] {
		a.Give(r, n)
		return false
	}
	return true
}

func (a Account) takeShare(r Resource, n int64) bool {
	if a.client == 0 {
		return true
	}
	p, c := a.pool, charge{a.client, r}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clients[c]+n > max(p.bounds[r]/p.cfg.Shares, 1) {
		return false
	}
	p.clients[c] += n
	return true
}

// Give says that n of what was taken is free.
func (a Account) Give(r Resource, n int64) {
	p, c := a.pool, charge{a.client, r}
	p.used[r].Add(-n)
	if a.client == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clients[c] -= n; p.clients[c] == 0 {
		delete(p.clients, c)
	}
}
