//go:build linux

package origin

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/keyway-go/keyway/internal/wire/link"
)

// Sizes answers with as many bytes as the path asks for: as an http.Handler,
// and over the link. The zero value is ready.
type Sizes struct{ bodies sync.Map } // []byte by path

func (s *Sizes) body(path string) ([]byte, error) {
	if b, ok := s.bodies.Load(path); ok {
		return b.([]byte), nil
	}
	size, err := strconv.Atoi(path[min(1, len(path)):])
	if err != nil || size < 0 || size > MaxSize {
		return nil, fmt.Errorf("%w: %q", errSize, path)
	}
	b := bytes.Repeat([]byte("x"), size)
	s.bodies.Store(path, b)
	return b, nil
}

// ServeHTTP implements [http.Handler].
func (s *Sizes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := s.body(r.URL.Path)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	h := w.Header()
	h["Content-Type"] = []string{"text/plain"}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	_, _ = w.Write(body) // fails if the client has gone
}

// ServeLink is a [LinkHandler].
func (s *Sizes) ServeLink(w *link.ResponseWriter, r *link.ServerRequest) {
	body, err := s.body(r.Target)
	if err != nil {
		_ = w.WriteHead(http.StatusNotFound, 0, nil)
		return
	}
	var fields [32]byte
	_ = w.WriteHead(http.StatusOK, int64(len(body)), link.AppendField(fields[:0], "Content-Type", "text/plain"))
	_, _ = w.Write(body)
}
