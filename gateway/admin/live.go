package admin

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/ring"
)

//go:embed live.html
var livePage []byte

// The live page shows that many of the hottest keys and of the latest moves.
const liveHot, liveMoves = 12, 24

// serveLivePage returns the handler of the page. Its policy lets a browser run and style
// nothing but what the page has in it, and reach nothing but this address.
func serveLivePage() http.HandlerFunc {
	policy := "default-src 'none'; script-src " + hashOf("script") + "; style-src " + hashOf("style") +
		"; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", policy)
		h.Set("Cache-Control", "no-store")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(livePage) // the client may have left
	}
}

// hashOf returns what a Content-Security-Policy calls the page's only element of a name.
func hashOf(element string) string {
	_, rest, _ := bytes.Cut(livePage, []byte("<"+element+">"))
	text, _, _ := bytes.Cut(rest, []byte("</"+element+">"))
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// liveJSON is the content of the live page, sent as an event of /events.
type liveJSON struct {
	Time       time.Time       `json:"time"`
	Self       liveSelf        `json:"self"`
	Says       []sentence      `json:"says"` // what is to be said, the most urgent first; at least one
	Partitions int             `json:"partitions"`
	TTLSeconds float64         `json:"ttl_seconds"`
	Workers    []liveWorker    `json:"workers"` // by name
	Hot        []status.HotKey `json:"hot"`     // the hottest first
	Moves      []status.Move   `json:"moves"`   // the latest first
	Traffic    *liveTraffic    `json:"traffic,omitempty"`
}

// liveSelf is the process that shows the page.
type liveSelf struct {
	Name     string `json:"name"`
	Role     string `json:"role"`
	Asks     bool   `json:"asks"`                // workers, and /explain is there
	NotReady string `json:"not_ready,omitempty"` // why

	StoreError string `json:"store_error,omitempty"` // why it cannot use the store
}

// liveWorker is a worker, without what the page shows elsewhere.
type liveWorker struct {
	status.WorkerRow
	Wanted    int      `json:"wanted"`               // partitions that it should own
	Placed    int      `json:"placed,omitempty"`     // of these, by placement and not by the ring
	PerSecond *float64 `json:"per_second,omitempty"` // executions that began, as far as that is known
}

// collector gathers what the live page shows.
type collector struct {
	cfg     *Config
	history history
}

func (c *collector) collect(ctx context.Context) []byte {
	view, self := c.cfg.Members.View(), c.cfg.Members.Self()
	s := liveJSON{
		Self: liveSelf{Name: self.Name, Role: self.Role.String(), Asks: c.cfg.Operator != nil}, Partitions: view.Table.Partitions(),
		TTLSeconds: c.cfg.Members.Settings().WithDefaults().TTL.Seconds(), Workers: []liveWorker{},
	}
	if c.cfg.Ready != nil {
		if err := c.cfg.Ready(); err != nil {
			s.Self.NotReady = err.Error()
		}
	}
	if c.cfg.Store != nil {
		if err := c.cfg.Store(); err != nil {
			s.Self.StoreError = err.Error()
		}
	}
	var rows []status.WorkerRow
	if c.cfg.Operator != nil {
		rows = c.cfg.Operator.Workers(ctx)
	} else {
		rows = rowsOf(view)
	}
	s.Time = time.Now()
	c.history.add(s.Time, c.cfg.Metrics, rows)
	s.Traffic = c.history.traffic()
	shares := make(map[string]int) // by name
	for _, w := range ringOf(view).Workers {
		shares[w.Name] += w.Partitions
	}
	placed := make(map[string]int)
	for _, p := range status.PlacementsOf(view) {
		placed[p.Worker]++
	}
	for _, row := range rows {
		w := liveWorker{WorkerRow: row, Wanted: shares[row.Name], Placed: placed[row.Name]}
		if row.Status != nil {
			w.PerSecond = c.history.rate(row.Status.Incarnation)
			status := *row.Status
			status.Hot, status.Moves = nil, nil
			w.Status = &status
		}
		s.Workers = append(s.Workers, w)
	}
	s.Hot, s.Moves = hotOf(rows).Keys, movesOf(rows).Moves
	s.Says = say(&s)
	s.Hot = s.Hot[:min(len(s.Hot), liveHot)]
	s.Moves = withoutMirrors(s.Moves)
	s.Moves = s.Moves[:min(len(s.Moves), liveMoves)]
	text, _ := json.Marshal(s) // no value of it can fail
	return text
}

// rowsOf returns the workers of a view, without their status.
func rowsOf(view *ring.View) (rows []status.WorkerRow) {
	for _, m := range view.Members {
		if m.Role == ring.RoleWorker {
			rows = append(rows, status.WorkerRow{Name: m.Name, Address: m.Addr, State: m.State.String()})
		}
	}
	return rows
}

// withoutMirrors returns the moves without those given away that another worker reports as taken
// over.
func withoutMirrors(moves []status.Move) []status.Move {
	taken := make(map[[2]string]bool)
	for _, m := range moves {
		if m.Direction == "taken" {
			taken[[2]string{m.Worker, m.At}] = true
		}
	}
	return slices.DeleteFunc(moves, func(m status.Move) bool {
		return m.Direction == "given" && taken[[2]string{m.At, m.Worker}]
	})
}
