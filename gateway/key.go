package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"unicode/utf8"
)

// MaxKeyLen is the length of the longest key in bytes.
const MaxKeyLen = 4096

// Errors of finding a request's key.
var (
	ErrNoKey  = errors.New("gateway: the request has no key") // an empty one is none
	ErrBadKey = errors.New("gateway: bad key")                // see CheckKey
)

// CheckKey returns an error that wraps [ErrNoKey] or [ErrBadKey] unless key is
// 1 to [MaxKeyLen] bytes of valid UTF-8 without control characters. A key is
// compared byte by byte: no case folding and no Unicode normalization.
func CheckKey(key string) error {
	if key == "" {
		return ErrNoKey
	}
	if len(key) > MaxKeyLen {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrBadKey, len(key), MaxKeyLen)
	}
	for i := range len(key) {
		if c := key[i]; c < 0x20 || c == 0x7f {
			return fmt.Errorf("%w: control character %#02x at byte %d", ErrBadKey, c, i)
		}
	}
	if !utf8.ValidString(key) {
		return fmt.Errorf("%w: not valid UTF-8", ErrBadKey)
	}
	return nil
}

// KeyFromHeader returns the key that a worker passes to its handlers and apps
// in [HeaderKey]. Its error wraps [ErrNoKey] or [ErrBadKey].
func KeyFromHeader(h http.Header) (string, error) {
	key, err := url.PathUnescape(h.Get(HeaderKey))
	if err != nil {
		return "", fmt.Errorf("%w: %s is not percent-encoded", ErrBadKey, HeaderKey)
	}
	return key, CheckKey(key)
}
