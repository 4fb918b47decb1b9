package send

import (
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// Answer is a worker's answer, over the link or HTTP/1.1.
type Answer struct {
	Status int
	Length int64 // as declared, also where there is no body; -1 if it was not
	Fields link.Fields
	Body   AnswerBody // nil if there is no answer of a worker
}

// field returns a copy of the first value of a field, "" if there is none.
func (a *Answer) field(name string) string {
	for n, value := range a.Fields.All() {
		if len(n) == len(name) && strings.EqualFold(n, name) {
			return strings.Clone(value) // the fields' memory is used again
		}
	}
	return ""
}

// AnswerBody is the body of an answer. Once Buffered reports that all is there,
// Trailer returns the trailers. It is implemented by [link.Body].
type AnswerBody interface {
	io.ReadCloser
	Next() ([]byte, error)
	Buffered() (n int, last bool)
	Trailer() link.Fields
}

// ErrLength is the error of a worker's answer that is longer or shorter than it says.
var ErrLength = errors.New("the answer does not have its declared length")

// PublicTrailer returns the trailers of an answer that the client may get.
func PublicTrailer(trailer link.Fields) (list link.Fields) {
	for name, value := range trailer.All() {
		if fields.IsTrailer(name) {
			list = link.AppendField(list, name, value)
		}
	}
	return list
}

// FieldsOf yields the fields of a request's header, without what its Connection
// names, and with no TE but trailers.
func FieldsOf(h http.Header) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		named := fields.ConnectionNames(h["Connection"])
		for name, values := range h {
			if named(name) {
				continue
			}
			if len(name) == 2 && strings.EqualFold(name, "Te") {
				if !fields.ConnectionNames(values)("trailers") {
					continue
				}
				values = []string{"trailers"}
			}
			for _, v := range values {
				if !yield(name, v) {
					return
				}
			}
		}
	}
}
