package router

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/internal/wire/h2"
	"github.com/keyway-go/keyway/internal/wire/websocket"
)

// upgrade makes of a CONNECT for WebSocket (RFC 8441, section 5) the request that
// asks a server of HTTP/1.1 for it. It reports false, and has answered, if it is one
// for another protocol. Whether its route has WebSocket is for isRefused.
func (w *h2Writer) upgrade(r *http.Request) bool {
	target, err := url.ParseRequestURI(w.stream.Path)
	if err != nil {
		w.stream.Reset(h2.ProtocolError)
		return false
	}
	maps.Copy(r.Header, http.Header{"Connection": {"Upgrade"}, "Upgrade": {w.stream.Protocol}})
	if w.stream.Protocol != "websocket" {
		problem.Of(problem.Connect).ServeHTTP(w, r)
		return false
	}
	w.key = websocket.NewKey()
	r.Header["Sec-Websocket-Key"] = []string{w.key}
	r.Method, r.URL, r.RequestURI = http.MethodGet, target, w.stream.Path
	r.Body, r.ContentLength = http.NoBody, 0
	return true
}

// isRefused reports whether w's request, which asks for WebSocket, has a route without it. The
// request then cannot continue as an ordinary one.
func (w *h2Writer) isRefused(r *http.Request, rules *fields.Rules) bool {
	return w.key != "" && rules.Upgrade(r.Header) == ""
}

// checkSwitch returns an error if res does not fit a client that asked for WebSocket over HTTP/2.
// For such a client a status 200 would mean that the protocol was switched.
func (w *h2Writer) checkSwitch(res *http.Response) error {
	switch {
	case w.key == "":
		return nil
	case res.StatusCode == http.StatusSwitchingProtocols && res.Header.Get("Sec-Websocket-Accept") == websocket.Accept(w.key):
		return nil
	case res.StatusCode >= 300:
		return nil
	}
	return fmt.Errorf("router: the app did not change to WebSocket: status %d", res.StatusCode)
}

// Hijack implements [http.Hijacker], for a stream that switches to WebSocket. The answer's head is
// sent when the caller writes one of HTTP/1.1.
func (w *h2Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.key == "" {
		return nil, nil, http.ErrNotSupported
	}
	w.hijacked = true
	w.stream.Wait()
	conn := &h2Tunnel{w.conn.nc, w.stream}
	return conn, bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(&tunnelHead{w: w})), nil
}

// tunnelHead takes the head of an HTTP/1.1 answer and sends one of HTTP/2 instead.
type tunnelHead struct {
	w    *h2Writer
	sent bool
}

func (t *tunnelHead) Write(p []byte) (int, error) {
	if t.sent {
		return len(p), nil
	}
	t.sent = true
	for name, values := range t.w.Header() {
		if name == "Sec-Websocket-Accept" || name == "Content-Length" {
			continue
		}
		for _, value := range values {
			if value, ok := fields.ToClient(name, value); ok {
				t.w.AddField(name, value)
			}
		}
	}
	if !t.w.dated {
		t.w.AddField("Date", t.w.conn.server.dateText())
	}
	return len(p), t.w.stream.Answer(http.StatusOK, t.w.fields, nil, false)
}

// h2Tunnel is a stream on which another protocol is spoken. It implements [net.Conn] without
// deadlines, and has the addresses of the client's connection.
type h2Tunnel struct {
	net.Conn
	stream *h2.Stream
}

func (t *h2Tunnel) Read(p []byte) (int, error) { return t.stream.Read(p) }

func (t *h2Tunnel) Write(p []byte) (int, error) {
	if err := t.stream.Write(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite ends this side of the stream.
func (t *h2Tunnel) CloseWrite() error { return t.stream.Write(nil, true) }

// Close resets a stream that has not ended.
func (t *h2Tunnel) Close() error {
	t.stream.Reset(h2.Cancel)
	t.stream.Interrupt(true)
	return nil
}

func (t *h2Tunnel) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (t *h2Tunnel) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (t *h2Tunnel) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }
