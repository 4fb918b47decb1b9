package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/keyway-go/keyway/internal/kept"
	"github.com/keyway-go/keyway/internal/records"
)

// errPartly means that a call has changed some of its partitions, and cannot change others.
var errPartly = errors.New("etcd: only a part of the changes was written")

// errLost means that something is missing that etcd has had, such as the record of a partition, which a worker may
// still serve.
var errLost = errors.New("etcd: data were lost")

const (
	maxJobs = 100 // partitions that one transaction changes: etcd takes 128 operations and 1.5 MiB by default
	atOnce  = 4   // transactions of one call
)

// job changes a partition.
type job struct {
	partition int
	needs     []string // keys that do looks at
	do        func(*step, *partition)
}

func (s *Store) partitionKey(p int) string { return s.key("partition", fmt.Sprintf("%06d", p)) }

// change carries out jobs, in few transactions, and returns the partition of each one as it
// is afterwards. Unless the incarnation is "", it needs to have a session.
func (s *Store) change(ctx context.Context, gen, incarnation string, jobs []job) ([]*partition, error) {
	after := make([]*partition, len(jobs))
	var transactions errgroup.Group
	transactions.SetLimit(atOnce)
	errs := make([]error, max(1, (len(jobs)+maxJobs-1)/maxJobs)) // without jobs, the session is looked at
	for i := range errs {
		from, to := i*maxJobs, min((i+1)*maxJobs, len(jobs))
		transactions.Go(func() error {
			errs[i] = s.changeSome(ctx, gen, incarnation, jobs[from:to], after[from:to])
			return nil
		})
	}
	transactions.Wait()
	if err := together(errs...); err != nil {
		return nil, err
	}
	return after, nil
}

// together returns the error of a call whose parts returned errs. It is definite only if no part has written anything.
func together(errs ...error) (err error) {
	for _, e := range errs {
		switch {
		case e != nil && !isDefinite(e):
			return e
		case e != nil:
			err = e
		}
	}
	if err != nil && slices.Contains(errs, nil) {
		err = fmt.Errorf("%w: then %v", errPartly, err)
	}
	return err
}

// changeSome carries out jobs in one transaction, or in several if etcd refuses that one for its size.
func (s *Store) changeSome(ctx context.Context, gen, incarnation string, jobs []job, after []*partition) error {
	err := s.changeTogether(ctx, gen, incarnation, jobs, after)
	if !tooLarge(err) || len(jobs) == 1 {
		return err
	}
	half := len(jobs) / 2
	if err = s.changeSome(ctx, gen, incarnation, jobs[:half], after[:half]); err != nil {
		return err
	}
	return together(nil, s.changeSome(ctx, gen, incarnation, jobs[half:], after[half:]))
}

func isDefinite(err error) bool {
	return errors.Is(err, records.ErrGeneration) || errors.Is(err, records.ErrSessionGone)
}

// changeTogether carries out jobs in one transaction. It sets the partition of each one in after.
func (s *Store) changeTogether(ctx context.Context, gen, incarnation string, jobs []job, after []*partition) error {
	keys := map[string]bool{s.key("complete"): true}
	for _, j := range jobs {
		keys[s.partitionKey(j.partition)] = true
		for _, key := range j.needs {
			keys[key] = true
		}
	}
	own := s.key("alive", incarnation)
	if incarnation != "" {
		keys[own] = true
	}
	var reads []clientv3.Op
	for key := range maps.Keys(keys) {
		reads = append(reads, clientv3.OpGet(key))
	}
	return s.transact(ctx, s.client, gen, s.guess(gen, keys), reads, func(st *step) error {
		if incarnation != "" && !st.has(own) {
			return records.ErrSessionGone
		}
		return s.do(st, jobs, after)
	})
}

// do carries out jobs on what was read, and writes each partition that has become another one.
func (s *Store) do(st *step, jobs []job, after []*partition) (err error) {
	partitions := map[int]*partition{}
	for i, j := range jobs {
		p := partitions[j.partition]
		if p == nil {
			if !st.has(s.partitionKey(j.partition)) && st.has(s.key("complete")) {
				return errLost
			}
			if p, err = decodePartition(j.partition, st.meta.generation, st.read[s.partitionKey(j.partition)]); err != nil {
				return fmt.Errorf("partition %d: %w", j.partition, err)
			}
			partitions[j.partition] = p
		}
		after[i] = p
		j.do(st, p)
	}
	changed := false
	for number, p := range partitions {
		if p.Touched {
			st.put(s.partitionKey(number), p.encode())
		}
		changed = changed || p.Changed
	}
	if changed {
		st.put(s.key("changed/partitions"), "")
	}
	return nil
}

func told(partitions []*partition, incarnation string) []records.PartitionState {
	var states []records.PartitionState
	for _, p := range partitions {
		states = append(states, p.Told(incarnation))
	}
	return states
}

// Apply makes each change whose conditions hold, and returns the resulting state of each partition,
// in order. ErrSessionGone means that the caller has no session.
func (s *Store) Apply(ctx context.Context, gen, incarnation string, changes []records.Change) ([]records.PartitionState, error) {
	if incarnation == "" {
		return nil, s.handle.Failed("apply", records.ErrSessionGone)
	}
	var jobs []job
	for _, c := range changes {
		j := job{partition: c.Partition, do: func(st *step, p *partition) {
			live := func(other string) bool { return st.has(s.key("alive", other)) }
			released := func(other string) bool { return st.has(s.key("released", other)) }
			if p.Record == c.From && kept.Allows(incarnation, c, st.has(s.key("quarantine")), live, released) {
				p.Apply(incarnation, c, time.Now())
			}
		}}
		switch {
		case c.Op == records.OpMove:
			j.needs = []string{s.key("alive", c.To)}
		case c.Op == records.OpClaim && c.From.Owner != incarnation:
			j.needs = []string{s.key("quarantine"), s.key("alive", c.From.Owner), s.key("released", c.From.Owner)}
		}
		jobs = append(jobs, j)
	}
	partitions, err := s.change(ctx, gen, incarnation, jobs)
	return told(partitions, incarnation), s.handle.Failed("apply", err)
}

// Clear deletes residues of a partition, each if the stored one is equal.
func (s *Store) Clear(ctx context.Context, gen string, number int, residue []records.Residue) error {
	_, err := s.change(ctx, gen, "", []job{{partition: number, do: func(_ *step, p *partition) {
		p.Clear(residue)
	}}})
	return s.handle.Failed("clear", err)
}

// ClearLocks forgets locks that moves have written, unless a later move has written others.
func (s *Store) ClearLocks(ctx context.Context, gen string, moves []records.Move) error {
	var jobs []job
	for _, m := range moves {
		jobs = append(jobs, job{partition: m.Partition, do: func(_ *step, p *partition) { p.ClearLocks(m.Epoch) }})
	}
	_, err := s.change(ctx, gen, "", jobs)
	return s.handle.Failed("clear locks", err)
}

// WriteLocks writes and removes locks of each partition whose record and latest write allow it. It
// returns the number of each partition's latest write that was made, in order. ErrSessionGone means
// that the caller has no session.
func (s *Store) WriteLocks(ctx context.Context, gen, incarnation string, writes []records.LockWrite) (wrote []records.WriteNumber, err error) {
	if incarnation == "" {
		return nil, s.handle.Failed("write locks", records.ErrSessionGone)
	}
	var jobs []job
	for _, w := range writes {
		jobs = append(jobs, job{partition: w.Partition, do: func(_ *step, p *partition) { p.Write(incarnation, w) }})
	}
	partitions, err := s.change(ctx, gen, incarnation, jobs)
	for _, p := range partitions {
		wrote = append(wrote, p.Wrote)
	}
	return wrote, s.handle.Failed("write locks", err)
}
