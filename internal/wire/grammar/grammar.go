// Package grammar holds the parts of HTTP's grammar (RFC 9110) that its versions and the link
// share. Its functions take strings or bytes and do not allocate, except CleanValue when it changes
// a value.
package grammar

import (
	"iter"
	"strings"
	"unsafe"
)

// A bit for each byte that RFC 9110, section 5.6.2, allows in a token.
const (
	tokenLow  = 0x03ff6cfa00000000 // ! # $ % & ' * + - . 0-9
	tokenHigh = 0x57ffffffc7fffffe // A-Z ^ _ ` a-z | ~
	upperHigh = 0x0000000007fffffe // A-Z
)

// IsToken reports whether s is a token, such as a method or a field's name.
func IsToken[S ~string | ~[]byte](s S) bool {
	return len(s) > 0 && IsOf(s, tokenLow, tokenHigh)
}

// IsLowerToken reports whether s is a token in lower case, as the names of
// fields are in HTTP/2 (RFC 9113, section 8.2.1).
func IsLowerToken[S ~string | ~[]byte](s S) bool {
	return len(s) > 0 && IsOf(s, tokenLow, tokenHigh&^upperHigh)
}

// IsOf reports whether all bytes of s have their bit in low, which is for those below 64, or in
// high, for those from 64 to 127.
func IsOf[S ~string | ~[]byte](s S, low, high uint64) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c < 64 && low>>c&1 != 0:
		case c >= 64 && c < 128 && high>>(c-64)&1 != 0:
		default:
			return false
		}
	}
	return true
}

// IsTarget reports whether s can be the target of a request: neither empty nor
// with spaces or control characters. Bytes from 0x80 on are taken, as by net/url.
func IsTarget[S ~string | ~[]byte](s S) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == 0x7f {
			return false
		}
	}
	return len(s) > 0
}

// ParseLength parses a Content-Length: digits alone, below 2^63 (RFC 9110,
// section 8.6).
func ParseLength[S ~string | ~[]byte](s S) (n int64, ok bool) {
	const most = 1<<63 - 1
	for i := range len(s) {
		d := s[i] - '0'
		if d > 9 || n > most/10 {
			return 0, false
		}
		if n = 10*n + int64(d); n < 0 {
			return 0, false
		}
	}
	return n, len(s) > 0
}

// HasNoBody reports whether an answer with the status never has a body, regardless of its fields
// (RFC 9110, section 6.4.1).
func HasNoBody(status int) bool { return status < 200 || status == 204 || status == 304 }

// HasBody reports whether the answer to a request has a body, perhaps an empty
// one.
func HasBody(method string, status int) bool { return method != "HEAD" && !HasNoBody(status) }

// EqualFold reports whether s equals lower when the case of ASCII letters is ignored.
func EqualFold[S ~string | ~[]byte](s S, lower string) bool {
	if len(s) != len(lower) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// Items yields, in order, the non-empty items of a field whose value is a list (RFC 9110, section
// 5.6.1).
func Items(values []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, list := range values {
			for item := range strings.SplitSeq(list, ",") {
				if item = Trim(item); item != "" && !yield(item) {
					return
				}
			}
		}
	}
}

// Text returns b as a string that shares its memory, which must not change while
// the string is used.
func Text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
