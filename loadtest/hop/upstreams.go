//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// instances is how many upstreams or workers there are.
const instances = 3

// Kinds of upstreams: how the workers behind a router answer, or what stands without one.
const (
	kindHTTP    = "http"    // no workers: an upstream for any proxy
	kindLink    = "link"    // over the link, without net/http
	kindHandler = "handler" // over the link, an http.Handler
	kindSecure  = "secure"  // as kindLink, over TLS
	kindPlain   = "plain"   // over HTTP/1.1, as kindHTTP does
	kindApp     = "app"     // no workers: an app as kindHTTP, on a Unix socket
)

// childConfig says what upstreams a process of this program is.
type childConfig struct {
	Kind      string
	Socket    string   // of kindApp
	Cluster   string   // that the upstreams are workers of
	Join      string   // gossip address of its router
	Redis     string   // host:port
	GossipKey [][]byte // one, or none
	Peers     gateway.PeerTLSConfig
}

// runUpstreams is all upstreams of one kind, in one process. They answer with as many bytes as the
// path asks for and do as little else as possible, so that the proxy is what a measurement shows.
func runUpstreams(ctx context.Context, args []string, stdout io.Writer) error {
	var cfg childConfig
	if err := json.Unmarshal([]byte(args[0]), &cfg); err != nil {
		return err
	}
	var listeners []net.Listener
	var addrs []string
	network, listen, n := "tcp", "127.0.0.1:0", instances
	if cfg.Kind == kindApp {
		network, listen, n = "unix", cfg.Socket, 1
	}
	for range n {
		l, err := net.Listen(network, listen)
		if err != nil {
			return err
		}
		listeners, addrs = append(listeners, l), append(addrs, l.Addr().String())
	}
	failed, started := make(chan error, n), make(chan error, n)
	all := new(answers)
	for i, l := range listeners {
		go func() {
			serve := func() error { return all.serve(l, nil) }
			var err error
			if cfg.Cluster != "" {
				serve, err = cfg.member(ctx, "w"+strconv.Itoa(i+1), l, all)
			}
			if started <- err; err == nil {
				failed <- serve()
			}
		}()
	}
	for range listeners {
		if err := <-started; err != nil {
			return err
		}
	}
	fmt.Fprintln(stdout, "ready", strings.Join(addrs, " "))
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// member starts a worker, and returns what makes it take requests at l.
func (cfg childConfig) member(ctx context.Context, name string, l net.Listener, all *answers) (serve func() error, err error) {
	node := keyway.Config{
		Name: name, Advertise: l.Addr().String(), Join: []string{cfg.Join}, Redis: "redis://" + cfg.Redis, NewCluster: true, GossipKeys: cfg.GossipKey,
		Settings: ring.Settings{Cluster: cfg.Cluster}, Logger: slog.New(slog.DiscardHandler),
	}
	if cfg.Peers != (gateway.PeerTLSConfig{}) {
		if node.PeerTLS, err = gateway.LoadPeerTLS(cfg.Peers); err != nil {
			return nil, err
		}
	}
	n, err := keyway.Start(ctx, node)
	if err != nil {
		return nil, err
	}
	worker := n.Local()
	switch cfg.Kind {
	case kindPlain:
		err = n.Members().Announce(func(self *ring.Member) { self.Link = false })
		return func() error { return all.serve(l, worker.Do) }, err
	case kindHandler:
		return func() error { return worker.NewServer(worker.Handler(all)).Serve(l) }, nil
	}
	return func() error { return worker.NewServer(linkHandler{all, worker.Do}).Serve(l) }, nil
}

// do works while a key is held.
type do = func(ctx context.Context, key string, fn func(gateway.Execution) error) error

// answers have as many bytes as their paths say: /100 has 100. The zero value is ready.
type answers struct{ made sync.Map } // *answer by path

type answer struct{ body, whole []byte } // whole has its head, too, as HTTP/1.1

// maxSize is the largest answer in bytes.
const maxSize = 16 << 20

var errSize = errors.New("the path is not a number of bytes")

func (a *answers) of(path string) (*answer, error) {
	if made, ok := a.made.Load(path); ok {
		return made.(*answer), nil
	}
	size, err := strconv.Atoi(strings.TrimPrefix(path, "/"))
	if err != nil || size < 0 || size > maxSize {
		return nil, fmt.Errorf("%w: %q", errSize, path)
	}
	made := &answer{body: bytes.Repeat([]byte("x"), size)}
	made.whole = append(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n", size), made.body...)
	a.made.Store(path, made)
	return made, nil
}

// serve answers HTTP/1.1 requests without bodies for ever, with their keys held unless hold is nil.
func (a *answers) serve(l net.Listener, hold do) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			for in := bufio.NewReader(conn); a.reply(in, conn, hold) == nil; {
			}
		}()
	}
}

// reply answers a request, and parses no more of it than that takes.
func (a *answers) reply(in *bufio.Reader, out io.Writer, hold do) error {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return err
	}
	_, rest, _ := bytes.Cut(line, []byte(" "))
	path, _, _ := bytes.Cut(rest, []byte(" "))
	made, err := a.of(string(path))
	if err != nil {
		return err
	}
	var key string
	for len(line) > len("\r\n") {
		if line, err = in.ReadSlice('\n'); err != nil {
			return err
		}
		if value, ok := bytes.CutPrefix(line, []byte("Keyway-Key: ")); ok && hold != nil {
			if key, err = url.PathUnescape(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
	}
	write := func(gateway.Execution) error {
		_, err := out.Write(made.whole)
		return err
	}
	if hold == nil {
		return write(gateway.Execution{})
	}
	if hold(context.Background(), key, write) != nil { // or the connection is broken, which shows next
		_, err = io.WriteString(out, "HTTP/1.1 503 Service Unavailable\r\nKeyway-Refused: unavailable\r\nContent-Length: 0\r\n\r\n")
	}
	return err
}

// ServeHTTP implements [http.Handler].
func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	made, err := a.of(r.URL.Path)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	h := w.Header()
	h["Content-Type"] = []string{"text/plain"}
	h["Content-Length"] = []string{strconv.Itoa(len(made.body))}
	_, _ = w.Write(made.body) // fails if the client has gone
}

// linkHandler answers what comes from routers over the link without net/http.
type linkHandler struct {
	answers *answers
	hold    do
}

// ServeHTTP implements [http.Handler], for what does not come over the link.
func (h linkHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }

// ServeLink implements [link.Handler].
func (h linkHandler) ServeLink(w *link.ResponseWriter, r *link.ServerRequest) {
	err := h.hold(r.Context(), r.Key, func(gateway.Execution) error {
		made, err := h.answers.of(r.Target)
		if err != nil {
			return w.WriteHead(http.StatusNotFound, 0, nil)
		}
		var fields [32]byte
		_ = w.WriteHead(http.StatusOK, int64(len(made.body)), link.AppendField(fields[:0], "Content-Type", "text/plain"))
		_, _ = w.Write(made.body) // fails if the router has gone
		return nil
	})
	if err != nil {
		_ = w.Refuse(&link.RefusedError{Reason: link.NotOwner}) // fails only if the connection does
	}
}
