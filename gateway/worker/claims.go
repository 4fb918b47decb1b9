package worker

import (
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/http1"
)

// maxMismatches is how many mismatches are kept for [Worker.Explain].
const maxMismatches = 64

// claims compares the keys that apps say they worked on with the keys of their executions.
// An app says it in the field [gateway.HeaderKey] of its answer.
type claims struct {
	mismatches atomic.Int64

	mu   sync.Mutex           // guards last
	last []status.KeyMismatch // the oldest first
}

// checkClaim compares the first of n values of [gateway.HeaderKey] with the key of x.
func (w *Worker) checkClaim(x keyed.Execution, said string, n int) {
	if n == 0 {
		return
	}
	key := keyed.KeyOf(x.Key)
	if claimed, err := url.PathUnescape(said); n == 1 && err == nil && claimed == key {
		return
	}
	m := status.KeyMismatch{Key: strings.Clone(key), App: strings.Clone(said), Values: n, At: time.Now()}
	if p := x.Policy(); p != nil {
		m.Route = p.Route
	}
	w.log.Error("the app worked on another key than its request holds, so exclusion does not cover it: let the app use Keyway-Key of the request instead of reading the request again",
		"route", m.Route, "key", key, "app", said, "values", n)
	c := &w.claims
	c.mismatches.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.last) == maxMismatches {
		c.last = slices.Delete(c.last, 0, 1)
	}
	c.last = append(c.last, m)
}

func (w *Worker) checkClaimOf(x keyed.Execution, fields []http1.Field) {
	said, n := "", 0
	for i := range fields {
		if f := &fields[i]; len(f.Name) == len(gateway.HeaderKey) && strings.EqualFold(grammar.Text(f.Name), gateway.HeaderKey) {
			said = grammar.Text(f.Value)
			n++
		}
	}
	w.checkClaim(x, said, n)
}

// of returns the latest mismatch of a key: an execution held it, or the app said it.
func (c *claims) of(key string) *status.KeyMismatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range slices.Backward(c.last) {
		if claimed, err := url.PathUnescape(m.App); m.Key == key || err == nil && claimed == key {
			return &m
		}
	}
	return nil
}
