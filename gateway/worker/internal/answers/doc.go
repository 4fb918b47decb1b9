// Package answers takes answers as fast as their handlers give them, and keeps them for clients that read more slowly. So the
// key of a request is free when its handler has ended.
//
// Files, from the outside inwards:
//
//	answer.go    an answer over HTTP/1.1 or HTTP/2
//	recorder.go  an answer that equal requests share
//	backlog.go   the room for answers, and what of one its client has not read
package answers
