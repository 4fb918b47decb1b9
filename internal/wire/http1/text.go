package http1

import "unsafe"

// Text returns b as a string that shares its memory, which must not change while
// the string is used.
func Text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
