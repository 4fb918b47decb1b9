// Package gossip is for programs that start a router, a worker or a client of their own: it lets
// the processes of a cluster find each other and know who is alive. It wraps github.com/hashicorp/memberlist (the SWIM protocol: Das,
// Gupta and Motivala, 2002, with Lifeguard: Dadgar, Phillips and Currey, 2017)
// and turns its events into immutable views of the cluster, [ring.View].
//
// Each member spreads a description of itself: role, state, addresses, incarnation, the digest of
// the view that it sees, and the settings that all members must share. The lasting parts are
// memberlist's metadata of its node. The parts that change often, such as the state and the digest,
// are news of about 70 bytes with a rising version; see newsroom.
//
// A node with another cluster name or other ring settings is refused by both sides, which report
// the difference. A node that uses another store remains visible, since a store can change, but is
// in no view: View.Refused. A dead member is detected in 2 to 3 seconds. A view is a good guess,
// not the truth: nothing that must be safe may depend on it alone.
//
// One goroutine owns the state. memberlist's callbacks put their news into a newsroom; the owner
// takes everything in it, computes one view and publishes it through an atomic pointer. A second
// goroutine joins missing members about once a second, so that a split cluster reunites: memberlist
// itself never tries.
//
//	callbacks → newsroom → owner → View, Changed
//	Announce ──────────────┘
//	AddSeeds → joiner → memberlist.Join
package gossip

import (
	"cmp"
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/ring"
)

var (
	// ErrConfig means that a field of Config, or a change given to Announce, is
	// invalid.
	ErrConfig = errors.New("gossip: bad configuration")

	// ErrBind means that the gossip address cannot be listened on.
	ErrBind = errors.New("gossip: cannot listen")

	// ErrRefused means that this member and a peer do not belong to one cluster, or cannot
	// understand each other.
	ErrRefused = errors.New("gossip: refused")

	// errClosed means that the Cluster has been left or closed.
	errClosed = errors.New("gossip: closed")
)

// DefaultPort is the port of an address in Config.Seeds that has none.
const DefaultPort = "7946"

// Config says who this member is and where to find the others. Errors name the field and, where
// there is one, the flag of the command line.
type Config struct {
	// Settings are shared by all members: a member with others is refused. The store's identity,
	// Settings.Store, may be set later with Announce.
	Settings ring.Settings

	// Self describes this member. Name and Role are required; a zero State means
	// ring.StateJoining. Gossip, StoreID, View and TLS are filled in.
	Self ring.Member

	// Bind is the host:port to listen on, with UDP and TCP. Port 0 takes a free
	// one. "" means 127.0.0.1:0. (--gossip)
	Bind string

	// Advertise is the host or host:port at which peers reach this member. "" means the bound
	// address. If that is every address of the machine, the first one that is not loopback is
	// taken, private ones first.
	Advertise string

	// Seeds are host or host:port addresses of members to join. Unreachable ones are joined later.
	// (--join)
	Seeds []string

	// Guessed says that Seeds are a default. If all of them refuse this member, they belong to
	// another cluster: Start succeeds, and the log says so.
	Guessed bool

	// Keyring holds keys of 16, 24 or 32 bytes that encrypt gossip with AES-GCM: the first
	// encrypts, all decrypt. To rotate a key, add the new one last everywhere, then move it first,
	// then remove the old one. With an empty Keyring gossip is neither encrypted nor authenticated,
	// and Bind and Advertise must be on the loopback interface. (--gossip-key)
	Keyring [][]byte

	// Open allows other addresses without a Keyring. Any process that reaches them can then join as
	// a worker, receive requests, and read the URL of a store that a member offers. (--gossip-open)
	Open bool

	// Logger receives what an operator should know. Default: none.
	Logger *slog.Logger

	// Transport replaces the network, for tests. nil means UDP and TCP on Bind.
	Transport memberlist.Transport
}

// Cluster is this process's membership in a cluster. Any number of goroutines may call its methods.
// The owner's goroutine publishes current, the joiner's joins missing members, stirAll passes changes on, and
// memberlist's goroutines deliver news. Leave and Close end them.
type Cluster struct {
	log      *slog.Logger
	settings ring.Settings // without Store and KeySource
	node     string        // name in memberlist
	identity ring.Member
	keys     [][]byte // of Config.Keyring
	list     *memberlist.Memberlist

	news     *newsroom
	meta     atomic.Pointer[[]byte]
	current  atomic.Pointer[publication]
	changed  wake.Round // ends when current has changed
	requests chan request
	stirred  chan struct{} // has one element when there is something to pass on
	listed   atomic.Bool   // and memberlist knows what
	owned    chan struct{} // closed when the owner ends
	stop     context.CancelFunc
	ctx      context.Context // ends when the Cluster closes
	tasks    sync.WaitGroup  // owner, joiner and stirAll
	joiner   *joiner

	announcing sync.Mutex // held by AnnounceKeySource

	views, lost atomic.Int64 // changes of the view, and members that did not answer any more

	ending sync.Once // by Leave or Close
}

// Start makes this process a member and joins the seeds. It waits for them for up to two seconds.
// Start succeeds if a seed accepts this member or cannot be reached, or if there is none: a member
// that has not found its cluster is a cluster of its own and keeps trying. It fails with ErrRefused
// if every seed refuses it, with ErrBind, with ErrConfig or with the cause of ctx's end. ctx bounds
// only Start itself.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	builder, err := ring.NewBuilder(cfg.Settings.Ring)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	c := &Cluster{
		log:      cfg.Logger.With("component", "gossip"),
		settings: withoutKeys(cfg.Settings),
		keys:     cfg.Keyring,
		node:     nodeName(cfg.Self.Name, rand.Text()[:10]),
		requests: make(chan request),
		stirred:  make(chan struct{}, 1),
		owned:    make(chan struct{}),
	}
	c.news = newNewsroom(c.node, func() { c.stir(false) })
	c.ctx, c.stop = context.WithCancel(context.Background())
	if err := c.open(ctx, &cfg); err != nil {
		c.stop()
		return nil, err
	}
	c.joiner = newJoiner(c, cfg.Seeds)
	c.joiner.guessed = cfg.Guessed
	o := newOwner(c, builder, c.identity, keys{cfg.Settings.KeySource, notInForce})
	o.publish()
	c.tasks.Go(o.run)
	c.tasks.Go(c.stirAll)
	c.tasks.Go(c.joiner.run)

	err = c.joiner.awaitFirstRound(ctx)
	if cfg.Guessed && errors.Is(err, ErrRefused) {
		c.log.Warn("a member at the default address of --join (Config.Join) refuses this one: if it is of another cluster, set --join to the addresses of this one's members", "error", err)
		err = nil
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	if err := c.askOwner((*owner).settleKeys); err != nil {
		_ = c.Leave(ctx) // else the others notice
		return nil, err
	}
	return c, nil
}

// open listens and creates the memberlist node.
func (c *Cluster) open(ctx context.Context, cfg *Config) error {
	transport, at, err := listen(ctx, c.ctx, cfg, c.log)
	if err != nil {
		return err
	}
	c.identity = cfg.Self
	c.identity.Gossip = at.String()
	meta, err := newMetadata(c.identity, keys{cfg.Settings.KeySource, notInForce}, c.settings, 0).encode()
	if err != nil {
		transport.Shutdown()
		return err
	}
	c.meta.Store(&meta)
	mc := timing()
	mc.Name = c.node
	mc.Transport = transport
	mc.AdvertiseAddr, mc.AdvertisePort = at.Addr().String(), int(at.Port())
	mc.Logger = newLogger(c.log)
	d := &delegate{c}
	mc.Delegate, mc.Events, mc.Alive, mc.Merge, mc.Conflict = d, d, d, d, d
	if len(cfg.Keyring) > 0 {
		if mc.Keyring, err = memberlist.NewKeyring(cfg.Keyring, cfg.Keyring[0]); err != nil {
			transport.Shutdown()
			return fmt.Errorf("%w: --gossip-key: %w", ErrConfig, err)
		}
	}
	if c.list, err = memberlist.Create(mc); err != nil {
		transport.Shutdown()
		return fmt.Errorf("%w on %s (--gossip): %w", ErrBind, cfg.Bind, err)
	}
	return nil
}

// timing returns memberlist's settings for a local network. A dead member is noticed in 2 to 3
// seconds. A suspect that lives has 2 seconds to say so.
//
// An idle member costs what memberlist does at intervals, so its rounds of gossip are rare, and so are
// exchanges of all news between two members. A change does not wait for them: see stirAll. The exchanges repair losses.
// memberlist's own queue can number two broadcasts of the same length alike after it ran empty, and then never
// sends one of them (v0.7.0, TransmitLimitedQueue).
func timing() *memberlist.Config {
	mc := memberlist.DefaultLANConfig()
	mc.ProbeInterval = 500 * time.Millisecond
	mc.ProbeTimeout = 400 * time.Millisecond
	mc.SuspicionMult = 4
	mc.IndirectChecks = 5
	mc.RetransmitMult = 5
	mc.GossipInterval = 500 * time.Millisecond
	mc.PushPullInterval = 5 * time.Second // longer with more than 32 members
	mc.TCPTimeout = 5 * time.Second
	mc.HandoffQueueDepth = 4096
	mc.DeadNodeReclaimTime = time.Second
	mc.EnableCompression = false // at this pace it costs more time than it saves
	return mc
}

func (cfg Config) withDefaults() Config {
	cfg.Settings = cfg.Settings.WithDefaults()
	cfg.Settings.KeySource = shortKeySource(cfg.Settings.KeySource)
	if cfg.Self.Role != ring.RoleRouter {
		cfg.Settings.KeySource = ""
	}
	cfg.Self.State = cmp.Or(cfg.Self.State, ring.StateJoining)
	cfg.Self.StoreID, cfg.Self.View, cfg.Self.TLS = cfg.Settings.Store, 0, cfg.Settings.PeerTLS
	cfg.Settings.Store = 0
	cfg.Bind = cmp.Or(cfg.Bind, "127.0.0.1:0")
	cfg.Seeds, cfg.Keyring = slices.Clone(cfg.Seeds), slices.Clone(cfg.Keyring)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return cfg
}

func (cfg *Config) validate() error {
	if badName(cfg.Self.Name) {
		return fmt.Errorf("%w: Self.Name (--name) has %d bytes, want 1 to %d of UTF-8", ErrConfig, len(cfg.Self.Name), nameLimit)
	}
	if err := cfg.Settings.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	for i, key := range cfg.Keyring {
		if memberlist.ValidateKey(key) != nil {
			return fmt.Errorf("%w: key %d of Keyring (--gossip-key) has %d bytes, want 16, 24 or 32", ErrConfig, i+1, len(key))
		}
	}
	for _, seed := range cfg.Seeds {
		if _, _, err := splitSeed(seed); err != nil {
			return fmt.Errorf("%w: seed (--join) %q: %w", ErrConfig, seed, err)
		}
	}
	return validMember(cfg.Self)
}

func validMember(m ring.Member) error {
	if m.Role != ring.RoleWorker && m.Role != ring.RoleRouter {
		return fmt.Errorf("%w: unknown role %d", ErrConfig, m.Role)
	}
	if m.State < ring.StateJoining || m.State > ring.StateLeaving {
		return fmt.Errorf("%w: unknown state %d", ErrConfig, m.State)
	}
	return nil
}

// Self returns the description of this member in View.
func (c *Cluster) Self() ring.Member { return c.current.Load().self }

// View returns the latest view of the cluster, never nil. It costs one atomic
// load.
func (c *Cluster) View() *ring.View { return c.current.Load().view }

// Settings returns the settings that this member shares with the others, with their defaults, and
// its store's present identity.
func (c *Cluster) Settings() ring.Settings {
	s, now := c.settings, c.current.Load()
	s.Store, s.KeySource = now.self.StoreID, now.source
	return s
}

func withoutKeys(s ring.Settings) ring.Settings {
	s.KeySource = ""
	return s
}

// Secrets returns a secret of 32 bytes for each key of Config.Keyring, in its order. The secrets
// are for one purpose (HKDF-SHA256, RFC 5869) and reveal neither the key nor the secrets of other
// purposes.
func (c *Cluster) Secrets(purpose string) [][]byte {
	secrets := make([][]byte, len(c.keys))
	for i, key := range c.keys {
		secrets[i], _ = hkdf.Key(sha256.New, key, nil, purpose, 32) // fails only of too long a secret
	}
	return secrets
}

// Changed returns a channel that is closed when View changes next. Get it
// before View to miss no change:
//
//	for {
//		changed := c.Changed()
//		use(c.View())
//		<-changed
//	}
//
// A closed Cluster's view does not change any more.
func (c *Cluster) Changed() <-chan struct{} { return c.changed.Over() }

// Addr returns the host:port at which peers reach this member's gossip. Others can use it as a
// seed.
func (c *Cluster) Addr() string { return c.identity.Gossip }

// Announce changes this member's description of itself. change gets a copy of the description and
// may set its Incarnation, State, Addr, Link, GRPC, Store, StoreID and Epoch. It must not change
// other fields: View stays the digest of the present view. When Announce returns, View has the
// change, which is on its way to the peers. change may call only View and Addr of the Cluster.
// Announce fails with ErrConfig if the description is invalid or longer than about 400 bytes, and
// with another error once the Cluster has been left or closed.
func (c *Cluster) Announce(change func(*ring.Member)) error {
	return c.askOwner(func(o *owner) error { return o.change(change) })
}

// Ping asks a member of View whether it lives, and waits for its answer, for half a second at most.
func (c *Cluster) Ping(m ring.Member) bool {
	others := c.news.others()
	i := slices.IndexFunc(others, func(other memberlist.Address) bool { return other.Addr == m.Gossip && memberName(other.Name) == m.Name })
	return i >= 0 && c.ping(others[i])
}

func (c *Cluster) ping(node memberlist.Address) bool {
	at, err := netip.ParseAddrPort(node.Addr)
	if err == nil {
		_, err = c.list.Ping(node.Name, net.UDPAddrFromAddrPort(at))
	}
	return err == nil
}

// Bury tells all members that the processes of incarnations are dead, so that they leave the views
// at once. It ignores incarnations that are not in View, and does not wait. Members that miss the
// news detect the death themselves. If an incarnation lives after all, it returns when its
// description changes.
func (c *Cluster) Bury(incarnations []string) {
	var known []string
	for _, incarnation := range incarnations {
		if _, ok := c.View().Find(incarnation); ok {
			known = append(known, incarnation)
		}
	}
	if known = known[max(0, len(known)-maxBuried):]; len(known) == 0 {
		return
	}
	c.news.bury(known)
	message := append([]byte{deadMark}, strings.Join(known, " ")...)
	for _, other := range c.news.others() {
		_ = c.list.SendToAddress(other, message)
	}
}

// maxBuried bounds the incarnations of a message.
const maxBuried = 16

// AddSeeds adds addresses, as in Config.Seeds, of members known from elsewhere. An address is tried
// for ten minutes after it was last added. Beyond 256 addresses the oldest are dropped, and
// malformed ones at once.
func (c *Cluster) AddSeeds(addrs []string) { c.joiner.add(addrs) }

// Leave tells the peers that this member leaves, so that they need not detect it, and closes the
// Cluster. It takes at most two seconds, less if ctx ends. Its error says that the peers may not
// know; the Cluster is closed in any case. Leaving a closed Cluster does nothing.
func (c *Cluster) Leave(ctx context.Context) (err error) {
	c.ending.Do(func() {
		err = c.Announce(func(m *ring.Member) { m.State = ring.StateLeaving })
		wait := passOn + time.Duration(len(c.View().Members))*stirEach
		wake.Sleep(min(wait, passOnMost), ctx.Done()) // all should learn of it before they learn that it is gone
		if left := c.list.Leave(patience(ctx, time.Second)); err == nil && left != nil {
			err = fmt.Errorf("gossip: peers may take %q for dead instead of gone: %w", c.identity.Name, left)
		}
		c.end()
	})
	return err
}

// How long news take, as a rule, to reach all: passOn, and more among many members, see stirEach.
const (
	passOn     = 400 * time.Millisecond
	passOnMost = 900 * time.Millisecond
)

// patience is the time to spend on one step before ctx ends. memberlist takes
// 0 for no limit.
func patience(ctx context.Context, most time.Duration) time.Duration {
	if ctx.Err() != nil {
		return 1
	}
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(deadline))
	}
	return max(most, 1)
}

// Close ends the membership without notice, as a crash would: the peers detect it in 2 to 3
// seconds. Closing twice, or after Leave, does nothing. memberlist's last probes may run for some
// seconds more.
func (c *Cluster) Close() error {
	c.ending.Do(c.end)
	return nil
}

func (c *Cluster) end() {
	c.stop()
	c.list.Shutdown() // only logs what goes wrong; it ends the streams of joins
	c.tasks.Wait()
}
