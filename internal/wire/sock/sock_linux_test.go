package sock_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/wire/sock"
)

// pair returns both ends of a connection; the first one's descriptor stays open
// for the test.
func pair(t *testing.T) (fd uintptr, near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); a.Close() })
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(f uintptr) { fd = f }); err != nil {
		t.Fatal(err)
	}
	return fd, c.(*net.TCPConn), a.(*net.TCPConn)
}

// await waits until near has something to read, or its end.
func await(t *testing.T, near *net.TCPConn, fd uintptr) sock.State {
	t.Helper()
	raw, err := near.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var s sock.State
	if err := raw.Read(func(uintptr) bool { s = sock.Look(fd); return s != sock.Silent }); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestReadWriteLook(t *testing.T) {
	fd, near, far := pair(t)
	buf := make([]byte, 100)
	if n, err := sock.Read(fd, buf); n != 0 || err != syscall.EAGAIN || sock.Look(fd) != sock.Silent {
		t.Errorf("nothing has come: %d, %v, %v", n, err, sock.Look(fd))
	}
	if n, err := sock.Write(fd, []byte("ping")); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := far.Read(buf); string(buf[:n]) != "ping" || err != nil {
		t.Errorf("%q, %v", buf[:n], err)
	}
	far.Write([]byte("pong"))
	if s := await(t, near, fd); s != sock.Pending {
		t.Errorf("%v with something to read", s)
	}
	if n, err := sock.Read(fd, buf); string(buf[:n]) != "pong" || err != nil {
		t.Errorf("%q, %v", buf[:n], err)
	}
	far.Close()
	if s := await(t, near, fd); s != sock.Ended {
		t.Errorf("%v at the end", s)
	}
	if n, err := sock.Read(fd, buf); n != 0 || err != nil {
		t.Errorf("at the end: %d, %v", n, err)
	}
}

func TestWriteToAFullSocket(t *testing.T) {
	fd, _, _ := pair(t)
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for {
		n, err := sock.Write(fd, chunk)
		if err == syscall.EAGAIN {
			if n != 0 {
				t.Errorf("%d bytes with %v", n, err)
			}
			return
		}
		if err != nil || n <= 0 {
			t.Fatalf("%d, %v", n, err)
		}
	}
}

func TestReset(t *testing.T) {
	fd, near, far := pair(t)
	far.SetLinger(0)
	far.Close()
	if s := await(t, near, fd); s != sock.Ended {
		t.Errorf("%v after a reset", s)
	}
	if n, err := sock.Write(fd, []byte("x")); n != 0 || err == nil {
		t.Errorf("%d, %v", n, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if s := sock.Look(r.Fd()); s != sock.Ended {
		t.Errorf("%v of what is no socket", s)
	}
}

func TestHungUp(t *testing.T) {
	fd, near, far := pair(t)
	if sock.HungUp(fd) {
		t.Error("of a connection that is there")
	}
	far.Write([]byte("unread"))
	await(t, near, fd)
	if sock.HungUp(fd) {
		t.Error("of one with something to read")
	}
	far.CloseWrite()
	for runtime.GOOS == "linux" && !sock.HungUp(fd) { // what follows the bytes may come later
		runtime.Gosched()
	}
	if n, err := io.ReadFull(near, make([]byte, 6)); err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if s := await(t, near, fd); s != sock.Ended || !sock.HungUp(fd) {
		t.Errorf("%v at the end", s)
	}
}

// TestWriteNow: what the socket does not take at once is left, also after a deadline and
// behind the end.
func TestWriteNow(t *testing.T) {
	_, near, far := pair(t)
	s := sock.Open(near, nil, nil)
	near.SetDeadline(time.Unix(1, 0))
	sent := 0
	for piece := bytes.Repeat([]byte("x"), 32<<10); ; {
		n := s.WriteNow(piece)
		if sent += n; n < len(piece) {
			break
		}
	}
	near.CloseWrite()
	if got, err := io.Copy(io.Discard, far); int(got) != sent || err != nil {
		t.Errorf("%d bytes came of %d, %v", got, sent, err)
	}
	near.Close()
	if n := s.WriteNow([]byte("x")); n != 0 {
		t.Errorf("a closed socket took %d bytes", n)
	}
}
