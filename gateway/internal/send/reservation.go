package send

import (
	"sync"

	"github.com/keyway-go/keyway/gateway/internal/spool"
)

// Floor is how much of each small body or head may be in memory without being counted.
const Floor = 4 << 10

// Reservation is what a small body, or a head, takes of an account's memory. It implements
// [link.Memory] and [h2.Memory].
type Reservation struct {
	spool.Account

	mu    sync.Mutex
	taken int64
	over  bool // nothing more may be taken
}

// Reserve reports whether the first n bytes may be in memory.
func (r *Reservation) Reserve(n int) bool {
	if n <= Floor {
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
