package stores

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/ring"
)

// Handle is what the handles of all stores have in common: what they know of the store, and how they
// end. mu guards what calls learn.
type Handle struct {
	Presence
	Given      ring.Settings   // with their defaults; Settings has the store's identity too
	NewCluster atomic.Bool     // of a handle's configuration, until the first generation is known
	Closing    context.Context // ends with Close

	stop    context.CancelFunc
	pkg     string  // of the store, for errors
	answers []error // of the store

	mu      sync.Mutex   // guards what follows, and so running.Go against running.Wait
	id      ring.StoreID // the store's identity; 0 when not known
	known   []string     // the latest generations, the present one last
	closed  bool
	running sync.WaitGroup
}

// NewHandle returns a handle of a package's store, which has answers of its own among the errors, if any.
func NewHandle(pkg string, settings ring.Settings, answers ...error) (*Handle, error) {
	settings = settings.WithDefaults()
	if err := settings.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", pkg, err)
	}
	common := []error{records.ErrGeneration, records.ErrSessionGone, ring.ErrSettings, ErrFields, ErrClosed, context.Canceled}
	h := &Handle{Given: settings, pkg: pkg, answers: append(answers, common...), id: settings.Store}
	h.Closing, h.stop = context.WithCancel(context.Background())
	return h, nil
}

// Settings returns the settings with the store's identity, if that is known.
func (h *Handle) Settings() ring.Settings {
	h.mu.Lock()
	defer h.mu.Unlock()
	settings := h.Given
	settings.Store = h.id
	return settings
}

// Identity returns the store's known identity, or a new one for a store that has none.
func (h *Handle) Identity() ring.StoreID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return cmp.Or(h.id, NewID())
}

// maxKnown bounds how many generations a handle remembers.
const maxKnown = 16

// Learn records the present generation and the store's identity. It reports whether the generation is new.
func (h *Handle) Learn(gen string, id ring.StoreID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.id = id
	if slices.Contains(h.known, gen) {
		return false
	}
	h.known = append(h.known, gen)
	h.known = h.known[max(0, len(h.known)-maxKnown):]
	return true
}

// Knows reports whether a generation was learned.
func (h *Handle) Knows(gen string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.known, gen)
}

// Left names the generations before the present one.
func (h *Handle) Left() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.known[:max(0, len(h.known)-1)], " ")
}

// Failed returns the error of a call. Unless the store has answered, it says where that is and why it
// cannot be used.
func (h *Handle) Failed(call string, err error) error {
	for _, answer := range h.answers {
		if errors.Is(err, answer) {
			return fmt.Errorf("%s: %s for cluster %q: %w", h.pkg, call, h.Given.Cluster, err)
		}
	}
	if err != nil {
		return h.Wrap(err)
	}
	return nil
}

// Go runs f in a goroutine that Close waits for, and reports false when the handle is closed.
func (h *Handle) Go(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.running.Go(f)
	return true
}

// Watch returns the hints of watch, which runs until ctx ends or the handle is closed.
func (h *Handle) Watch(ctx context.Context, watch func(ctx context.Context, hints chan records.Hint)) <-chan records.Hint {
	hints := make(chan records.Hint, 1)
	runs := h.Go(func() {
		defer close(hints)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(h.Closing, cancel)()
		watch(ctx, hints)
	})
	if !runs {
		close(hints)
	}
	return hints
}

// Close closes the clients, and waits for what runs. It may be called again.
func (h *Handle) Close(clients ...io.Closer) (err error) {
	h.mu.Lock()
	first := !h.closed
	h.closed = true
	h.mu.Unlock()
	if first {
		h.stop()
		for _, client := range clients {
			err = errors.Join(err, client.Close())
		}
	}
	h.running.Wait()
	return err
}
