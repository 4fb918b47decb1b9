package router

import (
	"errors"
	"io"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// workerAnswer is a worker's answer, whichever way it came.
type workerAnswer struct {
	status int
	length int64 // as declared, also where there is no body; -1 if it was not
	fields link.Fields
	body   answerBody // nil if there is no answer of a worker
}

// answerBody is implemented by [link.Body].
type answerBody interface {
	replyBody
	Next() ([]byte, error)
}

// replyBody is the body of an answer. Once Buffered reports that all is there,
// Trailer returns the trailers.
type replyBody interface {
	io.ReadCloser
	Buffered() (n int, last bool)
	Trailer() link.Fields
}

// errLength is the error of a worker's answer that is longer or shorter than it says.
var errLength = errors.New("router: the answer is not of its length")

// publicTrailer returns what may go on to the client of an answer's trailers.
func publicTrailer(trailer link.Fields) (list link.Fields) {
	for name, value := range trailer.All() {
		if fields.IsTrailer(name) {
			list = link.AppendField(list, name, value)
		}
	}
	return list
}
