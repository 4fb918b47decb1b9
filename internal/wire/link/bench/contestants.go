package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/hashicorp/yamux"
	"github.com/keyway-go/keyway/internal/wire/link"
	"storj.io/drpc"
	"storj.io/drpc/drpcconn"
	"storj.io/drpc/drpcmux"
	"storj.io/drpc/drpcserver"
)

func contestants() []contestant {
	return []contestant{
		{"link", startLink(link.HandlerFunc(answerLink), nil)},
		{"link to http.Handler", startLink(link.HTTPHandler(http.HandlerFunc(answerHTTP)), nil)},
		{"link, TLS", startLink(link.HandlerFunc(answerLink), selfSigned())},
		{"drpc", startDRPC},
		{"yamux, a stream per request", startYamux},
		{"net/http HTTP/1.1, pooled", startHTTP(false)},
		{"net/http HTTP/2 without TLS", startHTTP(true)},
	}
}

// fields is what a browser's request for an API carries, roughly.
var fields = [][2]string{
	{"Accept", "*/*"},
	{"User-Agent", "bench/1.0 (linux; amd64)"},
	{"X-Request-Id", "0af7651916cd43dd8448eb211c80319c"},
	{"X-Forwarded-For", "192.0.2.17"},
}

var answer = []byte(strings.Repeat("x", size))

func answerLink(w *link.ResponseWriter, r *link.ServerRequest) {
	var buf [64]byte
	w.WriteHead(200, size, link.AppendField(buf[:0], "Content-Type", "text/plain"))
	w.Write(answer)
}

func answerHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	w.Write(answer)
}

func selfSigned() *tls.Config {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	return s.TLS
}

// listen opens a listener on a free port.
func listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

func startLink(h link.Handler, cert *tls.Config) starter {
	return func() (func() error, func(), error) {
		ln, err := listen()
		if err != nil {
			return nil, nil, err
		}
		s, c := &link.Server{Handler: h}, &link.Client{Addr: ln.Addr().String()}
		if cert != nil {
			ln = tls.NewListener(ln, &tls.Config{Certificates: cert.Certificates, NextProtos: []string{link.ALPN}})
			c.TLS = &tls.Config{InsecureSkipVerify: true}
		}
		go s.Serve(ln)
		do := func() error {
			var buf [256]byte
			f := link.Fields(buf[:0])
			for _, kv := range fields {
				f = link.AppendField(f, kv[0], kv[1])
			}
			resp, err := c.Do(context.Background(), &link.Request{Method: "GET", Target: "/orders?id=4711", Host: "orders.example", Key: "4711", Epoch: 7, Fields: f})
			if err != nil {
				return err
			}
			return drain(resp.Body)
		}
		return do, func() { c.Close(); s.Close() }, nil
	}
}

func startHTTP(h2 bool) starter {
	return func() (func() error, func(), error) {
		s := httptest.NewUnstartedServer(http.HandlerFunc(answerHTTP))
		t := &http.Transport{MaxIdleConnsPerHost: 1 << 10, DisableCompression: true}
		if h2 {
			var p http.Protocols
			p.SetUnencryptedHTTP2(true)
			s.Config.Protocols, t.Protocols = &p, &p
			s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 4096}
		}
		s.Start()
		do := func() error {
			req, err := http.NewRequest("GET", s.URL+"/orders?id=4711", nil)
			if err != nil {
				return err
			}
			for _, kv := range fields {
				req.Header.Set(kv[0], kv[1])
			}
			resp, err := t.RoundTrip(req)
			if err != nil {
				return err
			}
			return drain(resp.Body)
		}
		return do, func() { t.CloseIdleConnections(); s.Close() }, nil
	}
}

// drain reads an answer's body.
func drain(body io.ReadCloser) error {
	defer body.Close()
	n, err := io.Copy(io.Discard, body)
	return check(int(n), err)
}

func check(n int, err error) error {
	if err == nil && n != size {
		return fmt.Errorf("%d bytes, want %d", n, size)
	}
	return err
}

// head is a request as a minimal encoding on top of streams would carry it.
func head() []byte {
	b := []byte("GET /orders?id=4711 orders.example 4711 7\n")
	for _, kv := range fields {
		b = fmt.Appendf(b, "%s:%s\n", kv[0], kv[1])
	}
	return b
}

func sized(p []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...)
}

func readSized(r io.Reader) ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	p := make([]byte, binary.BigEndian.Uint32(n[:]))
	_, err := io.ReadFull(r, p)
	return p, err
}

func startYamux() (func() error, func(), error) {
	ln, err := listen()
	if err != nil {
		return nil, nil, err
	}
	cfg := yamux.DefaultConfig()
	cfg.AcceptBacklog = 4096
	cfg.LogOutput = io.Discard
	serve := func() error {
		nc, err := ln.Accept()
		if err != nil {
			return err
		}
		s, err := yamux.Server(nc, cfg)
		if err != nil {
			return err
		}
		for {
			st, err := s.AcceptStream()
			if err != nil {
				return err
			}
			go func() {
				defer st.Close()
				if _, err := readSized(st); err == nil {
					st.Write(sized(answer))
				}
			}()
		}
	}
	go serve()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	c, err := yamux.Client(nc, cfg)
	if err != nil {
		return nil, nil, err
	}
	request := sized(head())
	do := func() error {
		st, err := c.OpenStream()
		if err != nil {
			return err
		}
		defer st.Close()
		if _, err := st.Write(request); err != nil {
			return err
		}
		p, err := readSized(st)
		return check(len(p), err)
	}
	return do, func() { c.Close(); ln.Close() }, nil
}

// raw is drpc's encoding of byte slices.
type raw struct{}

func (raw) Marshal(m drpc.Message) ([]byte, error) { return *m.(*[]byte), nil }

func (raw) Unmarshal(b []byte, m drpc.Message) error {
	*m.(*[]byte) = append([]byte(nil), b...)
	return nil
}

// service is a drpc service with one method.
type service struct{}

func (service) NumMethods() int { return 1 }

func (service) Method(n int) (string, drpc.Encoding, drpc.Receiver, any, bool) {
	call := func(srv any, ctx context.Context, in1, in2 any) (drpc.Message, error) { return &answer, nil }
	return "/do", raw{}, call, func(*service, context.Context, *[]byte) (*[]byte, error) { return nil, nil }, n == 0
}

// startDRPC: a drpc connection carries one call at a time, so there is a
// connection for each of the callers, as its own pool would have.
func startDRPC() (func() error, func(), error) {
	mux := drpcmux.New()
	if err := mux.Register(new(service), service{}); err != nil {
		return nil, nil, err
	}
	ln, err := listen()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go drpcserver.New(mux).Serve(ctx, ln)
	idle := make(chan *drpcconn.Conn, 1<<10)
	request := head()
	do := func() error {
		var c *drpcconn.Conn
		select {
		case c = <-idle:
		default:
			nc, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				return err
			}
			c = drpcconn.New(nc)
		}
		var got []byte
		err := c.Invoke(ctx, "/do", raw{}, &request, &got)
		idle <- c
		return check(len(got), err)
	}
	stop := func() {
		for len(idle) > 0 {
			(<-idle).Close()
		}
		cancel()
	}
	return do, stop, nil
}
