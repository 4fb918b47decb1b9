package worker

import (
	"cmp"
	"slices"
	"time"

	"github.com/keyway-go/keyway/gateway/worker/internal/keyed"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/keytable"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/status"
)

// maxFormer is how many former owners [Worker.Status] names, and maxHot how many keys.
const maxFormer, maxHot = 16, 20

// Status returns what the worker does at the moment.
func (w *Worker) Status() status.WorkerStatus {
	now := time.Now()
	residue := w.shell.Moves.Residue(now)
	s := status.WorkerStatus{
		Name: w.name, Incarnation: w.Incarnation(), Version: metrics.ReadBuild().Version, State: w.shell.Standing(),
		BusyKeys: w.keys.Running(), Waiting: w.keys.Waiting(), Queue: w.cfg.Queue,
		Awaiting: int(w.keys.Awaiting.Load()), Holds: int(w.locks.Count.Load()), Locks: int(w.locks.Held.Load()),
		SessionSlackSeconds: w.keys.Slack().Seconds(),
		Store:               w.shell.StoreStatus(),
		Residue:             residue[:min(len(residue), maxFormer)], Moves: w.shell.Moves.Recent(), Hot: w.HotKeys(maxHot), App: w.appStatus(), Quarantined: w.shell.Docket.Quarantined(),
	}
	if err := w.Ready(); err != nil {
		s.NotReady = err.Error()
	}
	if id := w.cfg.Members.Settings().Store; id != 0 {
		s.Store.ID = id.String()
	}
	view := w.cfg.Members.View()
	missing := make(map[formerOwner]*status.MissingStatus)
	for i := range w.keys.Parts {
		s.Executions += w.keys.Parts[i].Table.Stats().Granted
		m, _ := view.Owner(i)
		wanted, served := m.Incarnation == s.Incarnation, w.keys.Parts[i].Open.Load()
		switch {
		case wanted && served:
			s.Wanted++
			s.Served++
		case wanted:
			s.Wanted++
			s.Arriving++
			w.addMissing(&w.keys.Parts[i], missing)
		case served:
			s.Served++
			s.Departing++
		}
	}
	for _, m := range missing {
		s.Missing = append(s.Missing, *m)
	}
	slices.SortFunc(s.Missing, func(a, b status.MissingStatus) int {
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

// addMissing adds the partition, which the ring gives to this worker and which it does not serve.
func (w *Worker) addMissing(p *keyed.Partition, missing map[formerOwner]*status.MissingStatus) {
	record, owner, owned := p.Owner()
	former := formerOwner{name: owner.Name}
	if !owned && record != nil && record.Owner != "" && record.Owner != w.Incarnation() {
		former = formerOwner{w.shell.Moves.NameOf(record.Owner), true}
	}
	m := missing[former]
	if m == nil {
		m = &status.MissingStatus{Worker: former.name, Gone: former.gone}
		missing[former] = m
	}
	m.Partitions++
	if owned {
		return
	}
	if wait, what := w.shell.Waiting(p.Number, record); m.WaitsFor == "" || wait.Seconds() > m.WaitsSeconds {
		m.WaitsFor, m.WaitsSeconds = what, wait.Seconds()
	}
}

func (w *Worker) appStatus() *status.AppStatus {
	if _, watched := w.appUp(); !watched && !w.cfg.AwaitApp {
		return nil
	}
	if err := w.appTrouble(false); err != nil {
		return &status.AppStatus{Trouble: err.Error()}
	}
	return &status.AppStatus{Up: true}
}

// Explain returns what the worker knows of a key. Its error wraps
// [gateway.ErrNoKey] or [gateway.ErrBadKey].
func (w *Worker) Explain(key string) (status.KeyStatus, error) {
	if err := keysource.Check(key); err != nil {
		return status.KeyStatus{}, err
	}
	p := w.keys.Of(key)
	now, state := time.Now(), p.Table.Inspect(key)
	s := status.KeyStatus{
		Worker: w.name, Incarnation: w.Incarnation(), Key: key, Partition: p.Number, Served: p.Open.Load(),
		Waiting: state.Waiters, Clients: state.Clients, MostOfOne: state.Longest, QueuePerKey: w.cfg.QueuePerKey,
		Residue: w.shell.Moves.ResidueOfKey(p.Number, key, now), Rates: w.keys.RatesOf(key, w.policies.limits()),
		Mismatch: w.claims.of(key), Quarantine: w.shell.Docket.Why(key),
	}
	record, owner, owned := p.Owner()
	if record != nil {
		s.Epoch, s.Owner = record.Epoch, w.shell.Moves.NameOf(record.Owner)
	}
	if owned {
		s.Owner = owner.Name
	} else if !s.Served {
		var wait time.Duration
		wait, s.WaitsFor = w.shell.Waiting(p.Number, record)
		s.WaitsSeconds = wait.Seconds()
	}
	if state.Token != 0 {
		s.Holder = w.explainHolder(p, key, state)
	}
	return s, nil
}

// explainHolder says who holds a key here.
func (w *Worker) explainHolder(p *keyed.Partition, key string, state keytable.KeyState) *status.KeyHolder {
	h := &status.KeyHolder{Token: state.Token, Kind: "execution", AtLeast: true}
	if state.Seen != 0 {
		h.Seconds = (w.keys.Now() - state.Seen).Seconds()
	}
	if l, shared, ok := w.locks.HolderOf(p, key, state.Token); ok {
		h.Kind, h.HeldBy, h.Label, h.Shared = "hold", l.From, l.Label, shared
		h.LeaseSeconds = l.Left(w.keys.Now()).Seconds()
		return h
	}
	gone, ran, limit := p.Running(state.Token)
	if h.ClientGone = gone; limit != 0 {
		h.Seconds, h.AtLeast, h.LimitSeconds = ran.Seconds(), false, limit.Seconds()
	}
	return h
}
