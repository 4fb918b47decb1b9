package link

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
)

// TestQueueBounds: bodies wait above the high-water mark and go on when the
// writer has taken what was queued; nothing is queued above the hard limit.
func TestQueueBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		if err := q.push(make([]byte, highWater), []byte{1}); err != nil {
			t.Fatal(err)
		}
		pushed := make(chan error, 1)
		go func() { pushed <- q.push([]byte{2}, nil) }()
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
		want(t, q.push([]byte{4}, nil), ErrClosed)
	})
}

// TestQueueCloseWakes: whoever waits for room learns that there will be none.
func TestQueueCloseWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.push(make([]byte, highWater+1), nil)
		pushed := make(chan error)
		go func() { pushed <- q.push([]byte{1}, nil) }()
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
