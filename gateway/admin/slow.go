package admin

import (
	"bytes"
	"cmp"
	"net/http"
	"time"
)

// answerTimeout bounds how long a client takes to read an answer, from its first byte on.
const answerTimeout = 30 * time.Second

// inTime has h's answers break off if their clients do not read them in time.
func inTime(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(&timely{ResponseWriter: w}, r) })
}

// timely sets the deadline of an answer when the answer begins. A later deadline of the handler's own
// counts in its place.
type timely struct {
	http.ResponseWriter
	began bool
}

func (t *timely) Write(b []byte) (int, error) {
	if !t.began {
		t.began = true
		_ = http.NewResponseController(t.ResponseWriter).SetWriteDeadline(time.Now().Add(answerTimeout)) // where there are deadlines
	}
	return t.ResponseWriter.Write(b)
}

func (t *timely) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// limited limits a handler to as many concurrent requests as slots has room for. A slot is free when the
// answer is composed, however slowly its client reads it.
func limited(slots chan struct{}, h http.Handler) http.Handler {
	compose := func(answer *composed, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			h.ServeHTTP(answer, r)
		default:
			answer.Header().Set("Retry-After", "1")
			http.Error(answer, "too many requests at once, try again", http.StatusServiceUnavailable)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &composed{ResponseWriter: w}
		compose(answer, r)
		w.WriteHeader(cmp.Or(answer.status, http.StatusOK))
		_, _ = w.Write(answer.body.Bytes()) // the client may have left
	})
}

// composed is an answer before it is sent.
type composed struct {
	http.ResponseWriter // of its header
	status              int
	body                bytes.Buffer
}

func (c *composed) WriteHeader(status int)      { c.status = status }
func (c *composed) Write(b []byte) (int, error) { return c.body.Write(b) }
