// Package http1 reads and writes the heads of simple HTTP/1.1 messages, for a proxy that must be
// fast. It is strict instead of complete. Head.Parse and ResponseHead.Parse take only unambiguous
// messages; the caller hands all others, with the bytes read so far, to net/http. net/http would
// give every message that they take the same meaning: fuzz tests check this, also for Chunked. The
// other half of the package appends requests and responses to a buffer.
package http1
