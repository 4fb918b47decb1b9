// Package http1 reads and writes the heads of simple HTTP/1.1 messages, for a
// proxy that has to do so fast. It is strict instead of complete: Head.Parse
// and ResponseHead.Parse take only messages that leave no question open, and
// tell their caller to hand everything else, with the bytes read so far, to
// net/http. What they take, net/http would take with the same meaning; fuzz
// tests hold them to that, and Chunked too. The other half appends requests
// and responses to a buffer.
package http1
