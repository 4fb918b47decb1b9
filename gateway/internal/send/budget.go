package send

import (
	"sync"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway/internal/spool"
)

// bodyFloor is how much of each small body may be in memory without being counted.
const bodyFloor = 4 << 10

// Budget bounds the memory and the temporary files of all bodies, and of each client's.
// [hop.ClientID] identifies clients.
type Budget struct {
	spools *spool.Pool
	shares *spool.Shares
	memory atomic.Int64 // that is used
}

// Of returns a client's account.
func (b *Budget) Of(client uint64) Account { return Account{b, client} }

// InUse returns how many bytes are used.
func (b *Budget) InUse(r spool.Resource) int64 {
	if r == spool.Memory {
		return b.memory.Load()
	}
	return b.spools.InUse(r)
}

// Account is a client's part of a budget. It is a [spool.Account].
type Account struct {
	budget *Budget
	client uint64
}

// Take charges the client's share first, so that bytes refused to a client never count against the
// others.
func (a Account) Take(r spool.Resource, n int64) bool {
	if !a.budget.shares.Take(a.client, r, n) {
		return false
	}
	if r == spool.Memory && a.budget.memory.Add(n) > a.budget.spools.Bound(r) {
		a.Give(r, n)
		return false
	}
	return true
}

// Give returns what was taken.
func (a Account) Give(r spool.Resource, n int64) {
	a.budget.shares.Give(a.client, r, n)
	if r == spool.Memory {
		a.budget.memory.Add(-n)
	}
}

// Reservation is what a small body takes of a budget's memory. It implements
// [link.Memory] and [h2.Memory].
type Reservation struct {
	Account

	mu    sync.Mutex
	taken int64
	over  bool // nothing more may be taken
}

// Reserve reports whether the first n bytes of the body may be in memory.
func (r *Reservation) Reserve(n int) bool {
	if n <= bodyFloor {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	more := int64(n) - r.taken
	if r.over || more > 0 && !r.Take(spool.Memory, more) {
		return false
	}
	r.taken = max(r.taken, int64(n))
	return true
}

// Release returns the reserved bytes to the account.
func (r *Reservation) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken > 0 {
		r.Give(spool.Memory, r.taken)
		r.taken = 0
	}
}

// End is Release for a body that may still be read: nothing more of it is kept.
func (r *Reservation) End() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.Release()
}
