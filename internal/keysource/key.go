package keysource

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// MaxLen is the length of the longest key in bytes.
const MaxLen = 4096

// Errors of finding a request's key.
var (
	ErrNoKey  = errors.New("gateway: no key, or an empty one")
	ErrBadKey = errors.New("gateway: bad key") // see Check
)

// Check returns an error that wraps [ErrNoKey] or [ErrBadKey] unless key is
// 1 to [MaxLen] bytes of valid UTF-8 without control characters. A key is
// compared byte by byte: no case folding and no Unicode normalization.
func Check(key string) error {
	if key == "" {
		return ErrNoKey
	}
	if len(key) > MaxLen {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrBadKey, len(key), MaxLen)
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
