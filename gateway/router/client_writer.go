package router

import (
	"net/http"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// clientWriter keeps from the client what only Keyway's own members may see,
// and gives up on a client that takes nothing for too long.
type clientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	pace    time.Duration // 0 or less for no limit

	// expected is a body for which the client waits to be asked: until its end
	// the server may write 100 Continue itself, at the same time.
	expected *clientBody
}

func (w *clientWriter) Write(b []byte) (int, error) {
	if w.pace > 0 {
		_ = w.control.SetWriteDeadline(time.Now().Add(w.pace)) // not every server has it
	}
	return w.ResponseWriter.Write(b)
}

func (w *clientWriter) WriteHeader(status int) {
	if status == http.StatusContinue {
		return // the worker's answer to the router's own Expect
	}
	fields.CleanAnswer(w.Header())
	fields.LeaveUntyped(w.Header())
	w.ResponseWriter.WriteHeader(status)
}

// interim implements downstream.
func (w *clientWriter) interim(status int, fields link.Fields) {
	if w.expected != nil && !w.expected.ended.Load() {
		return
	}
	h := w.Header()
	copyFields(h, fields)
	w.ResponseWriter.WriteHeader(status)
	clear(h)
}

// carry implements downstream.
func (w *clientWriter) carry(*hop1.Exchange) bool { return false }

// Unwrap lets [http.ResponseController] reach the server's writer.
func (w *clientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// finish strips the trailers, which stand in the header once the body ends.
func (w *clientWriter) finish() {
	if w.pace > 0 {
		_ = w.control.SetWriteDeadline(time.Time{})
	}
	fields.CleanTrailers(w.Header())
}
