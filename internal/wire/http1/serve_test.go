package http1

import (
	"bufio"
	"net"
	"net/http"
	"testing"
)

// serve lets a net/http server answer a request and returns the status.
func serve(t *testing.T, request []byte) int {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})}
	defer s.Close()
	ln := &oneConn{conn: make(chan net.Conn, 1), closed: make(chan struct{}), addr: near.LocalAddr()}
	ln.conn <- far
	go s.Serve(ln)
	go near.Write(request)
	resp, err := http.ReadResponse(bufio.NewReader(near), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// oneConn is a listener with one connection to give.
type oneConn struct {
	conn   chan net.Conn
	closed chan struct{}
	addr   net.Addr
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conn:
		return nc, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error {
	close(l.closed)
	return nil
}

func (l *oneConn) Addr() net.Addr { return l.addr }
