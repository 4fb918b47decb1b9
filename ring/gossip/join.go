package gossip

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/ring"
)

const (
	joinInterval  = time.Second      // between two rounds, give or take a quarter
	joinCalm      = 4 * time.Second  // between two attempts at what was joined, unless the view changes
	joinPatience  = 2 * time.Second  // of Start, and of a look-up of a name
	joinSlowest   = 16 * time.Second // between two attempts at what is no seed, or refuses
	joinAtOnce    = 4
	seedAddresses = 16 // of one name
	addedBound    = 256
	addedAge      = 10 * time.Minute
)

// joiner joins the seeds and added addresses that are not in the view. One goroutine runs it; mu
// guards the targets, which any goroutine may add.
type joiner struct {
	c        *Cluster
	seeds    []string
	guessed  bool
	first    chan struct{} // closed after the first round
	firstErr error         // every seed refused; read it after first
	started  bool          // the first round is over; of run, as what follows
	view     *ring.View    // of the latest round
	throttle throttle

	mu      sync.Mutex
	targets map[string]*target // by address, as it was given
}

// target is an address to join. Its seed field does not change; joiner.mu
// protects added, run owns the rest.
type target struct {
	seed  bool
	added time.Time
	next  time.Time     // no attempt before
	delay time.Duration // after the next failure
	lost  bool          // the last attempt failed
}

func newJoiner(c *Cluster, seeds []string) *joiner {
	j := &joiner{c: c, seeds: seeds, first: make(chan struct{}), targets: make(map[string]*target)}
	for _, seed := range seeds {
		j.targets[seed] = &target{seed: true, delay: joinInterval}
	}
	return j
}

func (j *joiner) add(addrs []string) {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, addr := range addrs {
		if t, known := j.targets[addr]; known {
			t.added = now
		} else if _, _, err := splitSeed(addr); err == nil {
			j.targets[addr] = &target{added: now, delay: joinInterval}
		}
	}
	j.forgetLocked(now)
}

// forgetLocked drops added targets that are too old or too many.
func (j *joiner) forgetLocked(now time.Time) {
	added := slices.DeleteFunc(slices.Collect(maps.Keys(j.targets)), func(addr string) bool { return j.targets[addr].seed })
	slices.SortFunc(added, func(a, b string) int { return j.targets[b].added.Compare(j.targets[a].added) })
	for i, addr := range added {
		if i >= addedBound || now.Sub(j.targets[addr].added) > addedAge {
			delete(j.targets, addr)
		}
	}
}

// awaitFirstRound waits for the first attempt at all seeds and returns an
// error if each of them refused.
func (j *joiner) awaitFirstRound(ctx context.Context) error {
	patience := time.NewTimer(joinPatience)
	defer patience.Stop()
	select {
	case <-j.first:
		return j.firstErr
	case <-patience.C:
		j.c.log.Warn("seeds have not answered yet: this member starts without them, and keeps trying", "seeds", j.seeds)
		return nil
	case <-ctx.Done():
		return fmt.Errorf("gossip: joining was cancelled: %w", context.Cause(ctx))
	}
}

func (j *joiner) run() {
	j.firstErr = allRefused(j.round())
	j.started = true
	close(j.first)
	for wake.Sleep(joinInterval*3/4+rand.N(joinInterval/2), j.c.ctx.Done()) {
		j.round()
	}
}

// allRefused joins the outcomes of a round into one error if all are refusals.
func allRefused(outcomes []error) error {
	for _, err := range outcomes {
		if !errors.Is(err, ErrRefused) {
			return nil
		}
	}
	return errors.Join(outcomes...)
}

// round tries the targets that are due, a few at a time, and returns the
// outcome of each.
func (j *joiner) round() []error {
	due := j.due(time.Now(), j.c.View())
	outcomes := make([]error, len(due))
	slots := make(chan struct{}, joinAtOnce)
	var attempts sync.WaitGroup
	for i, addr := range due {
		slots <- struct{}{}
		attempts.Go(func() {
			outcomes[i] = j.attempt(addr)
			<-slots
		})
	}
	attempts.Wait()
	if j.c.ctx.Err() != nil {
		return nil
	}
	for i, addr := range due {
		j.noteTry(addr, outcomes[i], time.Now())
	}
	return slices.DeleteFunc(outcomes, func(err error) bool { return err == errSelf })
}

// due returns the targets to try now, without added addresses of members that are present.
func (j *joiner) due(now time.Time, view *ring.View) []string {
	changed, present := view != j.view, make(map[string]bool)
	j.view = view
	for _, m := range view.Members {
		present[m.Gossip] = true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.forgetLocked(now)
	var due []string
	for addr, t := range j.targets {
		if (!now.Before(t.next) || changed && !t.lost) && (t.seed || !present[addr]) {
			due = append(due, addr)
		}
	}
	return due
}

// errSelf is the outcome for an address that is this member's own.
var errSelf = errors.New("gossip: own address")

// attempt joins the members at addr that are not in the view. It succeeds if
// there are none, or if one of them takes this member in.
func (j *joiner) attempt(addr string) error {
	ctx, cancel := context.WithTimeout(j.c.ctx, joinPatience)
	defer cancel()
	found, err := resolveAll(ctx, addr, DefaultPort)
	if err != nil {
		return fmt.Errorf("gossip: seed %s (--join): %w", addr, err)
	}
	found = found[:min(len(found), seedAddresses)]
	others := slices.DeleteFunc(found, func(at netip.AddrPort) bool { return at.String() == j.c.identity.Gossip })
	if len(others) == 0 {
		return errSelf
	}
	members := j.c.View().Members
	var failures []error
	for _, other := range others {
		at := other.String()
		if slices.ContainsFunc(members, func(m ring.Member) bool { return m.Gossip == at }) {
			continue
		}
		if _, err := j.c.list.Join([]string{at}); err != nil {
			failures = append(failures, explain(at, err))
		}
	}
	if len(failures) < len(others) {
		return nil
	}
	// A refusal says more than an address that does not answer.
	refusal := slices.IndexFunc(failures, func(err error) bool { return errors.Is(err, ErrRefused) })
	return failures[max(refusal, 0)]
}

// noteTry decides when addr is tried again, and warns of a seed while it knows no other
// member. A seed that does not answer is tried
// in every round, anything else less and less often.
func (j *joiner) noteTry(addr string, err error, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t, known := j.targets[addr]
	if !known {
		return
	}
	refused := errors.Is(err, ErrRefused)
	switch {
	case err == nil || err == errSelf:
		if t.lost && t.seed && err == nil {
			j.c.log.Info("seed joined", "seed", addr)
		}
		t.lost, t.delay, t.next = false, joinInterval, time.Time{}
		if len(j.view.Members) > 1 {
			t.next = now.Add(joinCalm)
		}
		return
	case t.seed && !refused:
		t.delay = joinInterval
		t.next = time.Time{}
	default:
		t.next = now.Add(t.delay)
		t.delay = min(2*t.delay, joinSlowest)
	}
	t.lost = true
	switch {
	case refused && (!j.started || j.guessed): // Start returns it, or has logged it
	case refused && j.throttle.pass(err.Error(), now):
		j.c.log.Error("cannot join a seed", "error", err)
	case t.seed && !refused && len(j.c.View().Members) < 2 && j.throttle.pass(err.Error(), now):
		j.c.log.Warn("cannot join a seed yet: trying again", "seed", addr, "error", err)
	}
}

// Texts of memberlist's errors, which have no types.
const (
	noKeyFits     = "no installed keys could decrypt the message"
	peerPlain     = "encryption is configured but remote state is not encrypted"
	peerEncrypted = "remote state is encrypted and encryption is not configured"
)

// explain says in Keyway's words why Join failed. memberlist flattens errors into texts, so only
// texts distinguish them.
func explain(addr string, err error) error {
	if list, ok := err.(interface{ WrappedErrors() []error }); ok && len(list.WrappedErrors()) == 1 {
		err = list.WrappedErrors()[0]
	}
	text := strings.TrimSpace(err.Error())
	_, refusal, refused := strings.Cut(text, ErrRefused.Error()+": ")
	remote := strings.Contains(text, "remote error: ")
	switch {
	case refused:
		return fmt.Errorf("%w: seed %s: %s", ErrRefused, addr, refusal)
	case strings.Contains(text, noKeyFits):
		return fmt.Errorf("%w: seed %s encrypts gossip with a key that this member does not have: give both the same --gossip-key", ErrRefused, addr)
	case strings.Contains(text, peerPlain) && !remote, strings.Contains(text, peerEncrypted) && remote:
		return fmt.Errorf("%w: seed %s does not encrypt gossip, this member does: start the seed with the same --gossip-key, or this member without", ErrRefused, addr)
	case strings.Contains(text, peerEncrypted), strings.Contains(text, peerPlain):
		return fmt.Errorf("%w: seed %s encrypts gossip, this member does not: give this member the seed's --gossip-key", ErrRefused, addr)
	case strings.Contains(text, "invalid msgType"):
		return fmt.Errorf("%w: seed %s answers, but not with gossip: --join must name the --gossip address of a router or worker, not one that takes requests", ErrRefused, addr)
	case strings.HasSuffix(text, "EOF"), strings.Contains(text, "read tcp"):
		return fmt.Errorf("gossip: seed %s takes connections but does not answer: --join must name the --gossip address of a router or worker: %w", addr, err)
	}
	return fmt.Errorf("gossip: seed %s cannot be reached (--join): %w", addr, err)
}
