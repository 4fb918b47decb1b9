package router

import (
	"context"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/keyway-go/keyway/internal/wire/h2"
	"github.com/keyway-go/keyway/internal/wire/httphandler"
)

func (c *h2Conn) request(s *h2.Stream) *http.Request {
	r := &http.Request{
		Method: s.Method, Host: s.Authority, RequestURI: s.Path, URL: &url.URL{Host: s.Authority},
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: h2Header(s.Fields), RemoteAddr: c.source.addr,
	}
	if s.Scheme == "https" {
		r.TLS = c.tls
	}
	return r.WithContext(context.WithValue(s.Context(), http.ServerContextKey, c.server.general)) // httputil.ReverseProxy aborts by it
}

func h2Header(list []h2.Field) http.Header {
	h := make(http.Header, len(list))
	for _, f := range list {
		name := http.CanonicalHeaderKey(f.Name)
		h[name] = append(h[name], f.Value)
	}
	return h
}

// serveHTTP answers a request as net/http's server would. read holds the bytes of its body read
// before.
func (c *h2Conn) serveHTTP(s *h2.Stream, read []byte) {
	r, body := c.request(s), s.Body
	if r.Method != http.MethodConnect {
		url, err := url.ParseRequestURI(s.Path)
		if err != nil {
			s.Reset(h2.ProtocolError)
			return
		}
		r.URL = url
	} else {
		r.RequestURI = s.Authority
	}
	r.ContentLength = s.ContentLength
	w := &h2Writer{stream: s, conn: c, ahead: read, expects: strings.EqualFold(r.Header.Get("Expect"), "100-continue")}
	r.Header.Del("Expect")
	w.Begin(w, r, body)
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler {
				c.server.router.log.Error("panic while serving", "client", c.source.addr, "panic", p, "stack", string(debug.Stack()))
			}
			s.Reset(h2.InternalError)
		}
	}()
	if s.Path == "*" {
		w.WriteHeader(http.StatusOK) // net/http's own answer
	} else {
		c.server.router.ServeHTTP(w, r)
	}
	w.Finish()
}

// h2Writer is an [http.ResponseWriter] and implements [httphandler.Stream]. The request's handler
// owns it.
type h2Writer struct {
	httphandler.Writer
	stream  *h2.Stream
	conn    *h2Conn
	ahead   []byte     // was read of the body before
	expects bool       // the client is to be told to send the body
	fields  []h2.Field // for what is sent next
	dated   bool       // there is a Date among them
}

// SetReadDeadline is for [http.ResponseController]. It knows only deadlines that
// have passed: waiting for the client is bounded by the server's clock.
func (w *h2Writer) SetReadDeadline(t time.Time) error {
	w.stream.Interrupt(!t.IsZero() && t.Before(time.Now()))
	return nil
}

func (w *h2Writer) ReadBody(p []byte) (int, error) {
	if len(w.ahead) > 0 {
		n := copy(p, w.ahead)
		w.ahead = w.ahead[n:]
		return n, nil
	}
	if w.expects {
		w.expects = false
		if !w.stream.Headed() {
			_ = w.stream.Answer(http.StatusContinue, nil, nil, false) // should it fail, so does Read
		}
	}
	return w.stream.Read(p)
}

func (w *h2Writer) Trailer() http.Header { return h2Header(w.stream.Trailer()) }

func (w *h2Writer) AddField(name, value string) {
	w.fields = h2.AppendField(w.fields, name, value)
	w.dated = w.dated || name == "Date"
}

func (w *h2Writer) SendInterim(status int) {
	_ = w.stream.Answer(status, w.fields, nil, false) // should it fail, so does the answer
	w.fields, w.dated = w.fields[:0], false
}

func (w *h2Writer) SendHead(status int, length int64, body []byte, end bool) error {
	if _, left := w.Header()["Date"]; !left && !w.dated {
		w.AddField("Date", w.conn.server.dateText())
	}
	if length >= 0 {
		w.AddField("Content-Length", strconv.FormatInt(length, 10))
	}
	err := w.stream.Answer(status, w.fields, body, end)
	w.fields = w.fields[:0]
	return err
}

func (w *h2Writer) SendBody(p []byte) error { return w.stream.Write(p, false) }

func (w *h2Writer) SendPending() error { return nil }

func (w *h2Writer) SendEnd() { _ = w.stream.End(w.fields) } // or it has ended

func (w *h2Writer) Abort(error) { w.stream.Reset(h2.InternalError) } // it must not look whole
