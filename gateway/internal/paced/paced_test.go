package paced_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/paced"
)

// served is a ResponseWriter that must not be used once its handler has returned, as net/http's.
type served struct {
	http.ResponseWriter
	t    *testing.T
	over bool
}

func (s *served) SetReadDeadline(time.Time) error {
	if s.over {
		s.t.Error("a deadline is set after the handler has returned")
	}
	return nil
}

// slow is a client that sends a byte for each value in give.
type slow struct{ asked, give chan struct{} }

func (s slow) Read(b []byte) (int, error) {
	s.asked <- struct{}{}
	<-s.give
	return copy(b, "x"), nil
}

// TestABodyEndsWithItsHandler: a goroutine that still reads the body, such as one that sends it to an app
// which answered early, leaves the server's ResponseWriter alone.
func TestABodyEndsWithItsHandler(t *testing.T) {
	w := &served{ResponseWriter: httptest.NewRecorder(), t: t}
	client := slow{make(chan struct{}), make(chan struct{})}
	body := paced.NewBody(client, http.NewResponseController(w), time.Minute, 1)
	read := make(chan error)
	go func() {
		for range 2 {
			_, err := body.Read(make([]byte, 1))
			read <- err
		}
	}()
	<-client.asked
	body.End()
	w.over = true
	client.give <- struct{}{}
	if err := <-read; err != nil {
		t.Errorf("what the client had sent: %v", err)
	}
	if err := <-read; !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("after the handler: %v", err)
	}
}
