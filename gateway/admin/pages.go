package admin

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/keyway-go/keyway/gateway"
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

func (a *admin) ring(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, ringOf(a.cfg.Members.View()))
}

func (a *admin) members(w http.ResponseWriter, _ *http.Request) {
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
	writeJSON(w, status.Members{Members: list})
}

func (a *admin) workers(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, status.Workers{Workers: append([]status.WorkerRow{}, a.cfg.Operator.Workers(r.Context())...)})
}

func (a *admin) moves(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, movesOf(a.cfg.Operator.Workers(r.Context())))
}

func (a *admin) hot(w http.ResponseWriter, r *http.Request) {
	n, err := hotNumber(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	hot := hotOf(a.cfg.Operator.Workers(r.Context()))
	hot.Keys = hot.Keys[:min(n, len(hot.Keys))]
	writeJSON(w, hot)
}

func (a *admin) loads(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, status.ClusterLoads{Workers: append([]status.LoadRow{}, a.cfg.Operator.Loads(r.Context())...)})
}

func (a *admin) locks(w http.ResponseWriter, r *http.Request) {
	after, err := keyFromQuery(r, "after")
	if err != nil && !errors.Is(err, gateway.ErrNoKey) {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	writeJSON(w, a.cfg.Operator.Locks(r.Context(), after))
}

func (a *admin) unlock(w http.ResponseWriter, r *http.Request) {
	key, err := keyFromQuery(r, "key")
	if err != nil {
		http.Error(w, err.Error()+" (use /unlock?key=KEY)", http.StatusBadRequest)
		return
	}
	rows, err := a.cfg.Operator.Unlock(r.Context(), key, fmt.Sprintf("%.64q from %s", r.URL.Query().Get("by"), r.RemoteAddr))
	switch {
	case errors.Is(err, status.ErrNotLocked):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "not unlocked: "+err.Error(), http.StatusServiceUnavailable)
	default:
		writeJSON(w, rows)
	}
}

func (a *admin) release(w http.ResponseWriter, r *http.Request) {
	key, err := keyFromQuery(r, "key")
	if err != nil {
		http.Error(w, err.Error()+" (use /release?key=KEY)", http.StatusBadRequest)
		return
	}
	err = a.cfg.Operator.Release(r.Context(), key, fmt.Sprintf("%.64q from %s", r.URL.Query().Get("by"), r.RemoteAddr))
	switch {
	case errors.Is(err, status.ErrNotQuarantined):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "not released: "+err.Error(), http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, "released")
	}
}

// hotDefault is how many keys /hot shows.
const hotDefault = 20

// hotNumber returns how many keys a request wants to see.
func hotNumber(r *http.Request) (int, error) {
	text := r.URL.Query().Get("n")
	if text == "" {
		return hotDefault, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("n is %q, want a number of keys (use %s?n=20)", text, r.URL.Path)
	}
	return n, nil
}

// movesOf returns the moves that workers report.
func movesOf(rows []status.WorkerRow) (all status.Moves) {
	moves := func(s *status.WorkerStatus) []status.Move { return s.Moves }
	all.Moves, all.Silent = gather(rows, moves, func(at string, m status.Move) status.RecentMove { return status.RecentMove{At: at, Move: m} },
		func(a, b status.RecentMove) int { return b.Ended.Compare(a.Ended) })
	return all
}

// hotOf returns the keys that workers report.
func hotOf(rows []status.WorkerRow) (all status.HotKeys) {
	keys := func(s *status.WorkerStatus) []status.HotKey { return s.Hot }
	all.Keys, all.Silent = gather(rows, keys, func(at string, k status.HotKey) status.HotKeyAt { return status.HotKeyAt{At: at, HotKey: k} },
		func(a, b status.HotKeyAt) int { return cmp.Compare(b.PerSecond, a.PerSecond) })
	return all
}

// gather returns in order the items that workers report, each with its worker's name, and the names
// of workers without a report.
func gather[T, At any](rows []status.WorkerRow, told func(*status.WorkerStatus) []T, at func(worker string, t T) At, order func(a, b At) int) (list []At, silent []string) {
	list, silent = []At{}, []string{}
	for _, row := range rows {
		if row.Status == nil {
			silent = append(silent, row.Name)
			continue
		}
		for _, t := range told(row.Status) {
			list = append(list, at(row.Name, t))
		}
	}
	slices.SortStableFunc(list, order)
	return list, silent
}
