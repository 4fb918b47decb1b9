package http1

import (
	"bytes"

	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// Verdict is the outcome of parsing the bytes of a head.
type Verdict uint8

// The verdicts on a head.
const (
	More     Verdict = iota + 1 // simple so far, but not a whole head
	Done                        // a whole head of a simple request
	HandOver                    // something that net/http has to judge
)

// maxFields is how many fields a simple request has at most.
const maxFields = 100

// Field is a header field. The name is as the client sent it.
type Field struct {
	Name, Value []byte
}

// Head is the head of a simple request. Everything in it shares memory with
// the bytes that were parsed. A Head is best used again and again: it keeps
// the memory of Fields.
type Head struct {
	Method        []byte // GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS
	Target        []byte // begins with a slash
	Host          []byte
	Fields        []Field // all but Host, Content-Length and Connection
	ContentLength int64   // of the body that follows; -1 if there was no such field, and no body then
	Close         bool    // the client wants the connection closed after the answer
	Size          int     // bytes of the head, the empty line included

	progress
}

// progress is how many bytes of a head have come that is not whole. They are parsed
// again only when another line has ended: a peer that sends a long head byte by byte
// costs no more than its lines.
type progress int

// judge returns the verdict of parse on b, or More if b is what came before and the
// beginning of another line.
func (p *progress) judge(b []byte, parse func([]byte) Verdict) Verdict {
	known, v := int(*p), More
	if known < len(statusVersion) || known > len(b) || bytes.IndexByte(b[known:], '\n') >= 0 {
		v = parse(b)
	}
	if *p = 0; v == More {
		*p = progress(len(b))
	}
	return v
}

// Parse parses the head at the start of b. It takes only an origin-form HTTP/1.1 request with lines
// that end in CRLF, a method listed at Method, one valid Host, at most one Content-Length of digits
// alone, and Connection, if present, keep-alive or close. It leaves to net/http: Transfer-Encoding,
// Upgrade, Expect, Trailer, TE, folded lines, other methods, versions and protocols, and everything
// malformed. After More, call Parse again with the same bytes and those that follow. The caller
// decides how many to wait for, and for how long.
func (h *Head) Parse(b []byte) Verdict { return h.judge(b, h.parse) }

func (h *Head) parse(b []byte) Verdict {
	h.Host, h.Fields, h.ContentLength, h.Close = nil, h.Fields[:0], -1, false
	if len(b) > 0 && (b[0] < 'A' || b[0] > 'Z') { // another protocol may never send a line end
		return HandOver
	}
	size, v := parseLines(b, h.requestLine, h.field)
	if h.Size = size; v == Done && h.Host == nil {
		return HandOver
	}
	return v
}

// parseLines parses the head at the start of b. A first line, or one of a field, that its function
// does not take is not simple.
func parseLines(b []byte, first, field func(line []byte) bool) (size int, v Verdict) {
	line, rest, v := cutLine(b)
	if v == Done && !first(line) {
		return 0, HandOver
	}
	for v == Done {
		switch line, rest, v = cutLine(rest); {
		case v != Done:
		case len(line) == 0:
			return len(b) - len(rest), Done
		case !field(line):
			return 0, HandOver
		}
	}
	return 0, v
}

// cutLine takes a line from the front of b, without its CRLF.
func cutLine(b []byte) (line, rest []byte, v Verdict) {
	n := bytes.IndexByte(b, '\n')
	if n < 0 {
		return nil, nil, More
	}
	if n == 0 || b[n-1] != '\r' {
		return nil, nil, HandOver
	}
	return b[:n-1], b[n+1:], Done
}

func (h *Head) requestLine(line []byte) bool {
	const version = " HTTP/1.1"
	n := bytes.IndexByte(line, ' ')
	if n < 0 || !simpleMethod(line[:n]) || !bytes.HasSuffix(line[n+1:], []byte(version)) {
		return false
	}
	h.Method = line[:n]
	h.Target = line[n+1 : len(line)-len(version)]
	return simpleTarget(h.Target)
}

func simpleMethod(m []byte) bool {
	switch string(m) {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS":
		return true
	}
	return false
}

// simpleTarget reports whether t is a path, and perhaps a query, of visible
// ASCII with whole escapes in the path.
func simpleTarget(t []byte) bool {
	if len(t) == 0 || t[0] != '/' {
		return false
	}
	query := false
	for i, c := range t {
		switch {
		case c <= ' ' || c >= 0x7f || c == '#':
			return false
		case c == '?':
			query = true
		case c == '%' && !query && (i+2 >= len(t) || !hex(t[i+1]) || !hex(t[i+2])):
			return false
		}
	}
	return true
}

func hex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func (h *Head) field(line []byte) bool {
	f, ok := cutField(line)
	if !ok {
		return false
	}
	name, value := f.Name, f.Value
	switch special(name) {
	case fieldHost:
		if h.Host != nil || len(value) == 0 || !IsHost(value) {
			return false
		}
		h.Host = value
	case fieldLength:
		length, ok := grammar.ParseLength(value)
		if h.ContentLength >= 0 || !ok {
			return false
		}
		h.ContentLength = length
	case fieldConnection:
		switch {
		case grammar.EqualFold(value, "close"):
			h.Close = true
		case !grammar.EqualFold(value, "keep-alive"):
			return false
		}
	case fieldUnusual:
		return false
	default:
		if len(h.Fields) == maxFields {
			return false
		}
		h.Fields = append(h.Fields, f)
	}
	return true
}

// kind of a field by its name.
type kind uint8

const (
	fieldEndToEnd kind = iota
	fieldHost
	fieldLength
	fieldConnection
	fieldUnusual // is not for the fast path
)

// special returns the kind of the field called name.
func special[S ~string | ~[]byte](name S) kind {
	switch len(name) {
	case len("te"):
		if grammar.EqualFold(name, "te") {
			return fieldUnusual
		}
	case len("host"):
		if grammar.EqualFold(name, "host") {
			return fieldHost
		}
	case len("pragma"):
		if grammar.EqualFold(name, "pragma") { // net/http may derive Cache-Control from it
			return fieldUnusual
		}
	case len("trailer"):
		if grammar.EqualFold(name, "trailer") {
			return fieldUnusual
		}
	case len("connection"):
		if grammar.EqualFold(name, "connection") {
			return fieldConnection
		}
	case len("content-length"):
		if grammar.EqualFold(name, "content-length") {
			return fieldLength
		}
	}
	if grammar.IsHopField(name) {
		return fieldUnusual
	}
	return fieldEndToEnd
}

// A bit for each byte that net/http takes in a Host.
const (
	hostLow  = 0x2fff7ff200000000 // ! $ % & ' ( ) * + , - . 0-9 : ; =
	hostHigh = 0x47fffffeaffffffe // A-Z [ ] _ a-z ~
)

// IsHost reports whether v has only bytes that net/http takes in a Host.
func IsHost[S ~string | ~[]byte](v S) bool { return grammar.IsOf(v, hostLow, hostHigh) }
