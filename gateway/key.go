package gateway

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/keyway-go/keyway/internal/keysource"
)

// Errors of keys. A key is 1 to 4096 bytes of valid UTF-8 without control characters. It is
// compared byte by byte: no case folding and no Unicode normalization.
var (
	ErrNoKey  = keysource.ErrNoKey  // an empty key is none
	ErrBadKey = keysource.ErrBadKey // also where two places of a request have two keys
)

// KeyFromHeader returns the key that a worker passes to its handlers and apps
// in [HeaderKey]. Its error wraps [ErrNoKey] or [ErrBadKey].
func KeyFromHeader(h http.Header) (string, error) {
	key, err := url.PathUnescape(h.Get(HeaderKey))
	if err != nil {
		return "", fmt.Errorf("%w: %s is not percent-encoded", ErrBadKey, HeaderKey)
	}
	return key, keysource.Check(key)
}

// KeySource is a place in a request at which its key stands. Make one with
// [ParseKeySource]; the zero KeySource yields no key.
//
// For every source, the key is the decoded text: %31 and 1 are one key. A literal percent sign is
// written %25 in all of them, including headers and cookies.
type KeySource = keysource.Source

// KeySources is a list of the places at which a request's key is looked for. Its method
// Extract returns the key of a request: the one on which all sources agree that have one.
type KeySources = keysource.Sources

// ParseKeySource reads one of these forms:
//
//	header:NAME   the header of that name
//	query:NAME    the query parameter of that name
//	cookie:NAME   the cookie of that name
//	path:PATTERN  a wildcard of a [net/http.ServeMux] pattern without method and
//	              host: the one called {key} or {key...}, else the only one; a
//	              pattern that ends in a slash matches every path below it, and
//	              the path without that slash; one that does not matches the path
//	              with a slash behind it as well; {key:int} takes whole numbers only
//	json:POINTER  the string or integer to which a JSON Pointer (RFC 6901) leads in
//	              a body of JSON, of at most 64 KiB; 1 and "1" are one
//	              key
//	grpc:NAME     the metadata of that name; -bin at its end says that it is base64
//	host          the host name that the request is for, in lower case and
//	              without its port
//	client        the address from which the request comes
func ParseKeySource(spec string) (KeySource, error) { return keysource.Parse(spec) }
