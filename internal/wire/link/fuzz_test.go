package link

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// FuzzHeads decodes arbitrary bytes as every payload there is, and what is
// accepted must come out of the encoder as it was understood.
func FuzzHeads(f *testing.F) {
	fields := AppendField(nil, "A", "b")
	request := Request{Epoch: 7, Method: "GET", Host: "h", Target: "/", Key: "k", Client: 5, Policy: []byte("p"), Fields: fields}
	f.Add(request.appendHead(nil, time.Second))
	response := responseHead{status: 200, length: 5, fields: fields}
	f.Add(response.append(nil))
	interim := responseHead{status: 103, length: -1, fields: fields}
	f.Add(interim.append(nil))
	f.Add(appendRefusal(nil, &RefusedError{NotOwner, "o", "a", 3}))
	f.Add(serverGreeting()[len(preface)+headerLen+proofLen:])
	f.Fuzz(func(t *testing.T, p []byte) {
		var r, again ServerRequest
		if timeout, err := r.decodeHead(bytes.Clone(p)); err == nil {
			sent := Request{Method: r.Method, Target: r.Target, Host: r.Host, Key: r.Key, Epoch: r.Epoch, Client: r.Client, Policy: r.Policy, Fields: r.Fields,
				Body: http.NoBody, ContentLength: r.ContentLength}
			timeoutAgain, err := again.decodeHead(sent.appendHead(nil, timeout))
			if err != nil || timeoutAgain != timeout || !reflect.DeepEqual(&r, &again) {
				t.Errorf("request %+v became %+v, %v", &r, &again, err)
			}
			checkFields(t, r.Fields)
		}
		if h, err := decodeResponse(bytes.Clone(p)); err == nil {
			again, err := decodeResponse(h.append(nil))
			if err != nil || !reflect.DeepEqual(h, again) {
				t.Errorf("response %+v became %+v, %v", h, again, err)
			}
		}
		if e, err := decodeRefusal(p); err == nil {
			again, err := decodeRefusal(appendRefusal(nil, e))
			if err != nil || *e != *again {
				t.Errorf("refusal %+v became %+v, %v", e, again, err)
			}
		}
		if h, err := decodeHello(p); err == nil && h.Version == Version {
			again, err := decodeHello(unproven(h)[proofLen:])
			if err != nil || !reflect.DeepEqual(h, again) {
				t.Errorf("hello %+v became %+v, %v", h, again, err)
			}
		}
	})
}

// checkFields: accepted fields survive a line protocol.
func checkFields(t *testing.T, f Fields) {
	n, fields := 0, 0
	for name, value := range f.All() {
		fields++
		n += len(name) + len(value) + 2
		if !grammar.IsToken(name) || strings.ContainsAny(value, "\r\n\x00") || http.CanonicalHeaderKey(name) == "Content-Length" {
			t.Errorf("accepted %q: %q", name, value)
		}
	}
	if n > len(f) {
		t.Errorf("%d bytes of fields out of %d", n, len(f))
	}
	if got := len(f.Header()); got > fields {
		t.Errorf("%d names out of %d fields", got, fields)
	}
}

// conversation returns bytes that a client may send after hello.
func conversation() []byte {
	b := requestFrame(1, plainHead("GET"), true)
	put := plainHead("PUT")
	put.ContentLength = 4
	b = append(b, requestFrame(2, put, false)...)
	b = appendFrame(b, header{kind: kindData, stream: 2}, []byte("ab"))
	b = appendFrame(b, header{kind: kindData, stream: 2, end: true}, []byte("cd"))
	b = append(b, requestFrame(4, plainHead("POST"), false)...)
	b = appendFrame(b, header{kind: kindTrailers, stream: 4, end: true}, AppendField(nil, "A", "b"))
	b = appendControl(b, kindWindow, 4, 1000)
	b = appendControl(b, kindReset, 4, 1)
	return appendFrame(b, header{kind: kindPing}, nil)
}

// script is a connection on which the peer says what it has to say and
// closes; what it is told is dropped.
type script struct {
	io.Reader
}

func newScript(b []byte) script { return script{bytes.NewReader(b)} }

func (script) Write(p []byte) (int, error)      { return len(p), nil }
func (script) LocalAddr() net.Addr              { return &net.UnixAddr{Name: "script"} }
func (script) RemoteAddr() net.Addr             { return &net.UnixAddr{Name: "script"} }
func (script) SetDeadline(time.Time) error      { return nil }
func (script) SetReadDeadline(time.Time) error  { return nil }
func (script) SetWriteDeadline(time.Time) error { return nil }
func (script) Close() error                     { return nil }

// FuzzServer lets a client say anything. The server must come to an end with
// the connection, all handlers with it.
func FuzzServer(f *testing.F) {
	f.Add(conversation(), true)
	f.Add(clientGreeting(), false)
	f.Add(append(clientGreeting(), conversation()...), false)
	s := &Server{Config: logless(), Handler: HTTPHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
	}))}
	f.Fuzz(func(t *testing.T, p []byte, greeted bool) {
		if greeted {
			p = append(clientGreeting(), p...)
		}
		s.ServeConn(newScript(p))
	})
}

// FuzzClient lets a server say anything in answer to two requests.
func FuzzClient(f *testing.F) {
	head := responseHead{status: 200, length: -1}
	b := appendFrame(nil, header{kind: kindResponse, stream: 1}, head.append(nil))
	b = appendFrame(b, header{kind: kindData, stream: 1}, []byte("hello"))
	b = appendFrame(b, header{kind: kindTrailers, stream: 1, end: true}, AppendField(nil, "A", "b"))
	f.Add(b)
	interim := responseHead{status: 103, length: -1}
	early := appendFrame(nil, header{kind: kindResponse, stream: 1}, interim.append(nil))
	f.Add(append(bytes.Clone(early), b...))
	f.Add(bytes.Repeat(early, maxInterim+1))
	b = appendFrame(nil, header{kind: kindRefused, stream: 2, end: true}, appendRefusal(nil, &RefusedError{Reason: Busy}))
	b = appendControl(b, kindGoAway, 0, 1)
	f.Add(append(appendControl(b, kindReset, 1, 2), appendControl(nil, kindWindow, 1, 70000)...))
	f.Fuzz(func(t *testing.T, p []byte) {
		p = append(serverGreeting(), p...)
		dialed := false
		c := &Client{Config: logless(), Dial: func(context.Context) (net.Conn, error) {
			if dialed {
				return nil, io.ErrClosedPipe
			}
			dialed = true
			return newScript(p), nil
		}}
		for _, req := range []*Request{post("abc"), chunked(strings.NewReader("abc"))} {
			resp, err := c.Do(t.Context(), req)
			if err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			<-req.BodyDone()
		}
		c.Close()
	})
}
