package send

import (
	"iter"
	"net/http"
	"strings"

	"github.com/keyway-go/keyway/gateway/internal/fields"
)

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
