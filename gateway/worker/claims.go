package worker

import (
	"net/url"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/keyway-go/keyway/internal/status"
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

func (c *claims) note(m status.KeyMismatch) {
	c.mismatches.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.last) == maxMismatches {
		c.last = slices.Delete(c.last, 0, 1)
	}
	c.last = append(c.last, m)
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
