package netproxy

import (
	"net"
	"time"
)

// Bytes on their way in one direction of one connection: at most queued
// chunks of chunkSize, then the sender feels back-pressure.
const (
	chunkSize = 32 << 10
	queued    = 64
)

type chunk struct {
	data []byte
	due  time.Time
}

// forward copies one direction until either end closes, and then closes both.
func (p *Proxy) forward(c *pair, d Direction, from, to net.Conn) {
	chunks := make(chan chunk, queued)
	p.running.Go(func() {
		defer close(chunks)
		p.read(c, d, from, chunks)
	})
	defer c.close()
	for next := range chunks {
		if !p.deliver(c, d, to, next) {
			break
		}
	}
}

func (p *Proxy) read(c *pair, d Direction, from net.Conn, chunks chan<- chunk) {
	for {
		buf := make([]byte, chunkSize)
		n, err := from.Read(buf)
		if n > 0 {
			select {
			case chunks <- chunk{buf[:n], time.Now().Add(p.come(d, n).Delay)}:
			case <-c.gone.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// come counts n bytes that have come, and returns the present fault.
func (p *Proxy) come(d Direction, n int) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.came[d] += n
	return p.faults[d]
}

// deliver says whether the connection goes on.
func (p *Proxy) deliver(c *pair, d Direction, to net.Conn, next chunk) bool {
	for {
		cut, fault, changed := p.next(d)
		if cut {
			c.close()
			return false
		}
		early := time.Until(next.due)
		if !fault.Stall && early <= 0 {
			if fault.Drop {
				return true
			}
			_, err := to.Write(next.data)
			return err == nil
		}
		if !wait(c, fault.Stall, early, changed) {
			return false
		}
	}
}

// next is the state that bytes which are ready meet; it uses up a CutNext.
func (p *Proxy) next(d Direction) (cut bool, f Fault, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cut, p.cutNext[d] = p.cutNext[d], false
	return cut, p.faults[d], p.changed
}

// wait returns when the fault may have changed or the delay is over, and
// false when the connection is gone.
func wait(c *pair, stalled bool, delay time.Duration, changed <-chan struct{}) bool {
	var due <-chan time.Time
	if !stalled {
		due = time.After(delay)
	}
	select {
	case <-due:
		return true
	case <-changed:
		return true
	case <-c.gone.Done():
		return false
	}
}
