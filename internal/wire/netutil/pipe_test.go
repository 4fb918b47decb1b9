package netutil_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// What is written is read in order, also behind a close, and a writer waits while the other end
// does not read.
func TestPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := netutil.Pipe()
		body := bytes.Repeat([]byte("0123456789abcdef"), 20<<10)
		wrote := make(chan error, 1)
		go func() {
			_, err := near.Write(body)
			wrote <- errors.Join(err, netutil.CloseWrite(near))
		}()
		synctest.Wait()
		select {
		case err := <-wrote:
			t.Errorf("nobody reads, and all of it was written: %v", err)
		default:
		}
		if got, err := io.ReadAll(far); !bytes.Equal(got, body) || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if err := <-wrote; err != nil {
			t.Error(err)
		}
		if _, err := near.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write after CloseWrite: %v", err)
		}
		if _, err := far.Write([]byte("answer")); err != nil {
			t.Error(err)
		}
		far.Close()
		if got, err := io.ReadAll(near); string(got) != "answer" || err != nil {
			t.Errorf("behind a close: %q, %v", got, err)
		}
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read after Close: %v", err)
		}
		if netutil.OnOneMachine(near) {
			t.Error("a pipe passes for sockets, which a kernel reports on")
		}
	})
}

// A close of one end, and a deadline, wake who waits.
func TestPipeWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := netutil.Pipe()
		full := bytes.Repeat([]byte("x"), 1<<20)
		errs := make(chan error, 1)
		for name, test := range map[string]struct {
			wait func() (int, error)
			wake func() error
			want error
		}{
			"read, deadline":            {func() (int, error) { return near.Read(full) }, func() error { return near.SetReadDeadline(time.Now().Add(time.Second)) }, os.ErrDeadlineExceeded},
			"read, past deadline":       {func() (int, error) { return near.Read(full) }, func() error { return near.SetDeadline(netutil.Past) }, os.ErrDeadlineExceeded},
			"write, deadline":           {func() (int, error) { return near.Write(full) }, func() error { return near.SetWriteDeadline(time.Now().Add(time.Second)) }, os.ErrDeadlineExceeded},
			"read, the end is closed":   {func() (int, error) { return near.Read(full) }, func() error { return near.Close() }, net.ErrClosed},
			"read, the other is closed": {func() (int, error) { return near.Read(full) }, func() error { return far.Close() }, io.EOF},
			"write, it is closed":       {func() (int, error) { return near.Write(full) }, func() error { return near.Close() }, net.ErrClosed},
			"write, other is closed":    {func() (int, error) { return near.Write(full) }, func() error { return far.Close() }, io.ErrClosedPipe},
		} {
			near, far = netutil.Pipe()
			go func() {
				_, err := test.wait()
				errs <- err
			}()
			synctest.Wait()
			if err := test.wake(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := <-errs; !errors.Is(err, test.want) {
				t.Errorf("%s: %v, want %v", name, err, test.want)
			}
			near.Close()
			far.Close()
		}
		near, far = netutil.Pipe()
		near.SetDeadline(netutil.Past)
		near.SetDeadline(time.Time{})
		go far.Write([]byte("x"))
		if n, err := near.Read(full); n != 1 || err != nil {
			t.Errorf("a deadline that was lifted: %d, %v", n, err)
		}
	})
}
