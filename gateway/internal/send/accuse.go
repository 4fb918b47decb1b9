package send

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/calls"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/internal/suspects"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

const (
	accuseAfter = 20 * time.Millisecond // the first request whose connection was lost: others follow
	accusePause = 200 * time.Millisecond
	accuseTries = 100
)

// accusations are keys of requests that had been sent to workers whose connections were then lost. If a worker
// has died, its keys are suspects (package suspects). One goroutine tells a living worker while there are any.
type accusations struct {
	ctx   context.Context // until the workers are closed
	stop  context.CancelFunc
	ended sync.WaitGroup // of the goroutine

	mu      sync.Mutex
	book    suspects.Book
	telling bool
}

// accuse notes a request that has failed with err at the worker of t, if the worker may have died of it. A worker that
// leaves has not: it cuts off what takes too long.
func (ws *Workers) accuse(t routing.Target, key string, err error) {
	if key == "" || !errors.Is(err, link.ErrLost) {
		return
	}
	if m, ok := ws.Members.View().Find(t.Incarnation); t.State == ring.StateLeaving || ok && m.State == ring.StateLeaving {
		return
	}
	a := &ws.accusations
	a.mu.Lock()
	defer a.mu.Unlock()
	a.book = a.book.Accuse(t.Incarnation, time.Now(), []uint64{suspects.Hash(key)})
	if !a.telling && a.ctx.Err() == nil {
		a.telling = true
		a.ended.Go(ws.tellAccusations)
	}
}

// close ends the goroutine.
func (a *accusations) close() {
	a.mu.Lock()
	a.stop()
	a.mu.Unlock()
	a.ended.Wait()
}

// tellAccusations tells workers until one has written down what there is, or there was none for long.
func (ws *Workers) tellAccusations() {
	a := &ws.accusations
	wake.Sleep(accuseAfter, a.ctx.Done())
	for range accuseTries {
		a.mu.Lock()
		told := a.book
		a.telling = len(told.Deaths) > 0
		a.book = suspects.Book{}
		a.mu.Unlock()
		if len(told.Deaths) == 0 {
			return
		}
		if ws.tell(told) {
			continue
		}
		a.mu.Lock()
		for _, d := range a.book.Deaths {
			told = told.Accuse(d.Worker, time.Unix(d.At, 0), d.Keys)
		}
		a.book = told
		a.mu.Unlock()
		if !wake.Sleep(accusePause, a.ctx.Done()) {
			return
		}
	}
	a.mu.Lock()
	a.telling, a.book = false, suspects.Book{}
	a.mu.Unlock()
}

// tell tells one of the workers that are not accused, and reports whether it has noted that.
func (ws *Workers) tell(b suspects.Book) bool {
	workers := slices.DeleteFunc(ws.Members.View().Workers(), func(m ring.Member) bool {
		return !m.Link || slices.ContainsFunc(b.Deaths, func(d suspects.Death) bool { return d.Worker == m.Incarnation })
	})
	if len(workers) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ws.accusations.ctx, time.Second)
	defer cancel()
	p := ws.Peer(workers[rand.N(len(workers))])
	p.Use()
	defer p.Leave()
	status, _, err := p.Ask(ctx, &link.Request{Method: calls.Accuse}, []byte(b.String()), calls.MaxAnswer)
	return err == nil && status == http.StatusOK
}
