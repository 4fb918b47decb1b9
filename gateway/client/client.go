// Package client is for Go programs that are members of a cluster: it makes calls for keys
// straight to the workers that own them, and takes locks there.
//
// A [Client] is open until [Client.Close]. After that its calls fail, and locks that were not
// released expire. [Client.RoundTrip] sends a request. It stands in call.go, the request's body in
// upload.go, and the answer in reply.go. With [Client.Do] a function runs with a key held, and
// [Client.Lock] holds the key until [Lock.Unlock].
//
// A [Lock] is held, lost or unlocked. Its caller unlocks it. The Client renews its locks in the
// background, all locks at one owner together, and follows a lock to its partition's next owner.
// The lock is lost when the owner says so, or when its lease has passed, counted from before the
// last confirmed renewal was sent. Its context ends then, before another caller can get the key.
// The machine in internal/holder decides all this, and internal/holding drives it.
//
// The calls are in lock.go. holds_acquire.go takes a key, holds.go keeps it, holds_calls.go asks its
// owner, and holds_turns.go passes it on among callers of the Client.
package client

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/internal/local"
	"github.com/keyway-go/keyway/gateway/internal/operator"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/gateway/internal/spool"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/ring"
)

// Config configures a [Client]. Members is required.
type Config struct {
	Members gateway.Members // of the workers' cluster

	// Keys are where requests have their keys. Default: the header
	// [gateway.HeaderKey], percent-encoded.
	Keys gateway.KeySources

	gateway.Limits

	// Dial and PeerTLS are as in router.Config.
	Dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	PeerTLS *gateway.PeerTLS

	// Local is the worker of this process, which takes calls for its keys in memory:
	// worker.Worker.Local. Default: none.
	Local local.Worker

	// TracerProvider makes spans of RoundTrip and of calls for locks. The parent of such a span is
	// the span of the context, or else the one in the request's field Traceparent. TraceKeys adds
	// keys to the spans as well as their hashes. Default: none.
	TracerProvider trace.TracerProvider
	TraceKeys      bool

	Logger *slog.Logger // default: discard
}

// Client makes calls for keys straight to the workers that own them. It is an [http.RoundTripper].
// Make one with [New]. It is open until Close sets closed; holder has the changing state of its
// locks.
type Client struct {
	workers *send.Workers
	local   local.Worker
	keys    gateway.KeySources
	fields  fields.Rules
	budget  *spool.Pool // of bodies
	log     *slog.Logger
	label   string // of holds, for people
	closed  atomic.Bool
	holder  holdings
	spans   *spans.Maker // nil for none
}

// New returns a client, or an error that names the field of Config
// that is missing or out of range. The caller should call [Client.Close] when no
// more calls come.
func New(cfg Config) (*Client, error) {
	o := send.Options{Members: cfg.Members, Limits: cfg.Limits, Dial: cfg.Dial, Local: cfg.Local, PeerTLS: cfg.PeerTLS, Logger: cfg.Logger}
	if err := o.Complete("client"); err != nil {
		return nil, err
	}
	workers, budget, err := o.Open("client", 1)
	if err != nil {
		return nil, err
	}
	rules, err := fields.NewRules(cfg.Keys, nil)
	if err != nil {
		return nil, err
	}
	client := &Client{workers: workers, local: cfg.Local, keys: cfg.Keys, fields: rules, budget: budget, log: o.Logger, spans: spans.New(cfg.TracerProvider, cfg.TraceKeys)}
	if name := o.Members.Self().Name; holds.IsLabel(name) {
		client.label = name
	}
	client.holder.init(client, o.Members.Settings().WithDefaults().TTL)
	return client, nil
}

// Owner returns the worker that is asked first for key: the owner that workers have reported, or
// else the owner by the ring. Its error wraps [gateway.ErrNoKey] or [gateway.ErrBadKey], or
// [gateway.ErrUnavailable] if no worker is known.
func (c *Client) Owner(key string) (ring.Member, error) {
	if err := keysource.Check(key); err != nil {
		return ring.Member{}, err
	}
	p := c.workers.Ring.Partition(key)
	owner, known := c.workers.Routes.Owner(p)
	if !known {
		return ring.Member{}, fmt.Errorf("%w: no node is known to own key %q, of partition %d", gateway.ErrUnavailable, key, p)
	}
	return owner.Member, nil
}

// RoundTrip implements [http.RoundTripper]: it sends the request to the worker that owns its key,
// and returns the answer. It waits up to Limits.Hold while the key's partition has no reachable
// owner. A request is sent to another worker only if it has provably not started, because the first
// one could not be reached or has refused it.
//
// The URL's scheme is http or empty. Its host, or the request's Host, is for the app alone and does
// not select the worker. Fields that only Keyway may set, those of one connection (such as Upgrade)
// and trailers are left out; nothing is compressed. A body is read completely before any worker is
// asked for the key, so an answer cannot begin before the body ends. Answers and their trailers are
// streamed. Interim answers and an [httptrace.ClientTrace] are ignored.
//
// An error names the key. It wraps [gateway.ErrNoKey] or [gateway.ErrBadKey],
// [gateway.ErrUnavailable] if no worker took the request in time, [gateway.ErrBusy] if too many
// requests wait, or the cause of the context's end. [gateway.ErrMayHaveRun] says that the request
// may have run; errors of the answer's Body wrap it too. Any other status of a worker or its app is
// an answer.
func (c *Client) RoundTrip(req *http.Request) (*http.Response, error) {
	x := &call{client: c, in: req}
	res, err := x.roundTrip()
	if err != nil {
		x.finish(err)
		return nil, x.failure(err)
	}
	return res, nil
}

// Operator returns an operator of the cluster. It knows no routes.
func (c *Client) Operator() *operator.Operator { return operator.New(c.workers, nil) }

// Close closes the connections to workers. Calls under way continue. Calls that wait for an owner
// and later calls fail. Close may be called more than once.
func (c *Client) Close() error {
	c.closed.Store(true)
	c.holder.close()
	c.workers.Close()
	return nil
}
