package worker

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/policy"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/ring"
)

// maxFormer is how many former owners [Worker.Status] names, and maxHot how many keys.
const maxFormer, maxHot = 16, 20

// Status returns what the worker does at the moment.
func (w *Worker) Status() gateway.WorkerStatus {
	now := time.Now()
	s := gateway.WorkerStatus{
		Name: w.name, Incarnation: w.Incarnation(), Version: metrics.ReadBuild().Version, State: w.stateName(),
		BusyKeys: w.running(), Waiting: w.queue.Waiting(), Queue: w.cfg.Queue,
		Awaiting: int(w.awaiting.Load()), Holds: int(w.locks.count.Load()), Locks: int(w.locks.held.Load()),
		SessionSlackSeconds: w.lease.Load().Admit.Left(w.instant(now)).Seconds(),
		Store:               w.shell.calls.status(),
		Residue:             w.shell.moves.residue(now), Moves: w.shell.moves.recent(), Hot: w.HotKeys(maxHot), App: w.appStatus(),
	}
	if err := w.Ready(); err != nil {
		s.NotReady = err.Error()
	}
	if id := w.cfg.Members.Settings().Store; id != 0 {
		s.Store.ID = id.String()
	}
	view := w.cfg.Members.View()
	missing := make(map[formerOwner]*gateway.MissingStatus)
	for i := range w.parts {
		s.Executions += w.parts[i].table.Stats().Granted
		m, _ := view.Owner(i)
		wanted, served := m.Incarnation == s.Incarnation, w.parts[i].open.Load()
		switch {
		case wanted && served:
			s.Wanted++
			s.Served++
		case wanted:
			s.Wanted++
			s.Arriving++
			w.parts[i].addMissing(missing)
		case served:
			s.Served++
			s.Departing++
		}
	}
	for _, m := range missing {
		s.Missing = append(s.Missing, *m)
	}
	slices.SortFunc(s.Missing, func(a, b gateway.MissingStatus) int {
		return cmp.Or(cmp.Compare(b.Partitions, a.Partitions), cmp.Compare(a.Worker, b.Worker))
	})
	s.Missing = s.Missing[:min(len(s.Missing), maxFormer)]
	return s
}

// formerOwner is a worker that had partitions, "" for none.
type formerOwner struct {
	name string
	gone bool
}

// addMissing adds the partition, which the ring gives to this worker and which it does
// not serve.
func (p *partition) addMissing(missing map[formerOwner]*gateway.MissingStatus) {
	record, owner, owned := p.owner()
	former := formerOwner{name: owner.Name}
	if !owned && record != nil && record.Owner != "" && record.Owner != p.worker.Incarnation() {
		former = formerOwner{p.worker.shell.moves.name(record.Owner), true}
	}
	m := missing[former]
	if m == nil {
		m = &gateway.MissingStatus{Worker: former.name, Gone: former.gone}
		missing[former] = m
	}
	m.Partitions++
	if owned {
		return
	}
	if wait, what := p.waiting(record); m.WaitsFor == "" || wait.Seconds() > m.WaitsSeconds {
		m.WaitsFor, m.WaitsSeconds = what, wait.Seconds()
	}
}

// stateName says where the worker stands with the ring.
func (w *Worker) stateName() string {
	switch {
	case w.draining.Load():
		return ring.StateLeaving.String()
	case w.offRing.Load():
		return "drained"
	case w.onRing():
		return ring.StateActive.String()
	}
	return ring.StateJoining.String()
}

func (w *Worker) appStatus() *gateway.AppStatus {
	if _, watched := w.appUp(); !watched && !w.cfg.AwaitApp {
		return nil
	}
	if err := w.appTrouble(false); err != nil {
		return &gateway.AppStatus{Trouble: err.Error()}
	}
	return &gateway.AppStatus{Up: true}
}

// Explain returns what the worker knows of a key. It returns the error of
// [gateway.CheckKey].
func (w *Worker) Explain(key string) (gateway.KeyStatus, error) {
	if err := gateway.CheckKey(key); err != nil {
		return gateway.KeyStatus{}, err
	}
	p := &w.parts[w.settings.Ring.Partition(key)]
	now, state := time.Now(), p.table.Inspect(key)
	s := gateway.KeyStatus{
		Worker: w.name, Incarnation: w.Incarnation(), Key: key, Partition: p.number, Served: p.open.Load(),
		Waiting: state.Waiters, Clients: state.Clients, MostOfOne: state.Longest, QueuePerKey: w.cfg.QueuePerKey,
		Residue: w.shell.moves.residueOfKey(p.number, key, now), Rates: w.rates.explain(w.policies.limits(), key, p.term.Load(), w.now()),
		Mismatch: w.claims.of(key),
	}
	record, owner, owned := p.owner()
	if record != nil {
		s.Epoch, s.Owner = record.Epoch, w.shell.moves.name(record.Owner)
	}
	if owned {
		s.Owner = owner.Name
	} else if !s.Served {
		var wait time.Duration
		wait, s.WaitsFor = p.waiting(record)
		s.WaitsSeconds = wait.Seconds()
	}
	if state.Token != 0 {
		s.Holder = w.explainHolder(p, key, state.Token, now)
	}
	return s, nil
}

// explainHolder says who holds a key here.
func (w *Worker) explainHolder(p *partition, key string, token int64, now time.Time) *gateway.KeyHolder {
	h := &gateway.KeyHolder{Token: token, Kind: "execution", Seconds: w.slow.heldFor(p.number, token, now).Seconds(), AtLeast: true}
	if l, shared, ok := p.holderOf(key, token); ok {
		h.Kind, h.HeldBy, h.Label, h.Shared = "hold", l.From, l.Label, shared
		h.LeaseSeconds = l.Left(now.Sub(w.base)).Seconds()
		return h
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := p.live; c != nil; c = c.next {
		if c.token != token {
			continue
		}
		h.ClientGone = !c.left.IsZero()
		if c.timeout != 0 {
			h.Seconds, h.AtLeast, h.LimitSeconds = (now.Sub(w.base) - c.began).Seconds(), false, c.timeout.Seconds()
		}
	}
	return h
}

// heldFor returns for how long, at least, an execution has held its key.
func (s *slowKeys) heldFor(partition int, token int64, now time.Time) (d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, ok := s.held[slowID{partition, token}]; ok {
		return now.Sub(h.since)
	}
	for _, look := range s.looks {
		if look.marks[partition].Minted(token) {
			return now.Sub(look.at)
		}
	}
	return 0
}

// limits returns the policies with a rate, one for each route.
func (ps *policies) limits() map[string]policy.Rate {
	limits := make(map[string]policy.Rate)
	if known := ps.known.Load(); known != nil {
		for _, p := range *known {
			if p.Rate != (policy.Rate{}) {
				limits[p.Route] = p.Rate
			}
		}
	}
	return limits
}

// explain returns the rates of a key that not all executions are left of, as of now
// since the worker's start and in that term of its partition.
func (r *rates) explain(limits map[string]policy.Rate, key string, term uint64, now time.Duration) (list []gateway.KeyRate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, route := range slices.Sorted(maps.Keys(limits)) {
		b, rate := r.buckets[newBucketID(route, key, term)], limits[route]
		if b == nil {
			continue
		}
		used := float64(max(b.full-now, 0)) / float64(rate.Interval())
		list = append(list, gateway.KeyRate{Route: route, PerSecond: rate.PerSecond, Burst: rate.Burst, Left: max(float64(rate.Burst)-used, 0)})
	}
	return list
}
