package http1

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// AppendStatus appends the first line of a response.
func AppendStatus(b []byte, status int) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(status)...)
	return append(b, "\r\n"...)
}

// SimpleRequest reports whether AppendRequest can take a request with these.
func SimpleRequest(method, target, host string) bool {
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return grammar.IsToken(method) && target != "" && host != "" && IsHost(host)
}

// AppendRequest appends the first line of a request, and its Host.
func AppendRequest(b []byte, method, target, host string) []byte {
	b = append(b, method...)
	b = append(b, ' ')
	b = append(b, target...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, host...)
	return append(b, "\r\n"...)
}

func appendLength(b []byte, n int64) []byte {
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, n, 10)
	return append(b, "\r\n"...)
}

// AppendField appends a field, unless it would break the message: its name is no token, or stays on
// its hop ([grammar.IsHopField]; AppendFraming writes some of those). Control characters other than
// tabs become spaces in the value.
func AppendField[S ~string | ~[]byte](b []byte, name, value S) []byte {
	if !grammar.IsToken(name) || grammar.IsHopField(name) {
		return b
	}
	start := len(b)
	b = AppendValidField(b, name, value)
	if v := b[start+len(name)+len(": ") : len(b)-len("\r\n")]; !grammar.IsText(v) {
		grammar.Blank(v)
	}
	return b
}

// AppendValidField is AppendField for a name and a value that would not break the
// message.
func AppendValidField[S ~string | ~[]byte](b []byte, name, value S) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// Framing says how a response is delimited.
type Framing struct {
	Method string // of the request
	Status int
	Length int64 // of the body; -1 when not known
	Close  bool  // the connection is closed after it
}

// Body reports whether the response has a body, and whether it goes in
// chunks (AppendChunk, AppendEnd).
func (f Framing) Body() (has, chunked bool) {
	has = grammar.HasBody(f.Method, f.Status)
	return has, has && f.Length < 0
}

// Declares reports whether the response has a Content-Length.
func (f Framing) Declares() bool {
	return f.Length >= 0 && !grammar.HasNoBody(f.Status)
}

// AppendFraming appends the fields that delimit the body, Connection: close if f.Close is set, and
// the empty line.
func AppendFraming(b []byte, f Framing) []byte {
	_, chunked := f.Body()
	switch {
	case chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case f.Declares():
		b = appendLength(b, f.Length)
	}
	if f.Close {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, "\r\n"...)
}

// AppendChunk appends p as a chunk; nothing if p is empty.
func AppendChunk(b, p []byte) []byte {
	if len(p) == 0 {
		return b
	}
	b = strconv.AppendInt(b, int64(len(p)), 16)
	b = append(b, "\r\n"...)
	b = append(b, p...)
	return append(b, "\r\n"...)
}

// AppendEnd appends the end of a body that went in chunks. Trailers, as
// AppendField makes them, stand before the empty line.
func AppendEnd(b, trailers []byte) []byte {
	b = append(b, "0\r\n"...)
	b = append(b, trailers...)
	return append(b, "\r\n"...)
}

// Date makes Date fields; it renders the time once a second. The zero value is
// ready, and safe for concurrent use.
type Date struct {
	last atomic.Pointer[dateText]
}

type dateText struct {
	second int64
	text   string
}

// Text returns the value of the Date field for now.
func (d *Date) Text(now time.Time) string {
	last := d.last.Load()
	if last == nil || last.second != now.Unix() {
		last = &dateText{now.Unix(), now.UTC().Format(http.TimeFormat)}
		d.last.Store(last)
	}
	return last.text
}

// AppendRequestLength appends the length of a request's body where there is one,
// or where servers want to know that there is none.
func AppendRequestLength(b []byte, method string, n int64) []byte {
	if n > 0 || method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch {
		b = appendLength(b, n)
	}
	return b
}
