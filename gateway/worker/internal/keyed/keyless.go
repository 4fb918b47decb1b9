package keyed

import "strings"

// A request whose route holds no key runs as an execution of a unique name, in the partition of its
// key or, without a key, in any that the worker serves. It is admitted, bounded, cancelled and
// waited for like all others, and blocks none. The name is a NUL, a number, another NUL and the
// key: no key has a NUL.

// IsKeyless reports whether a name is that of a request which holds no key.
func IsKeyless(name string) bool { return strings.HasPrefix(name, "\x00") }

// KeyOf returns the key of an execution of that name, "" for none.
func KeyOf(name string) string {
	if !IsKeyless(name) {
		return name
	}
	_, key, _ := strings.Cut(name[1:], "\x00")
	return key
}
