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
	failed atomic.Pointer[error] // why sending has ended
	done   chan struct{}         // closed when it has
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
	go b.drain(b.spool.NewReader(), begin, send)
	return b
}

var drainBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// drain sends what comes, at the client's speed.
func (b *backlog) drain(r *spool.Reader, begin func() error, send func([]byte) error) {
	buf := drainBuffers.Get().(*[32 << 10]byte)
	defer drainBuffers.Put(buf)
	defer close(b.done)
	defer r.Close()
	if begin != nil {
		if err := begin(); err != nil {
			b.fail(err)
			return
		}
	}
	for {
		n, err := r.Read(buf[:])
		if n > 0 {
			if err := send(buf[:n]); err != nil {
				b.fail(err)
				return
			}
			b.sent.Add(int64(n))
		}
		if err != nil {
			if err != io.EOF {
				b.fail(err)
			}
			return
		}
	}
}

func (b *backlog) fail(err error) {
	b.failed.Store(&err)
	_ = b.spool.Close() // whose error would be of a file that is no more
}

func (b *backlog) error() error {
	if err := b.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (b *backlog) Write(p []byte) (int, error) {
	n, err := b.spool.Write(p)
	b.taken.Add(int64(n))
	if errors.Is(err, spool.ErrFull) {
		return n, nil
	}
	if failed := b.error(); failed != nil {
		return n, failed
	}
	return n, err
}

func (b *backlog) Idle() bool { return b.sent.Load() == b.taken.Load() }

func (b *backlog) End() error {
	b.spool.CloseWrite(nil)
	<-b.done
	_ = b.spool.Close() // nobody reads it any more
	return b.error()
}
