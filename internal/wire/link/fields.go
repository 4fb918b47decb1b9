package link

import (
	"encoding/binary"
	"iter"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// Fields is an encoded list of header or trailer fields. Each field is its name and its value, and
// before each of the two stands its length as an unsigned varint. The zero value is an empty list.
// Names and values that a Fields yields share its memory, so it must not be changed afterwards.
// Fields delivered by the link never change and may be kept.
type Fields []byte

// AppendField appends a field to f. The fields of the message's framing
// (Content-Length, Transfer-Encoding) and of one connection do not belong in
// f; AppendHeader leaves them out.
func AppendField[N, V ~string | ~[]byte](f Fields, name N, value V) Fields {
	return appendText(appendText(f, name), value)
}

// AppendHeader appends the fields of h to f. It leaves out those of
// [grammar.IsHopField] and names that are no tokens, and cleans values, see
// [grammar.CleanValue].
func AppendHeader(f Fields, h http.Header) Fields {
	for name, values := range h {
		if !grammar.IsToken(name) || grammar.IsHopField(name) {
			continue
		}
		for _, v := range values {
			f = AppendField(f, name, grammar.CleanValue(v))
		}
	}
	return f
}

// All yields the names and values in order.
func (f Fields) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		rest := []byte(f)
		for len(rest) > 0 {
			name, r, ok := cutBytes(rest)
			if !ok {
				return
			}
			value, r, ok := cutBytes(r)
			if !ok || !yield(grammar.Text(name), grammar.Text(value)) {
				return
			}
			rest = r
		}
	}
}

// Values returns the values of a field, in any case.
func (f Fields) Values(name string) (values []string) {
	for n, v := range f.All() {
		if len(n) == len(name) && strings.EqualFold(n, name) {
			values = append(values, v)
		}
	}
	return values
}

// Header returns the fields as an http.Header with canonical names, nil if
// there are none.
func (f Fields) Header() http.Header {
	if len(f) == 0 {
		return nil
	}
	return f.HeaderFor(0)
}

// HeaderFor is Header, never nil, with room for a number of fields more.
func (f Fields) HeaderFor(more int) http.Header {
	n := 0
	for range f.All() {
		n++
	}
	h := make(http.Header, n+more)
	values := make([]string, n) // backs every field that comes once
	for name, value := range f.All() {
		name = textproto.CanonicalMIMEHeaderKey(name)
		if old := h[name]; len(old) > 0 {
			h[name] = append(old, value)
			continue
		}
		values[0] = value
		h[name] = values[:1:1]
		values = values[1:]
	}
	return h
}

// valid reports whether f is well formed: every name a token that says
// nothing about framing, no value with control characters but tabs.
func (f Fields) valid() bool {
	rest := []byte(f)
	for len(rest) > 0 {
		name, r, ok := cutBytes(rest)
		if !ok || !grammar.IsToken(name) || grammar.IsFramingField(name) {
			return false
		}
		value, r, ok := cutBytes(r)
		if !ok || !grammar.IsText(value) {
			return false
		}
		rest = r
	}
	return true
}

func cutBytes(b []byte) (head, rest []byte, ok bool) {
	n, size := uint64(0), 1
	if len(b) > 0 && b[0] < 0x80 { // as most are
		n = uint64(b[0])
	} else {
		n, size = binary.Uvarint(b)
	}
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	b = b[size:]
	return b[:n:n], b[n:], true
}
