package answers

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway/internal/spool"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// backlog is the part of an answer that its client has not read. It keeps that part in a spool, so
// that the app need not wait, and sends it on. It implements [link.Overflow].
type backlog struct {
	spool  *spool.Spool
	taken  atomic.Int64
	sent   atomic.Int64
	done   chan struct{} // closed when sending has ended
	failed error         // why it has, nil for all was sent; set before
}

// answerShare is the part of what a worker has for answers that one client may use: a quarter.
const answerShare = 4

// Room is what a worker has for answers.
type Room struct {
	pool     *spool.Pool
	overflow func(client uint64, send func([]byte) error) link.Overflow // as a value
}

// New returns room for that many bytes of answers in memory and in files, and of one of them.
func New(memory, files, most int64) *Room {
	pool, _ := spool.NewPool(spool.Config{Memory: memory, Files: files, PerSpool: most, Shares: answerShare}) // fails only with a Dir
	k := &Room{pool: pool}
	k.overflow = func(client uint64, send func([]byte) error) link.Overflow { return k.backlog(client, nil, send) }
	return k
}

// InUse returns how many bytes are kept in a place.
func (k *Room) InUse(p spool.Resource) int64 { return k.pool.InUse(p) }

// Take lets the worker take the app's answer to a request over the link at the app's speed, until
// ctx ends.
func (k *Room) Take(ctx context.Context, rw *link.ResponseWriter) {
	rw.OverflowTo(ctx, k.overflow)
}

// backlog returns one for a client that is sent with send, after begin, which may be nil.
func (k *Room) backlog(client uint64, begin func() error, send func([]byte) error) *backlog {
	b := &backlog{spool: k.pool.Of(client).NewSpool(), done: make(chan struct{})}
	go func() {
		defer close(b.done)
		if b.failed = b.drain(begin, send); b.failed != nil {
			_ = b.spool.Close() // whose error would be of a file that is no more
		}
	}()
	return b
}

var drainBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// drain sends what comes, at the client's speed.
func (b *backlog) drain(begin func() error, send func([]byte) error) error {
	r := b.spool.NewReader()
	defer r.Close()
	buf := drainBuffers.Get().(*[32 << 10]byte)
	defer drainBuffers.Put(buf)
	if begin != nil {
		if err := begin(); err != nil {
			return err
		}
	}
	for {
		n, err := r.Read(buf[:])
		if n > 0 {
			if err := send(buf[:n]); err != nil {
				return err
			}
			b.sent.Add(int64(n))
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

func (b *backlog) Write(p []byte) (int, error) {
	n, err := b.spool.Write(p)
	b.taken.Add(int64(n))
	switch {
	case errors.Is(err, spool.ErrFull):
		return n, nil
	case errors.Is(err, spool.ErrClosed):
		<-b.done
		return n, b.failed
	}
	return n, err
}

func (b *backlog) Idle() bool { return b.sent.Load() == b.taken.Load() }

func (b *backlog) End() error {
	b.spool.CloseWrite(nil)
	<-b.done
	_ = b.spool.Close() // nobody reads it any more
	return b.failed
}
