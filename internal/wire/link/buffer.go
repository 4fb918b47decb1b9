package link

import "sync"

// pool is the one of all connections.
var pool bufferPool

// bufferPool lends byte buffers of a few sizes.
type bufferPool struct {
	classes [4]sync.Pool // of *buffer with a capacity of minBuffer << 2i
}

const (
	minBuffer = 1 << 10
	maxBuffer = minBuffer << 6 // 64 KiB
)

// buffer holds bytes; a pointer to it travels through a sync.Pool without
// allocation.
type buffer struct {
	b []byte
}

// get lends an empty buffer with room for n bytes, or for maxBuffer if n is
// more.
func (p *bufferPool) get(n int) *buffer {
	size, i := minBuffer, 0
	for size < n && size < maxBuffer {
		size <<= 2
		i++
	}
	if b, ok := p.classes[i].Get().(*buffer); ok {
		b.b = b.b[:0]
		return b
	}
	return &buffer{b: make([]byte, 0, size)}
}

// put returns b to the pool of its size. A buffer that grew to a size without a pool is dropped.
func (p *bufferPool) put(b *buffer) {
	if b == nil {
		return
	}
	for i, size := 0, minBuffer; size <= maxBuffer; i, size = i+1, size<<2 {
		if cap(b.b) == size {
			p.classes[i].Put(b)
			return
		}
	}
}
