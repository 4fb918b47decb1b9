package worker

import (
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/conns"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/spool"
)

// Config configures a [Worker]. Members and Store are required.
type Config struct {
	Members gateway.Members // as a member with a Name, and an Addr on which the worker takes requests
	Store   Store           // opened with the settings of Members

	Limits
	App

	// NewCluster skips the worker's own wait of one TTL before its first claim on
	// a store in which nothing was ever claimed. What the store itself asks to
	// wait stays, see store.Config. It is for the first start of a cluster, and
	// for a store that was begun when it was started, on the machine of all its
	// workers.
	NewCluster bool

	// ServeWithoutStore keeps serving past the lease while the store cannot be
	// reached and the view of the cluster does not change. It is unsafe when
	// the network is cut in two. Default: stop at the admit deadline.
	ServeWithoutStore bool

	// Previous are incarnations of which the caller can prove that their
	// processes are dead. They are released on start, so that what they owned
	// is taken over at once.
	Previous []string

	// OnIncarnation is called with the id of each incarnation before that can
	// own anything, so that it can be written down for Previous. Its error ends
	// Start; later ones are logged. Default: nothing.
	OnIncarnation func(id string) error

	// OnHold is called before an incarnation promises keys to other members for the
	// first time (client.Client.Lock): they may work on for a TTL after this
	// process has died, so the incarnation must not be one of a later process's
	// Previous. While it fails, and where it is nil although OnIncarnation is not,
	// such calls fail. Default: nothing.
	OnHold func(id string) error

	// OnPeers is called with the gossip addresses of the store's live sessions
	// when they change: members to join that gossip may have lost sight of. It
	// must not block. Default: nothing.
	OnPeers func(gossip []string)

	// Direct makes a [Server] take requests that did not come through a router, or
	// from another member of the cluster. Default: they get 403, as any of them
	// could choose the key that it holds.
	Direct bool

	// PeerTLS has a [Server] take connections over TLS only: those of members, who show
	// a certificate, and with Direct others, who need none. The settings of Members must
	// say that members speak TLS too. If it is optional, connections without TLS are taken
	// as by default, when it takes only these.
	PeerTLS *gateway.PeerTLS

	// Keys find the key in such requests. Default: the header
	// [gateway.HeaderKey], percent-encoded.
	Keys gateway.KeySources

	// AwaitApp keeps the worker off the ring until a sidecar was made (sidecar.New) and its
	// app has answered. Without it the app counts as up until it was asked. The app of
	// Previous may have outlived them: they are released 0.15 TTL after the start, by when
	// it must have ended what it did for connections that are closed.
	AwaitApp bool

	// TracerProvider makes spans of executions (docs/observability.md), as parts of the
	// traces that requests name in the field Traceparent, or of the spans of callers' contexts. It
	// is the caller's to shut down. TraceKeys puts keys into spans, and not only their hashes.
	// Default: none.
	TracerProvider trace.TracerProvider
	TraceKeys      bool

	Logger *slog.Logger // default: discard
}

// App describes what answers requests: a handler, or the app behind a sidecar.
type App struct {
	// Upgrades are the protocols to which a client and an app may change, as in
	// router.Config. Default: websocket; empty but not nil: none.
	Upgrades []string

	// GRPC says that the handler takes calls of gRPC over HTTP/2: their
	// bodies reach it as they come, with the key held. Routers learn it by gossip.
	// A sidecar needs it if its app's URL is h2c://, and refuses it for other apps.
	// Default: bodies are read whole before their keys are asked for.
	GRPC bool

	// UpstreamHealth is a path of the app behind a sidecar, such as /healthz.
	// The app is asked for it by a GET request every second, and every 100 ms while it
	// fails, or just after a connection to it failed. It is up if the answer comes
	// within a second with a status of 2xx or 3xx, and down after two failures in a
	// row. An app that goes down again within 5 min of having come up has to answer
	// for 1 s, after the next time for 2 s, and so on up to 1 min, until the worker
	// joins others on the ring. Default: it is up if a connection can be made.
	UpstreamHealth string

	// Batch is a path of the app behind a sidecar, such as /batch. If it is
	// set, the POST requests that wait for one key and have a JSON body of known
	// length, at most 64 KiB, go to the app together: as one POST to the path with
	// an array of them, which the app answers with an array (docs/batch.md). Batches
	// bounds them. Default: each goes to the app by itself.
	Batch   string
	Batches BatchConfig
}

// Limits bound the queues, waits, memory and connections of a [Worker], and what may
// take how long. A number or a duration of 0 stands for the default; a negative one is
// an error of [Start].
type Limits struct {
	QueuePerKey  int           // requests that may wait for one key; default 1000
	Queue        int           // requests that may wait for any key; default 100,000; see StreamsPerLink
	MaxAwaiting  int           // requests that may wait for a partition to arrive; default 10,000
	AwaitTimeout time.Duration // and how long, if it can be sent elsewhere; default 2 s

	// MaxWait bounds every wait for a key: of a call in this program, such as
	// [Worker.Do], also while nobody serves the key yet, and of a request, which
	// gets 503 with Retry-After then. Default 30 s.
	MaxWait time.Duration

	// MaxHolds bounds the keys that are held here for other members, or that these
	// wait for. A call over the bound fails with [gateway.ErrBusy]. So does one that brings the keys and
	// labels of a partition, which move with it, above about 1 MiB. Default 1,000,000.
	MaxHolds int

	// MaxLease bounds the lease for which a member may hold a key without renewing it. One
	// that is longer than the session TTL is written to the store, and outlives this worker.
	// More is refused. Default 24 h, or the session TTL if that is longer.
	MaxLease time.Duration

	// SlowKey is how long a key may be held, or waited for, until that is logged
	// once, with the token of the execution that holds it: within a half more of
	// it, and at most 16 keys at a time. Default 10 s.
	SlowKey time.Duration

	// StreamsPerLink is how many requests [Server] takes at once on one link. At
	// most half of them may wait for a key, or for a partition to arrive: what
	// exceeds that fails with [gateway.ErrBusy], so that requests for other keys get
	// through. Default 4096.
	StreamsPerLink int

	// AppConnections bounds the connections to the app behind a sidecar
	// for simple requests that come over the link: one for each request under way.
	// For all others together, such as upgraded ones and bodies of unknown length,
	// it is four times as many. A request over the bound waits for 5 s, which is
	// logged, and fails then with 503 and Retry-After: it has not reached the app.
	// Default 4096.
	AppConnections int

	// AnswerMemory and AnswerFiles bound, in bytes, those parts of answers that
	// their clients have not read yet, in memory and in temporary files: an app's
	// answer is taken at the app's speed, and the key is free at its end, however
	// slowly the client reads. AnswerMax bounds them for one answer, and
	// a quarter of each is there for one client of a router. Where there is no more
	// room the app waits, with its key held, for as long as Timeout allows.
	// Default 64 MiB, 4 GiB or half of what is free in [os.TempDir] if that is less,
	// and 1 GiB.
	AnswerMemory, AnswerFiles, AnswerMax int64

	// MaxBody is how many bytes the body of a request may have that comes to a
	// [Server] of the worker over plain HTTP. It is read whole before its key is asked
	// for, unless it is one of gRPC (see App.GRPC). Default 1 GiB.
	MaxBody int64

	// BodyFiles bounds the bytes of temporary files for what of such bodies is not
	// in memory, 64 KiB of each at most. What exceeds it is answered with 503. Default:
	// 4 GiB, or half of what is free in BodyDir if that is less.
	BodyFiles int64

	// BodyDir is where those files are. Default: [os.TempDir]; if no file can be made
	// there, bodies are in memory only, as far as 64 MiB are enough for all.
	BodyDir string

	// MaxConnections bounds the connections to a [Server] of the worker. One eighth
	// is reserved for routers' links; a link over this bound is refused. Another
	// eighth is for connections not yet identified or accepted. When it is full, a new
	// one takes the place of the one that has waited longest, if that is a second at
	// least. HTTP connections share the rest. When it is full, they wait, and the one
	// without a request for longest is closed, if that is a second at least.
	// Default: half of the files that the process may have open (RLIMIT_NOFILE), less
	// 128 or a quarter, whichever is more, since a request may need a connection to an
	// app too. The worker warns of a bound above the number of these files.
	MaxConnections int

	// Timeout bounds each execution of a request that [Worker.Handler] or
	// a sidecar takes, from the moment at which it gets its key; not the
	// calls of this program, such as [Worker.Do], which have their contexts. An
	// execution that has taken it is cancelled with cause [gateway.ErrTimeout], which may be
	// noticed a tenth of it later, or 0.1 s if that is less, and its client gets 504
	// if it has no answer yet. Behind a sidecar the key is free when the app has
	// closed the connection, or 0.15 TTL later. A handler that goes on without its
	// context keeps the key. A stream that holds its key counts too. Default 1 min.
	Timeout time.Duration

	// AbandonedTimeout is how long the app behind a sidecar may go on
	// with a request whose client has left, before its connection is given up
	// and the key is free. It also bounds for how long a stream goes on whose client
	// has closed its side. Leave an ordinary request the time to finish: an app
	// that ignores the end of its connection would work on beside the next one.
	// Default 1 min, for which proxies commonly let an app be silent; a tenth of
	// it or two may pass until it is noticed.
	AbandonedTimeout time.Duration
}

// WithDefaults returns l with defaults in place of what is 0.
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
	hop.Default(&err, "worker: Limits.StreamsPerLink", &l.StreamsPerLink, 4096)
	hop.Default(&err, "worker: Limits.AppConnections", &l.AppConnections, 4096)
	hop.Default(&err, "worker: Limits.AnswerMemory", &l.AnswerMemory, 64<<20)
	hop.Default(&err, "worker: Limits.AnswerMax", &l.AnswerMax, 1<<30)
	hop.Default(&err, "worker: Limits.MaxBody", &l.MaxBody, 1<<30)
	hop.Default(&err, "worker: Limits.BodyFiles", &l.BodyFiles, spool.DefaultFiles(l.BodyDir))
	hop.Default(&err, "worker: Limits.MaxConnections", &l.MaxConnections, conns.Default(conns.MaxOpenFiles()))
	hop.Default(&err, "worker: Limits.Timeout", &l.Timeout, time.Minute)
	hop.Default(&err, "worker: Limits.AbandonedTimeout", &l.AbandonedTimeout, time.Minute)
	return l, err
}
