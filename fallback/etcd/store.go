package etcd

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keyway-go/keyway/fallback/internal/stores"
	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/ring"
)

const (
	hour       = time.Hour              // how long tombstones are kept
	leastTry   = 500 * time.Millisecond // for one attempt of a request, or a tenth of the TTL if that is more
	patience   = 3                      // so many times that long, attempts follow each other
	retryPause = 50 * time.Millisecond
)

// Store keeps sessions, records, residue and locks in etcd. It behaves like [store.Store], in the
// way that the package documentation describes. Any number of goroutines may use a Store.
//
// Renewals have a connection of their own, so that no long answer delays them.
type Store struct {
	client  *connection
	renewal *connection

	handle *stores.Handle
	prefix string                 // of all keys
	made   time.Time              // when New was called
	try    time.Duration          // for one attempt of a request
	said   atomic.Pointer[string] // the latest generation that Generation has returned
	begun  sync.Map               // leases of quarantines that may end early, by the generations that this handle may have begun

	mu       sync.Mutex // guards what follows
	life     int        // of etcd's data, counted
	revision int64      // the highest that etcd has shown in this life
	view     view
	cluster  uint64    // id of the etcd cluster that has answered
	answered time.Time // when it did so last
}

// errStranger means that a server of another etcd cluster has answered.
var errStranger = errors.New("etcd: another cluster")

// recognize returns errStranger if another etcd cluster answers than before. A TTL after the last answer of that one, no
// session of this process lives there. Then recognize accepts the other one, which may be a restored snapshot.
func (s *Store) recognize(cluster uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster != 0 && s.cluster != cluster && time.Since(s.answered) < s.handle.Given.TTL {
		return errStranger
	}
	s.cluster, s.answered = cluster, time.Now()
	return nil
}

// New makes a store over the etcd of a URL. It does no network I/O; the first call reports an
// unreachable etcd. Config.Dial and Credentials do not apply to this store.
//
//	etcd://[user:password@]host[:port][,host[:port]…]
//	etcds://…                                            TLS
//
// The default port is 2379. The query of an etcds URL may carry ca, cert, key (PEM files), server_name and
// skip_verify=true.
func New(url string, cfg store.Config) (*Store, error) {
	handle, err := stores.NewHandle("etcd", cfg.Settings, errPartly)
	if err != nil {
		return nil, err
	}
	c, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	client, err := connect(c)
	if err != nil {
		return nil, err
	}
	renewal, err := connect(c)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	cluster, place := handle.Given.Cluster, strings.Join(c.Endpoints, ", ")
	handle.Kind, handle.CauseOf, handle.Place, handle.Password = "etcd", causeOf, place, c.Password
	handle.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)).With("store", place, "cluster", cluster)
	handle.NewCluster.Store(cfg.NewCluster)
	return &Store{
		client: client, renewal: renewal, handle: handle,
		prefix: "{keyway:" + cluster + "}/", made: time.Now(), try: max(handle.Given.TTL/10, leastTry),
	}, nil
}

// Settings returns the settings of the store with their defaults, and the store's identity if it is
// known.
func (s *Store) Settings() ring.Settings { return s.handle.Settings() }

// Trouble returns why the store cannot be used, as far as the latest calls have shown, and nil if it answers.
func (s *Store) Trouble() error { return s.handle.Trouble() }

// Close ends every Watch and call, and waits for the former. It may be called again.
func (s *Store) Close() error { return s.handle.Close(s.client, s.renewal) }

// askEtcd carries out f, which sends one request over c and returns the header of the answer. It repeats that with
// another member of etcd if it has got no answer in time. The store is absent only when that does not help.
func (s *Store) askEtcd(ctx context.Context, c *connection, f func(context.Context) (*pb.ResponseHeader, error)) error {
	var why error // of the latest attempt that got an answer, or of a stranger's answer
	for began := time.Now(); ; {
		if err := ctx.Err(); err != nil {
			return cmp.Or(why, err)
		}
		member := c.member()
		attempt, cancel := context.WithTimeout(ctx, s.try)
		header, err := f(attempt)
		cancel()
		if header != nil {
			err = cmp.Or(s.recognize(header.ClusterId), err)
		}
		switch {
		case s.handle.Closing.Err() != nil:
			return stores.ErrClosed
		case errors.Is(ctx.Err(), context.Canceled):
			return ctx.Err()
		case err == nil || isAnswer(err):
			s.handle.Note(nil, began)
			return err
		case !isLate(err) && !errors.Is(why, errStranger):
			why = err
		}
		if mayPass(err) {
			c.leave(member)
		}
		err = cmp.Or(why, err)
		gaveUp := ctx.Err() != nil || !mayPass(err) || time.Since(began) > patience*s.try
		if gaveUp || time.Since(began) >= stores.Silence {
			s.handle.Note(err, began)
		}
		if gaveUp {
			return err
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		case <-s.handle.Closing.Done():
		}
	}
}

// grant returns a lease, in whole seconds.
func (s *Store) grant(ctx context.Context, ttl time.Duration) (id clientv3.LeaseID, err error) {
	err = s.askEtcd(ctx, s.client, func(ctx context.Context) (*pb.ResponseHeader, error) {
		lease, err := s.client.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
		if err != nil {
			return nil, err
		}
		id = lease.ID
		return lease.ResponseHeader, nil
	})
	return id, err
}

// prolong has a lease last for its full time again.
func (s *Store) prolong(ctx context.Context, c *connection, id clientv3.LeaseID) error {
	return s.askEtcd(ctx, c, func(ctx context.Context) (*pb.ResponseHeader, error) {
		lease, err := c.keepAlive(ctx, id)
		if err == nil && lease.TTL <= 0 {
			err = rpctypes.ErrLeaseNotFound
		}
		return lease.GetHeader(), err
	})
}

// granting asks for a lease while the caller goes on. The function that it returns waits for the answer.
func (s *Store) granting(ctx context.Context, ttl time.Duration) func() (clientv3.LeaseID, error) {
	lease := sync.OnceValues(func() (clientv3.LeaseID, error) { return s.grant(ctx, ttl) })
	s.handle.Go(func() { _, _ = lease() })
	return lease
}

// now returns the time of a clock that is never set, unlike the machine's: otherwise a session's SessionState.Joins
// would be far ahead once that is set back.
func (s *Store) now() time.Time { return s.made.Add(time.Since(s.made)) }

func (s *Store) key(parts ...string) string { return s.prefix + strings.Join(parts, "/") }
