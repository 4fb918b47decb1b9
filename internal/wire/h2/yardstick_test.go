package h2

import (
	"io"
	"log"
	"net"
	"net/http"
	"testing"
)

// answering is an app that is told how many fields a request has, pseudo fields
// aside, and returns the body of its answer.
type answering func(fields int) []byte

const (
	attackedStreams = 8
	attackedHeader  = 64 << 10
)

// ours returns a client of this package's server.
func ours(t *testing.T, app answering, settings ...uint32) *client {
	t.Helper()
	s := Server{MaxStreams: attackedStreams, MaxHeaderBytes: attackedHeader, HeadTicks: 10, IdleTicks: 50, ClientTicks: 20}
	c := connect(t, &s, func(st *Stream) { st.Answer(200, nil, app(len(st.Fields)), true) })
	c.hello(settings...)
	return c
}

// yardstick returns a client of net/http's server with the same bounds.
func yardstick(t *testing.T, app answering, settings ...uint32) *client {
	t.Helper()
	s := http.Server{
		Protocols: new(http.Protocols), MaxHeaderBytes: attackedHeader, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: attackedStreams}, ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			fields := 0
			for _, values := range r.Header {
				fields += len(values)
			}
			rw.Write(app(fields))
		}),
	}
	s.Protocols.SetUnencryptedHTTP2(true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Close()
		<-done
	})
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	c := newClient(t, nc)
	c.hello(settings...)
	return c
}
