package router

import (
	"sync"

	"github.com/keyway-go/keyway/gateway/internal/send"
)

// carrier interrupts what carries a request when its client leaves.
type carrier struct {
	mu      sync.Mutex // guards what follows
	carries send.Interruptible
	gone    bool // the client has left
}

func (c *carrier) Carry(e send.Interruptible) (watched bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.carries = e
	if e != nil && c.gone {
		e.Interrupt()
	}
	return true
}

// interrupt ends what is done for the client.
func (c *carrier) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	if c.carries != nil {
		c.carries.Interrupt()
	}
}
