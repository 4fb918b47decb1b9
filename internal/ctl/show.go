package ctl

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/console"
	"github.com/keyway-go/keyway/internal/status"
)

// table is what people see of a page: rows in columns, and lines below them.
type table struct {
	headed bool // the first row is the heads
	rows   [][]string
	notes  []string
}

// heads returns a table with these heads. A column of keys is the last, since keys are of any length.
func heads(names ...string) *table { return &table{headed: true, rows: [][]string{names}} }

// add adds a row.
func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = fmt.Sprint(cell)
	}
	t.rows = append(t.rows, row)
}

func (t *table) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// silent notes the workers that did not answer.
func (t *table) silent(names []string) *table {
	for _, name := range names {
		t.note("%s did not answer", name)
	}
	return t
}

// show sends a request and shows its answer: as it came with --json, else as the table of the page.
func show[T any](a *question, method, path string, query url.Values, tableOf func(page *T) *table) error {
	body, err := a.call(method, path, query)
	if err != nil {
		return err
	}
	if a.asJSON {
		_, err = a.stdout.Write(body)
		return err
	}
	page := new(T)
	if err := json.Unmarshal(body, page); err != nil {
		return fmt.Errorf("%s does not answer with the JSON of %s: %w", a.admin, path, err)
	}
	t := tableOf(page)
	lines := columns(t.rows)
	if len(t.notes) > 0 {
		lines = append(lines, "")
	}
	for _, note := range t.notes {
		lines = append(lines, console.Printable(note))
	}
	if t.headed {
		lines[0] = a.bold(lines[0])
	}
	_, err = fmt.Fprintln(a.stdout, strings.Join(lines, "\n"))
	return err
}

// columns returns rows as lines of columns.
func columns(rows [][]string) []string {
	var b strings.Builder
	out := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i := range row {
			row[i] = console.Printable(row[i])
		}
		fmt.Fprintln(out, strings.Join(row, "\t"))
	}
	out.Flush() // memory does not fail
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return lines
}

// page returns the command that shows the page of that path.
func page[T any](path string, tableOf func(page *T) *table) func(a *question, args []string) error {
	return func(a *question, _ []string) error { return show(a, http.MethodGet, path, nil, tableOf) }
}

func membersTable(page *status.Members) *table {
	t := heads("NAME", "ROLE", "STATE", "ADDRESS", "GOSSIP", "PARTITIONS", "VIEW")
	for _, m := range page.Members {
		partitions := "-"
		if m.Role == "worker" {
			partitions = strconv.Itoa(m.Partitions)
		}
		t.add(m.Name, m.Role, m.State, m.Address, m.Gossip, partitions, m.View)
	}
	return t
}

func ringTable(page *status.Ring) *table {
	t, left := heads("WORKER", "PARTITIONS", "SHARE", "INCARNATION"), page.Partitions
	share := func(n int) string { return percent(float64(n), float64(page.Partitions)) }
	for _, w := range page.Workers {
		left -= w.Partitions
		t.add(w.Name, w.Partitions, share(w.Partitions), w.Incarnation)
	}
	if left > 0 {
		t.add("(nobody)", left, share(left), "")
	}
	t.note("%d partitions, ring %s", page.Partitions, page.Digest)
	for _, p := range page.Placements {
		t.note("partition %d is placed at %s by %s", p.Partition, p.Worker, p.By)
	}
	return t
}

func (a *question) workers([]string) error {
	return show(a, http.MethodGet, "/workers", nil, func(page *status.Workers) *table {
		t := heads("NAME", "STATE", "SERVED", "WANTED", "BUSY KEYS", "WAITING", "SLACK", "STORE", "RESIDUE", "VERSION")
		for _, w := range page.Workers {
			s := w.Status
			if s == nil {
				t.add(w.Name, w.State, "?", "?", "?", "?", "?", "?", "?", "?")
				t.note("%s: %s", w.Name, w.Error)
				continue
			}
			keys := 0
			for _, r := range s.Residue {
				keys += r.Keys
				t.note("%s: %d keys of partitions that moved still run at %s, the oldest for %s", w.Name, r.Keys, r.Worker, status.Seconds(r.OldestSeconds))
			}
			t.add(w.Name, s.State, s.Served, s.Wanted, s.BusyKeys, s.Waiting, status.Seconds(s.SessionSlackSeconds), storeText(s.Store), keys, s.Version)
			if s.NotReady != "" {
				t.note("%s: not ready: %s", w.Name, s.NotReady)
			}
			if s.Store.FailedAt != nil {
				t.note("%s: the store last failed at %s: %s", w.Name, s.Store.FailedAt.Local().Format(time.DateTime), s.Store.LastError)
			}
		}
		if len(page.Workers) == 0 {
			if _, err := a.call(http.MethodGet, "/readyz", nil); err != nil {
				t.note("%v", err)
			}
		}
		return t
	})
}

// storeText says whether a worker's last call to the store was answered.
func storeText(s status.StoreStatus) string {
	switch {
	case s.Fails():
		return "fails"
	case s.Answered == nil:
		return "never"
	}
	return "ok"
}

func movesTable(page *status.Moves) *table {
	t := heads("WHEN", "WORKER", "WHAT", "PARTITIONS", "FROM/TO", "BECAUSE", "TOOK", "STILL RUNNING")
	for _, m := range page.Moves {
		t.add(m.Ended.Local().Format(time.DateTime), m.At, m.Direction, m.Partitions, cmp.Or(m.Worker, "-"), m.Because, status.Seconds(m.LongestSeconds), m.Running)
	}
	return t.silent(page.Silent)
}

func hotTable(page *status.HotKeys) *table {
	t := heads("WORKER", "A SECOND", "TOO HIGH BY", "WAITING", "KEY")
	for _, k := range page.Keys {
		t.add(k.At, fmt.Sprintf("%.1f", k.PerSecond), fmt.Sprintf("%.1f", k.Error), k.Waiting, strconv.Quote(k.Key))
	}
	return t.silent(page.Silent)
}

// maxLoads is how many partitions ctl loads shows.
const maxLoads = 20

func loadsTable(page *status.ClusterLoads) *table {
	t := heads("PARTITION", "WORKER", "A SECOND", "RUNNING", "QUEUEING", "LOAD", "OF ITS WORKER'S")
	type row struct {
		status.PartitionLoad
		at *status.LoadRow
	}
	var rows []row
	var load, weight float64
	for i := range page.Workers {
		w := &page.Workers[i]
		if w.Loads == nil {
			continue
		}
		load, weight = load+w.Loads.Total.Load, weight+w.Loads.Weight
		for _, p := range w.Loads.Partitions {
			rows = append(rows, row{p, w})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(b.Load, a.Load) })
	number := func(v float64) string { return fmt.Sprintf("%.3f", v) }
	for _, r := range rows[:min(len(rows), maxLoads)] {
		t.add(r.Partition, r.at.Worker, fmt.Sprintf("%.1f", r.Executions), number(r.Running), number(r.Queueing), number(r.Load), percent(r.Load, r.at.Loads.Total.Load))
	}
	for _, w := range page.Workers {
		if w.Loads == nil {
			t.note("%s did not answer: %s", w.Worker, w.Error)
			continue
		}
		t.note("%s: load %s, %s of the mean for its weight %v", w.Worker, number(w.Loads.Total.Load), percent(w.Loads.Total.Load*weight, load*w.Loads.Weight), w.Loads.Weight)
	}
	return t
}

// percent returns which part of all n is.
func percent(n, all float64) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*n/all)
}

func (a *question) locks([]string) error {
	query := url.Values{}
	if a.after != "" {
		query.Set("after", a.after)
	}
	return show(a, http.MethodGet, "/locks", query, func(page *status.LockPage) *table {
		t := lockTable(page.Locks).silent(page.Silent)
		if page.Next != "" {
			t.note("There are more: --after %q shows the next ones.", page.Next)
		}
		return t
	})
}

func (a *question) unlock(args []string) error {
	query := url.Values{"key": {args[0]}, "by": {whoAsks()}}
	return show(a, http.MethodPost, "/unlock", query, func(released *[]status.LockRow) *table {
		t := lockTable(*released)
		t.note("These locks are released. Their holders find them gone.")
		return t
	})
}

// whoAsks names who calls ctl, for logs.
func whoAsks() string {
	host, _ := os.Hostname()
	return os.Getenv("USER") + "@" + host
}

func quarantineTable(all *status.Workers) *table {
	t := heads("WORKERS THAT DIED", "LEFT", "KEY")
	i := slices.IndexFunc(all.Workers, func(w status.WorkerRow) bool { return w.Status != nil })
	if i < 0 {
		t.note("no worker has answered, and only workers know")
		return t
	}
	for _, q := range all.Workers[i].Status.Quarantined { // all know the same
		t.add(strings.Join(q.Workers, ", "), time.Duration(q.Seconds*float64(time.Second)).Round(time.Second), strconv.Quote(q.Key))
	}
	return t
}

func lockTable(locks []status.LockRow) *table {
	t := heads("WORKER", "HELD BY", "READERS", "LEFT", "WRITTEN", "TOKEN", "KEY")
	for _, l := range locks {
		left := time.Duration(l.LeaseSeconds * float64(time.Second)).Round(time.Second)
		t.add(l.At, strconv.Quote(cmp.Or(l.Label, l.HeldBy)), l.Readers, left, l.Written, l.Token, strconv.Quote(l.Key))
	}
	return t
}

func (a *question) explain(args []string) error {
	query := url.Values{}
	if a.request == "" {
		query.Set("key", args[0])
	} else {
		method, target, ok := strings.Cut(a.request, " ")
		if !ok {
			return cli.Usagef("--request is %q, want METHOD URL, such as 'POST http://shop.example/orders/42'", a.request)
		}
		query = url.Values{"method": {method}, "url": {strings.TrimSpace(target)}, "header": a.header, "body": {a.body}, "client": {a.client}}
	}
	return show(a, http.MethodGet, "/explain", query, explanation)
}

func explanation(e *status.Explanation) *table {
	t := &table{notes: e.Verdict}
	add := func(name, format string, args ...any) { t.add(name, fmt.Sprintf(format, args...)) }
	if e.Source != "" {
		by := ""
		if e.Route != "" {
			by = fmt.Sprintf(", by the route %q (%s)", e.Route, e.Mode)
		}
		add("source", "%s%s", e.Source, by)
	}
	add("key", "%q", e.Key)
	if e.Key != "" {
		add("partition", "%d", e.Partition)
		add("the ring wants", "%s", placeText(e.Wanted))
		add("requests go to", "%s", placeText(e.Believed))
	}
	if w := e.Worker; w != nil {
		served := "no"
		if w.Served {
			served = "yes"
		}
		add("worker "+w.Worker, "serves it: %s; epoch %d, owner %s", served, w.Epoch, cmp.Or(w.Owner, "nobody"))
	}
	return t
}

func placeText(p *status.Place) string {
	if p == nil {
		return "nobody"
	}
	return p.Name + " at " + p.Address
}
