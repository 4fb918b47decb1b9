package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/site"
)

// However an execution's context is used before, it says why it ended.
func TestExecutionContextEnds(t *testing.T) {
	type expectation struct{ err, cause error }
	callers := errors.New("the caller's reason")
	uses := map[string]func(ctx context.Context) context.Context{
		"untouched":  func(ctx context.Context) context.Context { return ctx },
		"waited for": func(ctx context.Context) context.Context { ctx.Done(); return ctx },
		"derived": func(ctx context.Context) context.Context {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			t.Cleanup(cancel)
			return ctx
		},
		"value": func(ctx context.Context) context.Context { return context.WithValue(ctx, t, 1) },
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := site.New(t, 16)
				store := &site.CutStore{Store: c.Store}
				w := c.StartOwner(func(cfg *worker.Config) { cfg.Store = store })
				check := func(what string, ctx context.Context, want expectation) {
					t.Helper()
					if err, cause := ctx.Err(), context.Cause(ctx); err != want.err || !errors.Is(cause, want.cause) {
						t.Errorf("%s: %v, cause %v", what, err, cause)
					}
					select {
					case <-ctx.Done():
						if want.err == nil {
							t.Errorf("%s: done", what)
						}
					default:
						if want.err != nil {
							t.Errorf("%s: not done", what)
						}
					}
				}
				do := func(ctx context.Context, fn func(ctx context.Context)) {
					t.Helper()
					if err := w.Do(ctx, "k", func(x gateway.Execution) error { fn(x.Context()); return nil }); err != nil {
						t.Fatal(err)
					}
				}

				var kept context.Context
				do(t.Context(), func(ctx context.Context) {
					kept = use(ctx)
					if token, ok := worker.TokenFrom(kept); !ok || token == 0 {
						t.Errorf("token %d, %v", token, ok)
					}
					check("running", kept, expectation{})
				})
				synctest.Wait()
				check("after its end", kept, expectation{context.Canceled, context.Canceled})
				if _, ok := worker.TokenFrom(kept); !ok {
					t.Error("no token after its end")
				}

				parent, cancel := context.WithCancelCause(t.Context())
				do(parent, func(ctx context.Context) {
					ctx = use(ctx)
					cancel(callers)
					synctest.Wait()
					check("given up", ctx, expectation{context.Canceled, callers})
				})

				var wg sync.WaitGroup
				wg.Go(func() {
					do(t.Context(), func(ctx context.Context) {
						ctx = use(ctx)
						store.Set(true)
						time.Sleep(9 * time.Second)
						check("ownership lost", ctx, expectation{context.Canceled, gateway.ErrOwnershipLost})
					})
				})
				wg.Wait()
			})
		})
	}
}

// An execution's context that is asked for while the execution ends, or later,
// when another one has its place, is its own and has ended.
func TestContextAskedForTooLate(t *testing.T) {
	w := site.New(t, 8).StartOwner()
	var askers sync.WaitGroup
	for i := range 2000 {
		got := make(chan context.Context, 3)
		var token int64
		err := w.Do(t.Context(), fmt.Sprint("key-", i%3), func(x gateway.Execution) error {
			token = x.Token()
			askers.Go(func() {
				defer close(got)
				for range cap(got) {
					got <- x.Context()
				}
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		askers.Go(func() {
			for ctx := range got {
				if other, ok := worker.TokenFrom(ctx); ctx.Err() == nil || ok && other != token {
					t.Errorf("the context of token %d has %d, and %v after its end", token, other, ctx.Err())
				}
			}
		})
	}
	askers.Wait()
}
