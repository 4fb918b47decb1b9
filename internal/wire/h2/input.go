package h2

import "sync"

// inSize is how much is read at once. The longest frame fits twice.
const inSize = 40 << 10

var inPool = sync.Pool{New: func() any { return new([inSize]byte) }}

// input holds bytes that were read and not yet parsed.
type input struct {
	in   []byte // of inPool; nil while nothing has come
	r, w int    // the bytes are in[r:w]
	part []byte // they are here while in is nil
}

func (p *input) have() int {
	if p.in == nil {
		return len(p.part)
	}
	return p.w - p.r
}

// keep appends b to the bytes read before.
func (p *input) keep(b []byte) {
	p.borrow()
	if p.w+len(b) > len(p.in) {
		grown := make([]byte, p.w+len(b)+inSize)
		copy(grown, p.in[:p.w])
		p.in = grown
	}
	p.w += copy(p.in[p.w:], b)
}

// borrow sees that there is a buffer, with room behind in[:w].
func (p *input) borrow() {
	if p.in == nil {
		p.in = inPool.Get().(*[inSize]byte)[:]
		p.r, p.w = 0, copy(p.in, p.part)
		p.part = nil
	}
	if p.r > 0 && len(p.in)-p.w < inSize/2 {
		p.w = copy(p.in, p.in[p.r:p.w])
		p.r = 0
	}
}

// lend gives the buffer back, and keeps what is in it.
func (p *input) lend() {
	if p.in == nil {
		return
	}
	if p.w > p.r {
		p.part = append([]byte(nil), p.in[p.r:p.w]...)
	}
	if len(p.in) == inSize {
		inPool.Put((*[inSize]byte)(p.in))
	}
	p.in, p.r, p.w = nil, 0, 0
}

// fill reads more.
func (c *Conn) fill() error {
	c.await()
	defer func() { c.heard.Store(c.tick.Load()) }()
	if c.sock != nil {
		n, err := c.sock.Fill()
		c.w += n
		return err
	}
	n, err := c.nc.Read(c.room())
	if c.w += n; n > 0 {
		return nil
	}
	return err
}

// room sees that there is a buffer, and returns the room in it.
func (p *input) room() []byte {
	p.borrow()
	return p.in[p.w:]
}
