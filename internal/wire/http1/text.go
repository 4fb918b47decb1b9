package http1

import "unsafe"

// Text shares b's memory, which stays as it is for as long as the request is
// worked on.
func Text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
