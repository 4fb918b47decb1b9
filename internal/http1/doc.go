// Package http1 reads and writes the heads of plain HTTP/1.1 messages, for a
// proxy that has to do so fast. It is strict instead of complete: Head.Parse
// takes only requests that leave no question open, and tells its caller to
// hand everything else, with the bytes read so far, to net/http. What it
// takes, net/http would take with the same meaning; a fuzz test holds it to
// that. The other half appends responses to a buffer.
package http1
