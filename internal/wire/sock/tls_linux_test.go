package sock_test

import (
	"crypto/tls"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/wire/sock"
)

// TestOpenTLS: a connection of TLS is read as a socket is. While nothing has come it holds no
// memory, and what has come is there after a deadline, also if it came before the handshake.
func TestOpenTLS(t *testing.T) {
	cert, key, _ := kit.Certificate(t)
	_, near, far := pair(t)
	client := tls.Client(far, kit.Untrusted())
	first := make([]byte, 1)
	go client.Handshake()
	if _, err := io.ReadFull(near, first); err != nil {
		t.Fatal(err)
	}
	server := tls.Server(sock.BelowTLS(near, first), &tls.Config{Certificates: []tls.Certificate{kit.Must(tls.LoadX509KeyPair(cert, key))}})
	if err := server.Handshake(); err != nil {
		t.Fatal(err)
	}
	buf, idle := make([]byte, 100), make(chan struct{}, 100)
	s := sock.Open(server, func() []byte { return buf }, func() { idle <- struct{}{} })
	fill := func(want string) {
		t.Helper()
		if n, err := s.Fill(); string(buf[:n]) != want || err != nil {
			t.Errorf("%q, %v; want %q", buf[:n], err, want)
		}
	}
	go func() {
		<-idle
		client.Write([]byte("ping"))
	}()
	fill("ping")
	server.SetReadDeadline(time.Unix(1, 0))
	if n, err := s.Fill(); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || s.FillNow() != 0 {
		t.Errorf("after the deadline: %d, %v", n, err)
	}
	client.Write([]byte("late"))
	n := 0
	for n == 0 {
		n = s.FillNow()
	}
	if string(buf[:n]) != "late" {
		t.Errorf("%q", buf[:n])
	}
	server.SetReadDeadline(time.Time{})
	if s.Write([]byte("answer")); s.HungUp() {
		t.Error("it has hung up")
	}
	if n, err := client.Read(buf); string(buf[:n]) != "answer" || err != nil {
		t.Errorf("%q, %v", buf[:n], err)
	}
	client.Write([]byte("last"))
	client.Close()
	fill("last")
	if n, err := s.Fill(); n != 0 || err != io.EOF || !s.HungUp() {
		t.Errorf("at the end: %d, %v, hung up %v", n, err, s.HungUp())
	}
}
