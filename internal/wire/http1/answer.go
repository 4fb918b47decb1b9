package http1

import (
	"bytes"

	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// ResponseHead is the head of a simple response. Everything in it shares memory
// with the bytes that were parsed. It is best used again and again: it keeps
// the memory of Fields.
type ResponseHead struct {
	Status        int
	Fields        []Field // all but those of framing and of the connection
	ContentLength int64   // as declared, which HEAD and 304 do without a body; -1 if there was no such field
	Chunked       bool    // the body goes in chunks
	Close         bool    // the server closes the connection after it
	Size          int     // bytes of the head, the empty line included

	progress
}

// Parse parses the head at the start of b. It takes only HTTP/1.1 with lines that end in CRLF, at
// most one Content-Length of digits alone or chunks alone as the Transfer-Encoding, and Connection,
// if present, keep-alive or close. Other versions, Upgrade, TE, Pragma and everything malformed is
// left to [http.ReadResponse]. After More, call Parse again with the same bytes and those that
// follow.
func (h *ResponseHead) Parse(b []byte) Verdict { return h.judge(b, h.parse) }

func (h *ResponseHead) parse(b []byte) Verdict {
	h.Fields, h.ContentLength, h.Chunked, h.Close = h.Fields[:0], -1, false, false
	if n := min(len(b), len(statusVersion)); string(b[:n]) != statusVersion[:n] {
		return HandOver
	}
	size, v := parseLines(b, h.statusLine, h.field)
	if h.Size = size; v == Done && h.Chunked && (h.ContentLength >= 0 || grammar.HasNoBody(h.Status)) {
		return HandOver
	}
	return v
}

const statusVersion = "HTTP/1.1 "

func (h *ResponseHead) statusLine(line []byte) bool {
	code := line[min(len(statusVersion), len(line)):]
	if len(code) < 3 || len(code) > 3 && code[3] != ' ' || !grammar.IsText(code) {
		return false
	}
	h.Status = 0
	for _, c := range code[:3] {
		if c < '0' || c > '9' {
			return false
		}
		h.Status = 10*h.Status + int(c-'0')
	}
	return h.Status >= 100
}

func (h *ResponseHead) field(line []byte) bool {
	f, ok := cutField(line)
	if !ok {
		return false
	}
	switch special(f.Name) {
	case fieldLength:
		length, ok := grammar.ParseLength(f.Value)
		if h.ContentLength >= 0 || !ok {
			return false
		}
		h.ContentLength = length
		return true
	case fieldConnection:
		h.Close = h.Close || grammar.EqualFold(f.Value, "close")
		return h.Close || grammar.EqualFold(f.Value, "keep-alive")
	case fieldUnusual:
		switch {
		case grammar.EqualFold(f.Name, "transfer-encoding"):
			known := !h.Chunked && grammar.EqualFold(f.Value, "chunked")
			h.Chunked = true
			return known
		case grammar.EqualFold(f.Name, "keep-alive"), grammar.EqualFold(f.Name, "proxy-connection"):
			return true
		case !grammar.EqualFold(f.Name, "trailer"):
			return false
		}
	}
	if len(h.Fields) == maxFields {
		return false
	}
	h.Fields = append(h.Fields, f)
	return true
}

func cutField(line []byte) (f Field, ok bool) {
	n := bytes.IndexByte(line, ':')
	if n <= 0 || !grammar.IsToken(line[:n]) {
		return f, false
	}
	f = Field{line[:n], grammar.Trim(line[n+1:])}
	return f, grammar.IsText(f.Value)
}
