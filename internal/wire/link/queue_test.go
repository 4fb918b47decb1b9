package link

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
)

func push(q *queue, b byte) error {
	_, err := q.push([]byte{b}, nil, true)
	return err
}

// TestQueueBounds: bodies wait above the high-water mark and go on when the
// writer has taken what was queued; nothing is queued above the hard limit.
func TestQueueBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		if _, err := q.push(make([]byte, highWater), []byte{1}, true); err != nil {
			t.Fatal(err)
		}
		pushed := make(chan error, 1)
		go func() { pushed <- push(q, 2) }()
		synctest.Wait()
		select {
		case err := <-pushed:
			t.Fatalf("did not wait, %v", err)
		default:
		}
		if end, err := q.add([]byte{3}); end != highWater+2 || err != nil {
			t.Errorf("a head ended at %d, %v", end, err)
		}
		if _, err := q.add(make([]byte, hardLimit)); !errors.Is(err, ErrTooManyStreams) {
			t.Errorf("more than the limit: %v", err)
		}
		near, far := net.Pipe()
		done := make(chan struct{})
		written := make(chan error)
		go func() { written <- q.run(near, done) }()
		got := make([]byte, highWater+3)
		io.ReadFull(far, got)
		if err := <-pushed; err != nil {
			t.Error(err)
		}
		if tail := got[highWater:]; tail[0] != 1 || tail[1] != 3 || tail[2] != 2 {
			t.Errorf("came out as %v", tail)
		}
		synctest.Wait()
		if q.handed() != highWater+3 {
			t.Errorf("%d bytes handed over", q.handed())
		}
		q.close(ErrClosed)
		close(done)
		if err := <-written; err != nil {
			t.Error(err)
		}
		want(t, push(q, 4), ErrClosed)
	})
}

// TestQueueCloseWakes: whoever waits for room learns that there will be none.
func TestQueueCloseWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.push(make([]byte, highWater+1), nil, true)
		pushed := make(chan error)
		go func() { pushed <- push(q, 1) }()
		synctest.Wait()
		q.close(ErrStalled)
		want(t, <-pushed, ErrStalled)
	})
}

// TestOneWriteForMany: frames that are ready together go out together.
func TestOneWriteForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		near, far := net.Pipe()
		done := make(chan struct{})
		defer close(done)
		go q.run(near, done)
		for i := range 100 {
			q.add([]byte{byte(i)})
		}
		b := make([]byte, 1000)
		sum := 0
		for reads := 0; sum < 100; reads++ {
			n, err := far.Read(b)
			if err != nil || reads == 3 {
				t.Fatalf("%d bytes in %d reads, %v", sum, reads, err)
			}
			sum += n
		}
	})
}

// TestFlushWritesItself: who flushes writes what the kernel takes at once, before what
// is queued meanwhile; the writer writes the rest.
func TestFlushWritesItself(t *testing.T) {
	for _, tc := range []struct {
		name   string
		at     int // bytes that are taken at once
		writer bool
	}{{"all", 3, false}, {"some", 2, true}, {"none", 0, true}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue()
				near, far := net.Pipe()
				done := make(chan struct{})
				defer close(done)
				var got []byte
				q.now = func(b []byte) int {
					if _, err := q.add([]byte{4}); err != nil {
						t.Error(err)
					}
					n := min(tc.at, len(b))
					got = append(got, b[:n]...)
					return n
				}
				if tc.writer {
					go q.run(near, done)
				}
				end, err := q.stage([]byte{1, 2, 3})
				if end != 3 || err != nil {
					t.Fatalf("staged up to %d, %v", end, err)
				}
				flushed := make(chan error, 1)
				go func() { flushed <- q.flush(t.Context(), end) }()
				rest := make([]byte, 4-tc.at)
				if tc.writer {
					io.ReadFull(far, rest)
					got = append(got, rest...)
				}
				if err := <-flushed; err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if want := []byte{1, 2, 3, 4}[:len(got)]; len(got) < 3 || !bytes.Equal(got, want) || q.handed() != int64(len(got)) {
					t.Errorf("%v came out, %d bytes handed over", got, q.handed())
				}
			})
		})
	}
}

// TestFlushLeavesAWriteAlone: while the writer writes, nobody else does.
func TestFlushLeavesAWriteAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.now = func([]byte) int { t.Error("two write"); return 0 }
		near, far := net.Pipe()
		done := make(chan struct{})
		defer close(done)
		go q.run(near, done)
		q.add([]byte{1})
		synctest.Wait()
		end, _ := q.stage([]byte{2})
		flushed := make(chan error, 1)
		go func() { flushed <- q.flush(t.Context(), end) }()
		synctest.Wait()
		got := make([]byte, 2)
		io.ReadFull(far, got)
		if err := <-flushed; err != nil || !bytes.Equal(got, []byte{1, 2}) {
			t.Errorf("%v, %v", got, err)
		}
	})
}
