package keyway

import "github.com/keyway-go/keyway/gateway/worker"

// Batcher runs a handler for many calls of one key at once, at the node that owns the
// key; elsewhere the error of its Do is a [*NotOwnerError], which names the owner. While
// a batch of a key runs, calls for the key wait for the next one. Make one with
// [NewBatcher].
type Batcher[In, Out any] = worker.Batcher[In, Out]

// BatchConfig bounds the batches of a [Batcher]. The zero value is useful.
type BatchConfig = worker.BatchConfig

// Item is a call of [Batcher.Do] in its batch: the handler reads In and sets Out
// and Err.
type Item[In, Out any] = worker.Item[In, Out]

// NewBatcher returns a [Batcher] for the keys that the node owns. handler answers the
// calls, in order of arrival; see worker.NewBatcher.
func NewBatcher[In, Out any](n *Node, cfg BatchConfig, handler func(x Execution, items []*Item[In, Out]) error) (*Batcher[In, Out], error) {
	return worker.NewBatcher(n.worker, cfg, handler)
}
