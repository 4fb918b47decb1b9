// Package offered is the store that a process of this machine keeps in its memory
// and offers to the others through gossip: [Open] uses one, and [StartHost] runs one.
package offered

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"sync"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/internal/wire/netutil"
	"github.com/keyway-go/keyway/ring"
)

// Members is what a [Store] needs of gossip.
type Members interface {
	View() *ring.View
	Changed() <-chan struct{}
}

// Store is the store that another member offers. If that member restarts, it offers another store,
// and follow moves the connections there. To the handle this looks like a server that has lost its data.
type Store struct {
	*store.Store
	members Members
	config  store.Config
	logger  *slog.Logger
	stop    func() // ends follow
	raw     string // URL of the present store; follow owns it
	warned  bool   // of workers whose store nobody offers; follow owns it

	mu      sync.Mutex // guards what follows
	present place
}

// place is where a store is offered. The connections to it end with life.
type place struct {
	host string
	user *url.Userinfo
	life context.Context
	end  context.CancelFunc
}

// Open waits for a member that offers a store, and opens it with config, which has neither an
// identity nor a Dial. ctx bounds the wait.
func Open(ctx context.Context, m Members, config store.Config) (*Store, error) {
	s := &Store{members: m, config: config, logger: cmp.Or(config.Logger, slog.New(slog.DiscardHandler))}
	s.config.Settings.Store = 0
	s.config.Dial, s.config.Credentials = s.dial, s.credentials
	s.logger.Info("waiting for a router that offers a store (--join); with --redis none is needed")
	if err := s.follow(ctx, func() bool { return s.Store != nil }); err != nil {
		return nil, err
	}
	s.stop = wake.Background(func(ctx context.Context) { _ = s.follow(ctx, func() bool { return false }) })
	return s, nil
}

// Close ends the connections to the store.
func (s *Store) Close() error {
	s.stop()
	s.at().end()
	return s.Store.Close()
}

// follow moves to the offered store until enough reports true or ctx ends.
func (s *Store) follow(ctx context.Context, enough func() bool) error {
	for {
		changed := s.members.Changed()
		s.followOffer()
		if enough() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// followOffer takes the one store that is offered. While none is that can be used, or
// the routers disagree, it keeps the one it has. Routers that use another store than this
// worker count when no other offers one: a router that was started as a new
// cluster is one of them.
func (s *Store) followOffer() {
	view := s.members.View()
	offers, places := storesOf(view.Members)
	if len(offers) == 0 {
		offers, places = storesOf(view.Refused)
	}
	if places > 1 {
		s.logger.Error("several routers offer a store of their own, and all members must use the same: give all of them --redis", "stores", len(offers))
	}
	if s.Store == nil && len(offers) == 0 {
		s.warnOfNone(view)
	}
	if len(offers) != 1 || offers[0] == s.raw {
		return
	}
	if err := s.move(offers[0]); err != nil {
		s.logger.Error("the store that a router offers cannot be used: run the same version of Keyway on all members", "error", err)
	}
}

// errURL does not show the URL, which has a password.
var errURL = errors.New("offered: bad URL of a store")

// move makes the store of a URL the present one, and opens it if it is the first.
func (s *Store) move(raw string) (err error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return errURL
	}
	if s.Store == nil {
		if s.Store, err = store.New(raw, s.config); err != nil {
			return err
		}
	}
	s.logger.Warn("this process uses the store of another process: it is for one machine, and a restart of that process empties it; give --redis for more", "store", u.Redacted())
	next := place{host: u.Host, user: u.User}
	next.life, next.end = context.WithCancel(context.Background())
	s.mu.Lock()
	former := s.present
	s.raw, s.present = raw, next
	s.mu.Unlock()
	if former.end != nil {
		former.end()
	}
	return nil
}

func (s *Store) at() place {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.present
}

// dial connects to the present store.
func (s *Store) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	at := s.at()
	conn, err := new(net.Dialer).DialContext(ctx, network, at.host)
	if err != nil {
		return nil, err
	}
	return netutil.Until(at.life, conn), nil
}

func (s *Store) credentials() (name, password string) {
	user := s.at().user
	password, _ = user.Password()
	return user.Username(), password
}

// warnOfNone logs once that active members use a store that no member offers.
func (s *Store) warnOfNone(view *ring.View) {
	for _, m := range view.Workers() {
		if m.StoreID != 0 && !s.warned {
			s.warned = true
			s.logger.Warn("the workers use a store that nobody offers, such as a Redis: give this one the same --store or --redis (Config.Redis)", "worker", m.Name, "gossip", m.Gossip)
		}
	}
}

// storesOf returns the URLs that members offer, and the number of their gossip addresses. If two
// members have one address, one has died and is not yet detected.
func storesOf(members []ring.Member) (urls []string, places int) {
	var at []string
	for _, m := range members {
		if m.Store != "" && !slices.Contains(urls, m.Store) {
			urls = append(urls, m.Store)
		}
		if m.Store != "" && !slices.Contains(at, m.Gossip) {
			at = append(at, m.Gossip)
		}
	}
	return urls, len(at)
}
