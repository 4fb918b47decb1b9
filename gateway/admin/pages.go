package admin

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/ring"
)

type ringJSON struct {
	Digest     string      `json:"digest"` // of the configuration and the active workers
	Partitions int         `json:"partitions"`
	Workers    []shareJSON `json:"workers"` // on the ring
	Owners     []int       `json:"owners"`  // of each partition, as an index of Workers; -1 for none
}

type shareJSON struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation"`
	Partitions  int    `json:"partitions"` // that the ring gives it
}

type memberJSON struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation,omitempty"`
	Role        string `json:"role"`
	State       string `json:"state"`
	Address     string `json:"address"`
	Gossip      string `json:"gossip"`
	Partitions  int    `json:"partitions"` // that the ring gives it
	View        string `json:"view"`       // digest of what it sees
}

// ringOf returns the owners that the ring of a view gives the partitions.
func ringOf(view *ring.View) ringJSON {
	out := ringJSON{Digest: digestText(view.Digest), Partitions: view.Table.Partitions(), Workers: []shareJSON{}, Owners: []int{}}
	index := make(map[string]int)
	for _, m := range view.Workers() {
		index[m.Incarnation] = len(out.Workers)
		out.Workers = append(out.Workers, shareJSON{Name: m.Name, Incarnation: m.Incarnation})
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
	list := make([]memberJSON, len(view.Members))
	for i, m := range view.Members {
		list[i] = memberJSON{
			Name: m.Name, Incarnation: m.Incarnation, Role: m.Role.String(), State: m.State.String(),
			Address: m.Addr, Gossip: m.Gossip, Partitions: shares[m.Incarnation], View: digestText(m.View),
		}
	}
	writeJSON(w, map[string]any{"members": list})
}

func (a *admin) workers(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, map[string]any{"workers": append([]status.WorkerRow{}, a.cfg.Operator.Workers(r.Context())...)})
}

type movesJSON struct {
	Moves  []status.RecentMove `json:"moves"`  // the latest first
	Silent []string            `json:"silent"` // workers that did not tell
}

func (a *admin) moves(w http.ResponseWriter, r *http.Request) {
	list, silent := movesOf(a.cfg.Operator.Workers(r.Context()))
	writeJSON(w, movesJSON{list, silent})
}

type hotJSON struct {
	Keys   []status.HotKeyAt `json:"keys"`   // the hottest first
	Silent []string          `json:"silent"` // workers that did not tell
}

func (a *admin) hot(w http.ResponseWriter, r *http.Request) {
	n, err := hotNumber(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	list, silent := hotOf(a.cfg.Operator.Workers(r.Context()))
	writeJSON(w, hotJSON{list[:min(n, len(list))], silent})
}

func (a *admin) locks(w http.ResponseWriter, r *http.Request) {
	var after string
	if r.URL.Query().Has("after") {
		var err error
		if after, err = keyFromQuery(r, "after"); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	writeJSON(w, a.cfg.Operator.Locks(r.Context(), after))
}

func (a *admin) unlock(w http.ResponseWriter, r *http.Request) {
	key, err := keyFromQuery(r, "key")
	if err == nil {
		err = keysource.Check(key)
	}
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

func (a *admin) ownHot(w http.ResponseWriter, r *http.Request) {
	n, err := hotNumber(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	writeJSON(w, a.cfg.Hot(n))
}

// hotDefault is how many keys /hot and /debug/hot show.
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

// movesOf returns the moves that workers report, the latest first, and the names of workers without
// a report.
func movesOf(rows []status.WorkerRow) ([]status.RecentMove, []string) {
	moves := func(s *status.WorkerStatus) []status.Move { return s.Moves }
	return gather(rows, moves, func(at string, m status.Move) status.RecentMove { return status.RecentMove{At: at, Move: m} },
		func(a, b status.RecentMove) int { return b.Ended.Compare(a.Ended) })
}

// hotOf returns the keys that workers report, the hottest first, and the names of workers without a
// report.
func hotOf(rows []status.WorkerRow) ([]status.HotKeyAt, []string) {
	keys := func(s *status.WorkerStatus) []status.HotKey { return s.Hot }
	return gather(rows, keys, func(at string, k status.HotKey) status.HotKeyAt { return status.HotKeyAt{At: at, HotKey: k} },
		func(a, b status.HotKeyAt) int { return cmp.Compare(b.PerSecond, a.PerSecond) })
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
