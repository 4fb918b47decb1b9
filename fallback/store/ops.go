package store

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/fallback/internal/stores"
	"github.com/keyway-go/keyway/internal/records"
)

// Ping returns an error if the store cannot be used. It changes nothing in the store.
func (s *Store) Ping(ctx context.Context) error {
	// A write that a replica refuses. No key of the store ever expires.
	_, err := call(ctx, s, func() (bool, error) { return s.client.Persist(ctx, s.keys[0]).Result() })
	return s.handle.Failed("ping", err)
}

// Peers returns the gossip addresses of the sessions. It changes nothing in the store, not even its generation, so
// some of the sessions may be over.
func (s *Store) Peers(ctx context.Context) (peers []string, err error) {
	sessions, err := call(ctx, s, func() ([]string, error) { return s.client.HVals(ctx, s.keys[7]).Result() })
	if err != nil {
		return nil, s.handle.Failed("peers", err)
	}
	for _, details := range sessions {
		if session, err := stores.ReadSession("", details); err == nil && session.Gossip != "" {
			peers = append(peers, session.Gossip)
		}
	}
	return peers, nil
}

// Begin begins the generation of an empty store, and with it the quarantine, unless
// Config.NewCluster skips that. It is for the process that has just started the store's server, so
// that workers that come later need not wait. It changes nothing in a store that has begun. The
// store gets no identity from it: the users of the store set that, and a process that knows the
// store's former identity restores it.
func (s *Store) Begin(ctx context.Context) error {
	_, err := s.runAs(ctx, s.client, "", "generation", "")
	return err
}

// Generation returns the store's generation. If the store has none, or that of another server
// process, it begins one with a quarantine. Afterwards Settings knows the store's identity, which
// outlives generations: a store that has lost it gets it back from the first handle that knows it.
//
// A store that holds nothing of the cluster, and that the handle does not know from before, is begun only with begin.
// Otherwise Generation changes nothing there, and returns an error that wraps ring.ErrSettings. A process that sees
// active workers asks without begin, since they must begin a store of theirs that was emptied.
//
// The error also wraps ring.ErrSettings if the sessions in the store have other settings. When none of
// them lives, the settings can be replaced, except the number of partitions.
func (s *Store) Generation(ctx context.Context, begin bool) (string, error) {
	identity := s.handle.Identity().String()
	if !begin && s.Settings().Store == 0 {
		identity = anyIdentity
	}
	f, err := s.runAs(ctx, s.client, identity, "generation", "")
	if err != nil {
		return "", err
	}
	gen, id := f.Text(), f.ID()
	wait, owned, server, uptime := f.Number(), f.Number(), f.Text(), f.Number()
	if err := f.End(); err != nil {
		return "", s.handle.Failed("generation", err)
	}
	s.handle.NewCluster.Store(false)
	if s.handle.Learn(gen, id) && wait > 0 {
		s.handle.Logger.Warn(stores.WhyWait(owned > 0), "at_most", s.handle.Given.TTL, "server_run_id", server, "server_uptime", time.Duration(uptime)*time.Second)
	}
	s.advise(ctx)
	return gen, nil
}

// Register creates the session of h.Incarnation, and re-asserts every holding in the same step. A
// holding is accepted if the stored epoch is at most its own, or if the stored owner is already
// this incarnation. It then gets an epoch above both, at least the store's clock in Unix seconds.
// Residue is written for accepted and refused holdings alike, but never replaces the entry of a
// later execution (a higher token) of the same key. Register returns each holding's partition, in
// order. ErrSessionGone means that this incarnation had a session in this generation, or released
// one.
func (s *Store) Register(ctx context.Context, gen string, h records.Session, ttl time.Duration, holdings []records.Holding) ([]records.PartitionState, error) {
	args := []any{h.Incarnation, milliseconds(ttl), h.Name, h.Addr, h.Gossip, len(holdings)}
	for _, hold := range holdings {
		args = append(args, hold.Partition)
	}
	for _, hold := range holdings {
		args = append(args, hold.Epoch)
		args = appendResidue(args, hold.Residue)
	}
	return ask(ctx, s, s.client, "register", gen, args, readPartitions)
}

// errUnsettled means that a script without prelude.lua has found something that is for that to do first.
var errUnsettled = errors.New("store: a generation or a session has ended")

// Renew extends a session that exists, and returns a snapshot without its lists. ErrSessionGone: it
// does not.
func (s *Store) Renew(ctx context.Context, gen, incarnation string, ttl time.Duration) (records.Snapshot, error) {
	for {
		f, err := s.guarded(ctx, s.renewal, "renew", gen, incarnation, milliseconds(ttl))
		if errors.Is(err, errUnsettled) {
			if _, err := s.run(ctx, s.renewal, "settle", gen); err != nil {
				return records.Snapshot{}, err
			}
			continue
		}
		shown := records.Snapshot{}
		if err == nil {
			shown, err = readMoment(f), f.End()
		}
		return shown, s.handle.Failed("renew", err)
	}
}

// Release ends a session for good and leaves a tombstone for an hour, even if there is no session.
func (s *Store) Release(ctx context.Context, incarnation string) error {
	_, err := s.run(ctx, s.client, "release", "", incarnation)
	return err
}

// Apply makes each change whose conditions hold, all in one step, and returns the resulting state
// of each partition, in order. ErrSessionGone means that the caller has no session.
func (s *Store) Apply(ctx context.Context, gen, incarnation string, changes []records.Change) ([]records.PartitionState, error) {
	args := []any{incarnation, len(changes)}
	for _, c := range changes {
		args = append(args, c.Partition)
	}
	for _, c := range changes {
		args = append(args, int(c.Op), c.From.Epoch, c.From.Owner, c.To, c.Floor)
		args = appendResidue(args, c.Residue)
		args = append(args, c.Locks, c.Served)
	}
	return ask(ctx, s, s.client, "apply", gen, args, readPartitions)
}

// Clear deletes residues of a partition, each if the stored one is equal.
func (s *Store) Clear(ctx context.Context, gen string, partition int, residue []records.Residue) error {
	args := appendResidue([]any{1, partition}, residue)
	_, err := s.run(ctx, s.client, "clear", gen, args...)
	return err
}

// ClearLocks forgets locks that moves have written, unless a later move has written others.
func (s *Store) ClearLocks(ctx context.Context, gen string, moves []records.Move) error {
	args := []any{len(moves)}
	for _, m := range moves {
		args = append(args, m.Partition)
	}
	for _, m := range moves {
		args = append(args, m.Epoch)
	}
	_, err := s.run(ctx, s.client, "clear_locks", gen, args...)
	return err
}

// WriteLocks writes and removes locks of each partition whose record and latest write allow it, all
// in one step. It returns the number of each partition's latest write that was made, in order.
// ErrSessionGone means that the caller has no session.
func (s *Store) WriteLocks(ctx context.Context, gen, incarnation string, writes []records.LockWrite) ([]records.WriteNumber, error) {
	args := []any{incarnation, len(writes)}
	for _, w := range writes {
		args = append(args, w.Partition)
	}
	for _, w := range writes {
		args = append(args, w.Number.Epoch, w.Number.Number, len(w.Locks))
		for _, l := range w.Locks {
			args = append(args, l.ID, l.Text)
		}
	}
	return ask(ctx, s, s.client, "write_locks", gen, args, readWriteNumbers)
}

// Replace replaces the text of a note, if it is from. It returns what it is then.
func (s *Store) Replace(ctx context.Context, note records.Note, from, to string) (string, error) {
	return ask(ctx, s, s.client, "replace", "", []any{note.String(), from, to}, (*stores.Fields).Text)
}

// ask runs a script as [Store.run] does, and takes its reply apart with read.
func ask[T any](ctx context.Context, s *Store, client redis.UniversalClient, script, gen string, args []any, read func(*stores.Fields) T) (value T, err error) {
	f, err := s.run(ctx, client, script, gen, args...)
	if err != nil {
		return value, err
	}
	all := read(f)
	if err := f.End(); err != nil {
		return value, s.handle.Failed(script, err)
	}
	return all, nil
}

func appendResidue(args []any, residue []records.Residue) []any {
	args = append(args, len(residue))
	for _, r := range residue {
		args = append(args, r.Key, r.Holder, r.Token)
	}
	return args
}

// milliseconds is Redis' unit of time; a TTL is never rounded down to none.
func milliseconds(d time.Duration) int64 {
	return max(1, d.Milliseconds())
}
