package grammar

import "strings"

// IsConnectionField reports whether the field of that name, in any case, is
// about one connection and its framing, which is why HTTP/2 has no such fields
// (RFC 9113, section 8.2.2).
func IsConnectionField[S ~string | ~[]byte](name S) bool {
	switch len(name) {
	case len("upgrade"):
		return EqualFold(name, "upgrade")
	case len("connection"):
		return EqualFold(name, "connection") || EqualFold(name, "keep-alive")
	case len("proxy-connection"):
		return EqualFold(name, "proxy-connection")
	case len("transfer-encoding"):
		return EqualFold(name, "transfer-encoding")
	}
	return false
}

// IsHopField reports whether the field of that name, in any case, concerns one hop only. It does
// for IsConnectionField's names, HTTP2-Settings (RFC 7540, section 3.2.1), Content-Length, which
// each hop's framing sets, and Expect, which each hop answers. TE and Trailer concern one hop too,
// but a hop that takes trailers must forward them.
func IsHopField[S ~string | ~[]byte](name S) bool {
	return len(name) < 64 && hopLengths>>len(name)&1 != 0 && isHopField(name)
}

// hopLengths has a bit for the length of each name of [IsHopField], which rules out most other
// names.
const hopLengths = 1<<len("expect") | 1<<len("upgrade") | 1<<len("connection") | 1<<len("content-length") |
	1<<len("proxy-connection") | 1<<len("transfer-encoding")

func isHopField[S ~string | ~[]byte](name S) bool {
	switch len(name) {
	case len("expect"):
		return EqualFold(name, "expect")
	case len("content-length"):
		return EqualFold(name, "content-length") || EqualFold(name, "http2-settings")
	}
	return IsConnectionField(name)
}

// IsFramingField reports whether the field of that name, in any case, could
// make two readers of a message disagree on where it ends.
func IsFramingField[S ~string | ~[]byte](name S) bool {
	return EqualFold(name, "content-length") || EqualFold(name, "transfer-encoding")
}

// IsBeforeBody reports whether the field of that name, in lower case, says
// something that has to be known before the body, so that it must not stand in
// trailers (RFC 9110, section 6.5.1).
func IsBeforeBody(name string) bool {
	switch name {
	case "authorization", "cache-control", "content-encoding", "content-length", "content-range", "content-type", "cookie",
		"expect", "host", "max-forwards", "pragma", "proxy-authenticate", "proxy-authorization", "range", "realm", "te",
		"trailer", "www-authenticate":
		return true
	}
	return strings.HasPrefix(name, "if-")
}
