package ctl

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/console"
	"github.com/keyway-go/keyway/internal/status"
)

// table writes rows in columns; the first row is the heads.
func (a *question) table(rows [][]string) error {
	lines := columns(rows)
	lines[0] = a.bold(lines[0])
	_, err := fmt.Fprintln(a.stdout, strings.Join(lines, "\n"))
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

// line writes a line of what the cluster says; only --json shows that as it came.
func (a *question) line(text string) error {
	_, err := fmt.Fprintln(a.stdout, console.Printable(text))
	return err
}

func (a *question) members([]string) error {
	var page struct {
		Members []struct {
			Name, Role, State, Address, Gossip, View string
			Partitions                               int
		}
	}
	if shown, err := a.get("/members", nil, &page); err != nil || shown {
		return err
	}
	rows := [][]string{{"NAME", "ROLE", "STATE", "ADDRESS", "GOSSIP", "PARTITIONS", "VIEW"}}
	for _, m := range page.Members {
		partitions := "-"
		if m.Role == "worker" {
			partitions = fmt.Sprint(m.Partitions)
		}
		rows = append(rows, []string{m.Name, m.Role, m.State, m.Address, m.Gossip, partitions, m.View})
	}
	return a.table(rows)
}

func (a *question) ring([]string) error {
	var page struct {
		Digest     string
		Partitions int
		Workers    []struct {
			Name, Incarnation string
			Partitions        int
		}
	}
	if shown, err := a.get("/ring", nil, &page); err != nil || shown {
		return err
	}
	rows := [][]string{{"WORKER", "PARTITIONS", "SHARE", "INCARNATION"}}
	left := page.Partitions
	for _, w := range page.Workers {
		left -= w.Partitions
		rows = append(rows, []string{w.Name, fmt.Sprint(w.Partitions), share(w.Partitions, page.Partitions), w.Incarnation})
	}
	if left > 0 {
		rows = append(rows, []string{"(nobody)", fmt.Sprint(left), share(left, page.Partitions), ""})
	}
	if err := a.table(rows); err != nil {
		return err
	}
	return a.lines([]string{fmt.Sprintf("%d partitions, ring %s", page.Partitions, page.Digest)})
}

func share(n, of int) string {
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(max(of, 1)))
}

func (a *question) workers([]string) error {
	var page struct{ Workers []status.WorkerRow }
	if shown, err := a.get("/workers", nil, &page); err != nil || shown {
		return err
	}
	rows := [][]string{{"NAME", "STATE", "SERVED", "WANTED", "BUSY KEYS", "WAITING", "SLACK", "STORE", "RESIDUE", "VERSION"}}
	var notes []string
	for _, w := range page.Workers {
		s := w.Status
		if s == nil {
			rows = append(rows, []string{w.Name, w.State, "?", "?", "?", "?", "?", "?", "?", "?"})
			notes = append(notes, w.Name+": "+w.Error)
			continue
		}
		keys := 0
		for _, r := range s.Residue {
			keys += r.Keys
			notes = append(notes, fmt.Sprintf("%s: %d keys of partitions that moved still run at %s, the oldest for %s", w.Name, r.Keys, r.Worker, seconds(r.OldestSeconds)))
		}
		rows = append(rows, []string{
			w.Name, s.State, fmt.Sprint(s.Served), fmt.Sprint(s.Wanted), fmt.Sprint(s.BusyKeys), fmt.Sprint(s.Waiting),
			seconds(s.SessionSlackSeconds), storeText(s.Store), fmt.Sprint(keys), s.Version,
		})
		if s.NotReady != "" {
			notes = append(notes, w.Name+": not ready: "+s.NotReady)
		}
		if s.Store.LastError != "" {
			notes = append(notes, fmt.Sprintf("%s: the store last failed at %s: %s", w.Name, s.Store.FailedAt.Local().Format(time.DateTime), s.Store.LastError))
		}
	}
	if err := a.table(rows); err != nil {
		return err
	}
	if len(page.Workers) == 0 {
		if _, err := a.call(http.MethodGet, "/readyz", nil); err != nil {
			notes = append(notes, err.Error())
		}
	}
	return a.lines(notes)
}

// lines writes lines below a table.
func (a *question) lines(lines []string) error {
	for i, text := range lines {
		if i == 0 {
			fmt.Fprintln(a.stdout)
		}
		if err := a.line(text); err != nil {
			return err
		}
	}
	return nil
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

func (a *question) moves([]string) error {
	var page struct {
		Moves  []status.RecentMove
		Silent []string
	}
	if shown, err := a.get("/moves", nil, &page); err != nil || shown {
		return err
	}
	rows := [][]string{{"WHEN", "WORKER", "WHAT", "PARTITIONS", "FROM/TO", "BECAUSE", "TOOK", "STILL RUNNING"}}
	for _, m := range page.Moves {
		rows = append(rows, []string{
			m.Ended.Local().Format(time.DateTime), m.At, m.Direction, fmt.Sprint(m.Partitions), cmp.Or(m.Worker, "-"),
			m.Because, seconds(m.LongestSeconds), fmt.Sprint(m.Running),
		})
	}
	return a.showSilent(rows, page.Silent)
}

func (a *question) hot([]string) error {
	var page struct {
		Keys   []status.HotKeyAt
		Silent []string
	}
	if shown, err := a.get("/hot", nil, &page); err != nil || shown {
		return err
	}
	rows := [][]string{{"KEY", "WORKER", "A SECOND", "TOO HIGH BY", "WAITING"}}
	for _, k := range page.Keys {
		rows = append(rows, []string{strconv.Quote(k.Key), k.At, fmt.Sprintf("%.1f", k.PerSecond), fmt.Sprintf("%.1f", k.Error), fmt.Sprint(k.Waiting)})
	}
	return a.showSilent(rows, page.Silent)
}

func (a *question) locks([]string) error {
	var page status.LockPage
	query := url.Values{}
	if a.after != "" {
		query.Set("after", a.after)
	}
	if shown, err := a.get("/locks", query, &page); err != nil || shown {
		return err
	}
	if err := a.showLocks(page.Locks, page.Silent); err != nil || page.Next == "" {
		return err
	}
	return a.lines([]string{fmt.Sprintf("There are more: --after %q shows the next ones.", page.Next)})
}

func (a *question) showLocks(locks []status.LockRow, silent []string) error {
	rows := [][]string{{"KEY", "WORKER", "HELD BY", "READERS", "LEFT", "WRITTEN", "TOKEN"}}
	for _, l := range locks {
		left := time.Duration(l.LeaseSeconds * float64(time.Second)).Round(time.Second)
		rows = append(rows, []string{strconv.Quote(l.Key), l.At, strconv.Quote(cmp.Or(l.Label, l.HeldBy)), fmt.Sprint(l.Readers), left.String(), fmt.Sprint(l.Written), fmt.Sprint(l.Token)})
	}
	return a.showSilent(rows, silent)
}

// showSilent shows a table, and names the workers that did not answer.
func (a *question) showSilent(rows [][]string, silent []string) error {
	if err := a.table(rows); err != nil {
		return err
	}
	var notes []string
	for _, name := range silent {
		notes = append(notes, name+" did not answer")
	}
	return a.lines(notes)
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
	var e status.Explanation
	if shown, err := a.get("/explain", query, &e); err != nil || shown {
		return err
	}
	return a.showExplanation(&e)
}

func (a *question) showExplanation(e *status.Explanation) error {
	var rows [][]string
	add := func(name, format string, args ...any) {
		rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
	}
	if e.Source != "" {
		add("source", "%s, by the route %q (%s)", e.Source, e.Route, e.Mode)
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
		add("held by", "%s", holderText(w))
		add("waiting", "%d of %d that may, clients: %d", w.Waiting, w.QueuePerKey, w.Clients)
		for _, r := range w.Rates {
			add("rate of "+r.Route, "%.1f of %d left, %v a second", r.Left, r.Burst, r.PerSecond)
		}
	}
	if _, err := fmt.Fprintln(a.stdout, strings.Join(columns(rows), "\n")); err != nil {
		return err
	}
	return a.lines(e.Verdict)
}

func placeText(p *status.Place) string {
	if p == nil {
		return "nobody"
	}
	return p.Name + " at " + p.Address
}

func holderText(w *status.KeyStatus) string {
	switch h := w.Holder; {
	case w.Residue != nil:
		return fmt.Sprintf("worker %s, which had it before, token %d", w.Residue.Worker, w.Residue.Token)
	case h == nil:
		return "nobody"
	case h.Kind == "hold":
		text := []string{"the member at " + h.HeldBy, h.Label, "for " + seconds(h.LeaseSeconds) + " more", fmt.Sprintf("token %d", h.Token)}
		if h.Shared > 1 {
			text = append(text, fmt.Sprintf("shared with %d others", h.Shared-1))
		}
		return strings.Join(slices.DeleteFunc(text, func(s string) bool { return s == "" }), ", ")
	default:
		return fmt.Sprintf("an execution, token %d", h.Token)
	}
}

func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d >= time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}
