//go:build linux

package main

import (
	"net/http"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
)

// item is a request in a batch.
type item = worker.Item[job, outcome]

// batches returns a handler that runs the requests which wait for a key as one
// critical section.
func (a *app) batches(node *keyway.Node) (http.Handler, error) {
	b, err := keyway.NewBatcher(node, keyway.BatchConfig{}, a.executeBatch)
	if err != nil {
		return nil, err
	}
	return worker.BatchHandler(b, a.job, reply), nil
}

// executeBatch is execute for the jobs of a batch, which are all for one key and
// of one work: they read once and write once, and each has a result of its own.
func (a *app) executeBatch(x gateway.Execution, items []*item) error {
	first := items[0].In
	begun := a.clock.Now()
	r, err := a.table.Begin(first.index, x.Token())
	if err != nil {
		return err
	}
	value := r.Value()
	var writes int64
	for _, it := range items {
		if !it.In.read {
			writes++
		}
		it.Out = outcome{key: first.key, value: value + writes, begun: begun}
	}
	first.read, first.count = writes == 0, writes
	if err := a.do(x.Context(), first); err != nil {
		r.End()
		return err
	}
	return r.WriteMany(writes, int64(len(items))-writes)
}
