package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway/internal/appstate"
)

// ErrAppDown means that the app behind a sidecar does not answer, so
// that the worker takes no place on the ring.
var ErrAppDown = errors.New("the app does not answer")

// apps are the apps in other processes that a worker is for.
type apps struct {
	mu   sync.Mutex
	list []*app // guarded by mu
}

// app is an app in another process.
type app struct {
	state atomic.Pointer[appstate.State]
	asked chan struct{} // closed when watch has told of it for the first time
	first sync.Once     // closes asked
}

// WatchApp keeps the worker off the ring while an app in another process does not answer. It begins
// with the given state, and runs watch until the worker is closed. watch calls tell after each
// probe of the app.
func (w *Worker) WatchApp(state appstate.State, watch func(ctx context.Context, tell func(appstate.State))) {
	a := &app{asked: make(chan struct{})}
	a.state.Store(&state)
	w.apps.mu.Lock()
	w.apps.list = append(w.apps.list, a)
	w.apps.mu.Unlock()
	w.shell.Poke()
	w.shell.Go(func(ctx context.Context) {
		watch(ctx, func(s appstate.State) {
			if old := a.state.Swap(&s); (old.Down == nil) != (s.Down == nil) || (old.Delay == nil) != (s.Delay == nil) {
				w.shell.Poke()
			}
			a.first.Do(func() { close(a.asked) })
		})
	})
}

// appTrouble returns why an app keeps the worker off the ring, an [ErrAppDown]; nil for no reason.
// If no other worker serves, an app that has crashed before need only answer.
func (w *Worker) appTrouble(alone bool) error {
	w.apps.mu.Lock()
	defer w.apps.mu.Unlock()
	if len(w.apps.list) == 0 && w.cfg.AwaitApp {
		return fmt.Errorf("%w: there is none yet", ErrAppDown)
	}
	for _, a := range w.apps.list {
		s := a.state.Load()
		if s.Down != nil {
			return s.Down
		}
		if s.Delay != nil && !alone {
			return s.Delay
		}
	}
	return nil
}

// askApps waits until each app was asked for the first time, and returns appTrouble.
func (w *Worker) askApps(ctx context.Context) error {
	w.apps.mu.Lock()
	list := slices.Clone(w.apps.list)
	w.apps.mu.Unlock()
	for _, a := range list {
		select {
		case <-a.asked:
		case <-w.shell.Closed():
		case <-ctx.Done():
		}
	}
	return w.appTrouble(w.shell.Settled())
}

func (w *Worker) appUp() (up, watched bool) {
	w.apps.mu.Lock()
	defer w.apps.mu.Unlock()
	up = true
	for _, a := range w.apps.list {
		up = up && a.state.Load().Down == nil
	}
	return up, len(w.apps.list) > 0
}
