package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/keyway-go/keyway/gateway/internal/calls"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/worker/internal/locks"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// serveCall answers a call between members.
func (w *Worker) serveCall(rw *link.ResponseWriter, r *link.ServerRequest) {
	body, err := io.ReadAll(io.LimitReader(r.Body, int64(holds.MaxBody)+1))
	if err != nil {
		rw.Abort()
		return
	}
	switch r.Method {
	case calls.Status:
		answer(rw, w.Status(), nil)
	case calls.Explain:
		if s, err := w.Explain(r.Key); err != nil {
			locks.Answer(rw, http.StatusBadRequest, []byte(err.Error()))
		} else {
			answer(rw, s, nil)
		}
	case calls.Load:
		answer(rw, w.Loads(), nil)
	case calls.Locks:
		answer(rw, w.locks.Page(r.Key), nil)
	case calls.Unlock:
		rows, err := w.locks.Unlock(r.Context(), r.Key, fmt.Sprintf("%.128s by way of %s", body, r.Remote()))
		answer(rw, rows, err)
	case calls.Pardon:
		answer(rw, nil, w.Release(r.Context(), r.Key, fmt.Sprintf("%.128s by way of %s", body, r.Remote())))
	case calls.Accuse:
		answer(rw, nil, w.shell.Docket.Accuse(r.Context(), string(body)))
	case calls.Drain:
		answer(rw, nil, w.LeaveRing(r.Context()))
	case calls.Undrain:
		answer(rw, nil, w.JoinRing())
	case calls.Place:
		number, name, _ := strings.Cut(string(body), " ")
		partition, err := strconv.Atoi(number)
		if err == nil {
			err = w.Place(r.Context(), partition, name)
		}
		answer(rw, nil, err)
	default:
		w.locks.Serve(rw, r, body)
	}
}

// answer answers a call that has failed with err, or has the result v, nil for none. Only a key that is not held or
// quarantined is not found.
func answer(rw *link.ResponseWriter, v any, err error) {
	var body []byte
	if err == nil && v != nil {
		body, err = json.Marshal(v)
	}
	switch {
	case errors.Is(err, status.ErrNotLocked), errors.Is(err, status.ErrNotQuarantined):
		locks.Answer(rw, http.StatusNotFound, []byte(err.Error()))
	case err != nil:
		locks.Answer(rw, http.StatusServiceUnavailable, []byte(err.Error()))
	case len(body) > calls.MaxAnswer:
		locks.Answer(rw, http.StatusInternalServerError, []byte("worker: the answer is too long"))
	default:
		locks.Answer(rw, http.StatusOK, body)
	}
}

// Loads returns what the partitions that this worker serves cost lately, and the worker's weight. Only a
// question updates the averages, at most once a second. The first one returns the averages since the
// worker's start. An execution counts when it ends. The result must not be changed.
func (w *Worker) Loads() status.Loads {
	l := w.keys.Loads()
	l.Weight = w.cfg.Weight
	return l
}

// Release ends the quarantine of a key, see [gateway.QuarantinedError]. by is for the log. If the key is not
// quarantined, the error wraps [status.ErrNotQuarantined].
func (w *Worker) Release(ctx context.Context, key, by string) error {
	return w.shell.Docket.Release(ctx, key, by)
}
