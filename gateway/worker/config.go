package worker

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/conns"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/spool"
	"github.com/keyway-go/keyway/gateway/worker/internal/ownership"
	"github.com/keyway-go/keyway/internal/appwork"
)

// Config configures a [Worker]. Members and Store are required.
type Config struct {
	Members gateway.Members // as a member with a Name, and an Addr on which the worker takes requests
	Store   Store           // opened with the settings of Members

	Limits
	App

	// NewCluster skips the worker's own wait of one TTL before its first claim on a store where
	// nothing was ever claimed. Waits that the store itself requires remain, see store.Config. It
	// is for the first start of a cluster, and for a store that begins when it is started, on the
	// machine of all its workers.
	NewCluster bool

	// ServeWithoutStore keeps serving past the lease while the store cannot be reached and the view
	// of the cluster does not change. It is unsafe if the network is split. Default: stop at the
	// admit deadline.
	ServeWithoutStore bool

	// Previous are incarnations whose processes are provably dead, each with how long after the
	// start its app may continue: 0 if it has none. They are released then, so their partitions are
	// taken over.
	Previous map[string]time.Duration

	// AtApp records the executions at the app of a sidecar, so that Previous of a later process can
	// say that there were none. Default: nothing is recorded.
	AtApp *appwork.Record

	// OnIncarnation is called with the id of each incarnation before that can own anything, so that
	// the id can be recorded for Previous. Its error ends Start; later errors are logged. Default:
	// nothing.
	OnIncarnation func(id string) error

	// OnHold is called before an incarnation promises keys to other members for the first time
	// (client.Client.Lock). Since these may continue for a TTL after this process has died, the
	// incarnation must not be one of a later process's Previous. Calls for such keys fail while
	// OnHold fails, and also if it is nil although OnIncarnation is not. Default: nothing.
	OnHold func(id string) error

	// OnPeers is called with the gossip addresses of the store's live sessions when they change.
	// Gossip may have lost these members and can join them. It must not block. Default: nothing.
	OnPeers func(gossip []string)

	// OnPlacements is called with the placements in the store, and the version of that, when they change:
	// partitions that should not go by the ring. The views of Members then go by them. Default: there are
	// none.
	OnPlacements func(text string, version int64) error

	// Direct makes a [Server] also take requests that come neither through a router nor from
	// another member of the cluster. Default: they get 403, since their senders could choose any
	// key.
	Direct bool

	// PeerTLS makes a [Server] accept only TLS connections: from members, with a certificate, and
	// with Direct from others, without one. The settings of Members must say that members use TLS
	// too. If it is optional, connections without TLS are also accepted, as by default.
	PeerTLS *gateway.PeerTLS

	// Keys find the key in requests that Direct allows. Default: the header [gateway.HeaderKey],
	// percent-encoded.
	Keys gateway.KeySources

	// AwaitApp keeps the worker off the ring until a sidecar exists (sidecar.New) and its app has
	// answered. Without it the app counts as up until the first probe.
	AwaitApp bool

	// TracerProvider makes spans of executions (docs/observability.md). Their parents are the spans
	// of callers' contexts, or those in the requests' field Traceparent. The caller must shut it
	// down. TraceKeys adds keys to spans as well as their hashes. Default: none.
	TracerProvider trace.TracerProvider
	TraceKeys      bool

	Logger *slog.Logger // default: discard
}

// Store keeps the sessions and records that determine ownership: that of fallback/store or of
// fallback/etcd. Packages outside of this module cannot implement it.
type Store = ownership.Store

// App describes the code that answers requests: a handler, or the app behind a sidecar.
type App struct {
	// Upgrades are the protocols that a client and an app may switch to, as in router.Config.
	// Default: websocket; empty but not nil: none.
	Upgrades []string

	// GRPC says that the handler takes gRPC calls over HTTP/2. Their bodies are streamed to it with
	// the key held. Routers learn of it by gossip. A sidecar requires it for an app at h2c:// and
	// refuses it for other apps. Default: bodies are read completely before their keys are asked
	// for.
	GRPC bool

	// UpstreamHealth is a path of the app behind a sidecar, such as /healthz. A GET request probes
	// it every second, and every 100 ms while it fails or just after a connection to the app
	// failed. The app is up if the answer comes within a second with a status of 2xx or 3xx, and
	// down after two failures in a row. If it goes down again within 5 min of coming up, it must
	// answer for 1 s before the worker joins others on the ring, the next time for 2 s, and so on
	// up to 1 min. Default: it is up if a connection can be made.
	UpstreamHealth string

	// Batch is a path of the app behind a sidecar, such as /batch. If it is set, POST requests that
	// wait for one key go to the app together, if they have a JSON body of known length, at most 64
	// KiB. The app gets them as an array in one POST to the path and answers with an array
	// (docs/batch.md). Batches bounds them. Default: each goes to the app by itself.
	Batch   string
	Batches BatchConfig
}

// Limits bound the queues, waits, memory, connections and durations of a [Worker]. A number or a
// duration of 0 stands for the default; a negative one is an error of [Start].
type Limits struct {
	QueuePerKey  int           // requests that may wait for one key; default 1000
	Queue        int           // requests that may wait for any key; default 100,000; see StreamsPerLink
	MaxAwaiting  int           // requests that may wait for a partition to arrive; default 10,000
	AwaitTimeout time.Duration // and how long, if it can be sent elsewhere; default 2 s

	// MaxWait bounds every wait for a key: of a call in this program, such as [Worker.Do], even
	// while no worker serves the key, and of a request, which then gets 503 with Retry-After.
	// Default 30 s.
	MaxWait time.Duration

	// MaxHolds bounds the keys that other members hold here or wait for. A call over the bound
	// fails with [gateway.ErrBusy]. So does a call that brings the keys and labels of a partition,
	// which move with it, above about 1 MiB. Default 1,000,000.
	MaxHolds int

	// MaxLease is how long a member may hold a key without renewing it. Longer leases are refused.
	// A lease longer than the session TTL is written to the store, and outlives this
	// worker. Default 24 h, or the session TTL if that is longer.
	MaxLease time.Duration

	// Weight is the worker's capacity, relative to others: what is placed by load gives a worker of
	// weight 2 twice the load of one of weight 1. Default 1; at most 100.
	Weight float64

	// SlowKey is how long a key may be held, or waited for, before that is logged once, with the
	// token of the execution that holds it. The log line may come up to half of SlowKey later. At
	// most 16 keys are logged at a time. Default 10 s.
	SlowKey time.Duration

	// StreamsPerLink is how many requests [Server] takes at once on one link, which is as many as
	// one router or client has there. At most half of them may wait for a key, or for a partition
	// to arrive; more fail with [gateway.ErrBusy], so requests for other keys get through. Default
	// 16,384.
	StreamsPerLink int

	// AppConnections bounds the connections to the app behind a sidecar for simple requests over
	// the link, one for each request under way. All other requests together, such as upgrades and
	// bodies of unknown length, may use four times as many. A request over the bound waits for 5 s,
	// which is logged. Then it fails with 503 and Retry-After, without having reached the app.
	// Default 4096.
	AppConnections int

	// AnswerMemory and AnswerFiles bound the bytes of answers that their clients have not read, in
	// memory and in temporary files. A worker takes an app's answer at the app's speed, and frees
	// the key at the answer's end even if the client reads slowly. AnswerMax bounds both for one
	// answer, and a client of a router may use a quarter of each. When there is no more room the
	// app waits, with its key held, for as long as Timeout allows. Default: 64 MiB; 4 GiB, or half
	// of the free space in [os.TempDir] if that is less; and 1 GiB.
	AnswerMemory, AnswerFiles, AnswerMax int64

	// MaxBody bounds the bytes of a body that comes to a [Server] of the worker over plain HTTP.
	// The body is read completely before its key is asked for, except for gRPC (see App.GRPC).
	// Default 1 GiB.
	MaxBody int64

	// BodyFiles bounds the bytes of temporary files for these bodies; up to 64 KiB of each are in
	// memory instead. Beyond it a request is answered with 503. Default: 4 GiB, or half of the free
	// space in BodyDir if that is less.
	BodyFiles int64

	// BodyDir is the directory of those files. Default: [os.TempDir]. If no file can be made there,
	// bodies are kept in memory only, up to 64 MiB for all.
	BodyDir string

	// MaxConnections bounds the connections to a [Server] of the worker. One eighth is reserved for
	// routers' links; a link over this bound is refused. Another eighth is for connections not yet
	// identified or accepted. When it is full, a new connection replaces the longest waiting one,
	// after at least a second. HTTP connections share the rest. When that is full, new ones wait,
	// and the longest idle one is closed, after at least a second. The process keeps 128 of the
	// files that it may open (RLIMIT_NOFILE) for other uses, or a quarter if that is more. Default:
	// half of the rest, since a request may need a connection to an app too. The worker warns of a
	// bound above that rest.
	MaxConnections int

	// Timeout bounds each execution of a request that [Worker.Handler] or a sidecar takes, from the
	// moment when it gets its key; calls of this program, such as [Worker.Do], have their contexts
	// instead. After Timeout the execution is cancelled with the cause [gateway.ErrTimeout], and
	// its client gets 504 if it has no answer. This may happen up to a tenth of Timeout late, or
	// 0.1 s if that is less. Behind a sidecar the key is free when the app has closed the
	// connection, or 0.15 TTL later. A handler that ignores its context keeps the key. Streams that
	// hold their keys count too. Default 1 min.
	Timeout time.Duration

	// AbandonedTimeout is how long the app behind a sidecar may continue with a request whose
	// client has left, before its connection is given up and the key is free. It also bounds how
	// long a stream continues after its client has closed its side. Leave ordinary requests the
	// time to finish: an app that ignores the end of its connection would otherwise work at the
	// same time as the next request. Default 1 min, the silence that proxies commonly allow an app.
	// The worker may notice it a tenth or two of it late.
	AbandonedTimeout time.Duration
}

// WithDefaults returns l with defaults for fields that are 0.
func (l Limits) WithDefaults() Limits {
	l, _ = l.complete()
	return l
}

// complete is WithDefaults, and returns an error about a negative field.
func (l Limits) complete() (_ Limits, err error) {
	hop.Default(&err, "worker: Limits.QueuePerKey", &l.QueuePerKey, 1000)
	hop.Default(&err, "worker: Limits.Queue", &l.Queue, 100_000)
	hop.Default(&err, "worker: Limits.MaxAwaiting", &l.MaxAwaiting, 10_000)
	hop.Default(&err, "worker: Limits.AwaitTimeout", &l.AwaitTimeout, 2*time.Second)
	hop.Default(&err, "worker: Limits.MaxWait", &l.MaxWait, 30*time.Second)
	hop.Default(&err, "worker: Limits.MaxHolds", &l.MaxHolds, 1_000_000)
	hop.Default(&err, "worker: Limits.MaxLease", &l.MaxLease, 24*time.Hour)
	hop.Default(&err, "worker: Limits.SlowKey", &l.SlowKey, 10*time.Second)
	hop.Default(&err, "worker: Limits.StreamsPerLink", &l.StreamsPerLink, 16<<10)
	hop.Default(&err, "worker: Limits.AppConnections", &l.AppConnections, 4096)
	hop.Default(&err, "worker: Limits.AnswerMemory", &l.AnswerMemory, 64<<20)
	hop.Default(&err, "worker: Limits.AnswerFiles", &l.AnswerFiles, spool.DefaultFiles(""))
	hop.Default(&err, "worker: Limits.AnswerMax", &l.AnswerMax, 1<<30)
	hop.Default(&err, "worker: Limits.MaxBody", &l.MaxBody, 1<<30)
	hop.Default(&err, "worker: Limits.BodyFiles", &l.BodyFiles, spool.DefaultFiles(l.BodyDir))
	hop.Default(&err, "worker: Limits.MaxConnections", &l.MaxConnections, conns.Default(conns.MaxOpenFiles()))
	hop.Default(&err, "worker: Limits.Timeout", &l.Timeout, time.Minute)
	hop.Default(&err, "worker: Limits.AbandonedTimeout", &l.AbandonedTimeout, time.Minute)
	if l.Weight = cmp.Or(l.Weight, 1); err == nil && !(l.Weight > 0 && l.Weight <= 100) {
		err = fmt.Errorf("worker: Limits.Weight is %v: it must be above 0 and at most 100, and 0 stands for 1", l.Weight)
	}
	return l, err
}

// BatchConfig configures a [Batcher]. A field of 0 stands for the default; a
// negative one is an error of [NewBatcher].
type BatchConfig struct {
	// MaxItems is how many items a batch has at most. Default 256.
	MaxItems int

	// MaxBytes bounds the size of all items of a batch, as Batcher.Size counts them. A larger item
	// has a batch of its own. Default 1 MiB.
	MaxBytes int

	// Linger is how long a batch waits for more items, with its key held, until it has MaxItems or
	// the next in the queue is no item. Default 0: a batch takes the items that already wait. Under
	// load these are the items that came while the previous batch ran.
	Linger time.Duration
}
