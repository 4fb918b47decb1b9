package spool

import "sync"

// Shares bounds what the spools of each client take of a pool. Make one with
// [Pool.Shares].
type Shares struct {
	pool  *Pool
	parts int64

	mu   sync.Mutex // guards used
	used map[charge]int64
}

// charge is what a client takes of a resource.
type charge struct {
	client uint64
	of     Resource
}

// Shares lets each client take one of so many parts of what the pool has of each
// resource.
func (p *Pool) Shares(parts int64) *Shares {
	return &Shares{pool: p, parts: parts, used: make(map[charge]int64)}
}

// Take reports whether the client may take n more, and counts it if so.
func (s *Shares) Take(client uint64, r Resource, n int64) bool {
	c := charge{client, r}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[c]+n > max(s.pool.Bound(r)/s.parts, 1) {
		return false
	}
	s.used[c] += n
	return true
}

// Give says that n of what the client has taken is free.
func (s *Shares) Give(client uint64, r Resource, n int64) {
	c := charge{client, r}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[c] -= n; s.used[c] == 0 {
		delete(s.used, c)
	}
}

// Account returns the account of a client; nil for 0, which is none and has no share.
func (s *Shares) Account(client uint64) Account {
	if client == 0 {
		return nil
	}
	return share{s, client}
}

// share is a client's part. It implements [Account].
type share struct {
	*Shares
	client uint64
}

func (s share) Take(r Resource, n int64) bool { return s.Shares.Take(s.client, r, n) }
func (s share) Give(r Resource, n int64)      { s.Shares.Give(s.client, r, n) }
