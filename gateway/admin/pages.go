package admin

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/ring"
)

// ringOf returns the workers that should own the partitions, by a view.
func ringOf(view *ring.View) status.Ring {
	out := status.Ring{Digest: digestText(view.Digest), Partitions: view.Table.Partitions(), Workers: []status.Share{}, Owners: []int{}, Placements: status.PlacementsOf(view)}
	index := make(map[string]int)
	for _, m := range view.Workers() {
		index[m.Incarnation] = len(out.Workers)
		out.Workers = append(out.Workers, status.Share{Name: m.Name, Incarnation: m.Incarnation})
	}
	for p := range out.Partitions {
		i := -1
		if m, ok := view.Owner(p); ok {
			i = index[m.Incarnation]
			out.Workers[i].Partitions++
		}
		out.Owners = append(out.Owners, i)
	}
	return out
}

func (a *admin) ring(*http.Request) (any, error) { return ringOf(a.cfg.Members.View()), nil }

func (a *admin) members(*http.Request) (any, error) {
	view := a.cfg.Members.View()
	shares := make(map[string]int)
	for _, share := range ringOf(view).Workers {
		shares[share.Incarnation] = share.Partitions
	}
	list := make([]status.Member, len(view.Members))
	for i, m := range view.Members {
		list[i] = status.Member{
			Name: m.Name, Incarnation: m.Incarnation, Role: m.Role.String(), State: m.State.String(),
			Address: m.Addr, Gossip: m.Gossip, Partitions: shares[m.Incarnation], View: digestText(m.View),
		}
	}
	return status.Members{Members: list}, nil
}

func (a *admin) workers(r *http.Request) (any, error) {
	return status.Workers{Workers: append([]status.WorkerRow{}, a.cfg.Operator.Workers(r.Context())...)}, nil
}

func (a *admin) moves(r *http.Request) (any, error) {
	return movesOf(a.cfg.Operator.Workers(r.Context())), nil
}

func (a *admin) loads(r *http.Request) (any, error) {
	return status.ClusterLoads{Workers: append([]status.LoadRow{}, a.cfg.Operator.Loads(r.Context())...)}, nil
}

func (a *admin) locks(r *http.Request) (any, error) {
	after, err := keyFromQuery(r, "after")
	if err != nil && !errors.Is(err, gateway.ErrNoKey) {
		return nil, badRequest("%w", err)
	}
	return a.cfg.Operator.Locks(r.Context(), after), nil
}

func (a *admin) unlock(r *http.Request, key string) (any, error) {
	rows, err := a.cfg.Operator.Unlock(r.Context(), key, askedBy(r))
	return rows, orNotFound(err, status.ErrNotLocked)
}

func (a *admin) release(r *http.Request, key string) (any, error) {
	return nil, orNotFound(a.cfg.Operator.Release(r.Context(), key, askedBy(r)), status.ErrNotQuarantined)
}

// askedBy names who has sent a request, for logs.
func askedBy(r *http.Request) string {
	return fmt.Sprintf("%.64q from %s", r.URL.Query().Get("by"), r.RemoteAddr)
}

// maxHot is how many keys /hot shows.
const maxHot = 20

func (a *admin) hot(r *http.Request) (any, error) {
	hot := hotOf(a.cfg.Operator.Workers(r.Context()))
	hot.Keys = hot.Keys[:min(maxHot, len(hot.Keys))]
	return hot, nil
}

// movesOf returns the moves that workers report.
func movesOf(rows []status.WorkerRow) (all status.Moves) {
	moves := func(s *status.WorkerStatus) []status.Move { return s.Moves }
	all.Moves, all.Silent = gather(rows, moves, func(m *status.Move) *string { return &m.At })
	slices.SortStableFunc(all.Moves, func(a, b status.Move) int { return b.Ended.Compare(a.Ended) })
	return all
}

// hotOf returns the keys that workers report. The key of balancers is not among them.
func hotOf(rows []status.WorkerRow) (all status.HotKeys) {
	keys := func(s *status.WorkerStatus) []status.HotKey { return s.Hot }
	all.Keys, all.Silent = gather(rows, keys, func(k *status.HotKey) *string { return &k.At })
	slices.SortStableFunc(all.Keys, func(a, b status.HotKey) int { return cmp.Compare(b.PerSecond, a.PerSecond) })
	all.Keys = slices.DeleteFunc(all.Keys, func(k status.HotKey) bool { return k.Key == placement.Lock })
	return all
}

// gather returns the items that workers report, each with its worker's name, and the names of
// workers without a report.
func gather[T any](rows []status.WorkerRow, told func(*status.WorkerStatus) []T, at func(*T) *string) (list []T, silent []string) {
	list, silent = []T{}, []string{}
	for _, row := range rows {
		if row.Status == nil {
			silent = append(silent, row.Name)
			continue
		}
		for _, t := range told(row.Status) {
			*at(&t) = row.Name
			list = append(list, t)
		}
	}
	return list, silent
}
