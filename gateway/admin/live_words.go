package admin

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/internal/status"
)

// level is how urgent a sentence is.
type level int

const (
	levelGood level = iota // as it should be
	levelMove              // something changes, as it was told to
	levelWarn              // somebody should look at it
	levelBad               // requests wait for it
)

// MarshalText returns good, move, warn or bad.
func (l level) MarshalText() ([]byte, error) {
	return []byte([...]string{"good", "move", "warn", "bad"}[l]), nil
}

type sentence struct {
	Level level  `json:"level"`
	About string `json:"about"` // stays the same while only numbers of the text change
	Text  string `json:"text"`
}

// Thresholds of the sentences.
const (
	lowSlack    = 0.35 // of the TTL: sessions have 0.5 to 0.7 left in good times
	longResidue = 10.0 // seconds
	fullQueue   = 0.8  // of what may wait
	spelledOut  = 3    // moves between two workers that are told one by one
)

type speech struct {
	live *liveJSON
	told []liveWorker // those with a status
	list []sentence
}

func (s *speech) say(l level, about, format string, args ...any) {
	s.list = append(s.list, sentence{l, about, fmt.Sprintf(format, args...)})
}

// say puts in words what is so, the most urgent first. It does so of all the moves, be
// they shown or not.
func say(v *liveJSON) []sentence {
	s := &speech{live: v}
	for _, w := range v.Workers {
		if w.Status != nil {
			s.told = append(s.told, w)
		}
	}
	s.stores()
	s.gone()
	s.silent()
	s.sessions()
	s.places()
	s.moving()
	s.residue()
	s.queues()
	s.keys()
	if v.Self.NotReady != "" && v.Self.StoreError == "" && v.Self.Role != "worker" {
		s.say(levelWarn, "ready", "This %s is not ready: %s.", v.Self.Role, v.Self.NotReady)
	}
	s.serving()
	slices.SortStableFunc(s.list, func(a, b sentence) int { return int(b.Level) - int(a.Level) })
	return s.list
}

// keys reports keys that are quarantined, and the hottest key if many calls wait for it.
func (s *speech) keys() {
	for _, w := range s.told[:min(len(s.told), 1)] { // all know the same
		for _, q := range w.Status.Quarantined {
			s.say(levelBad, "quarantine "+q.Key, "The key %q has no executions: workers %s died while executions of it ran. Mend the cause, then release it.", q.Key, strings.Join(q.Workers, " and "))
		}
	}
	for _, k := range s.live.Hot[:min(len(s.live.Hot), 1)] {
		if k.Waiting >= status.CrowdForBatch {
			s.say(levelGood, "batch", "%d calls wait for the key %q. No placement can split a key: a batch answers them with one execution.", k.Waiting, k.Key)
		}
	}
}

// stores reports processes that cannot use the store. It comes first, since the rest follows from
// that.
func (s *speech) stores() {
	type absent struct {
		text  string
		names []string
		slack float64 // the least of a worker's
	}
	var all []absent
	add := func(text, name string, slack float64) {
		a := entry(&all, func(a absent) bool { return a.text == text }, absent{text: text, slack: slack})
		a.names, a.slack = append(a.names, name), min(a.slack, slack)
	}
	if text := s.live.Self.StoreError; text != "" {
		slack := math.Inf(1)
		if len(s.live.Workers) == 0 {
			slack = 0
		}
		add(text, "This "+s.live.Self.Role, slack)
	}
	for _, w := range s.told {
		if w.Status.Store.Fails() {
			add(w.Status.Store.LastError, w.Name, w.Status.SessionSlackSeconds)
		}
	}
	for _, a := range all[:min(len(all), spelledOut)] {
		urgency, until := levelBad, ""
		if a.slack > 0 {
			urgency = levelWarn
			if !math.IsInf(a.slack, 1) {
				until = fmt.Sprintf(" Serving ends in %.1f s unless it answers.", a.slack)
			}
		}
		s.say(urgency, "store "+a.text, "%s cannot use the store: %s.%s", listed(a.names), strings.TrimPrefix(a.text, "store: "), until)
	}
}

// missing is partitions that are not served, at all of their takers together.
type missing struct {
	former     string
	partitions int
	seconds    float64
	why        string
}

// lost adds up the partitions without a living owner, by their former owners.
func (s *speech) lost() (all []missing) {
	for _, w := range s.told {
		for _, m := range w.Status.Missing {
			if m.Worker != "" && !m.Gone {
				continue
			}
			l := entry(&all, func(l missing) bool { return l.former == m.Worker }, missing{former: m.Worker})
			l.partitions += m.Partitions
			if m.WaitsSeconds >= l.seconds {
				l.seconds, l.why = m.WaitsSeconds, m.WaitsFor
			}
		}
	}
	return all
}

func (s *speech) gone() {
	if s.live.Self.Asks && !slices.ContainsFunc(s.live.Workers, func(w liveWorker) bool { return w.Wanted > 0 }) {
		s.say(levelBad, "nobody", "No worker is on the ring: routers hold requests until one is.")
	}
	for _, l := range s.lost() {
		be := form(l.partitions, "is", "are")
		again := fmt.Sprintf("%s served again in about %.0f s", be, math.Ceil(l.seconds))
		if l.seconds <= 0 {
			again = fmt.Sprintf("%s not served again yet: %s", be, l.why)
		}
		switch {
		case l.former == "":
			left := ""
			if l.seconds > 0 {
				left = fmt.Sprintf(" (about %.0f s left)", math.Ceil(l.seconds))
			}
			s.say(levelBad, "unowned", "%s not served yet: %s%s.", areMany(l.partitions, "partition"), l.why, left)
		case slices.ContainsFunc(s.live.Workers, func(w liveWorker) bool { return w.Name == l.former }):
			s.say(levelBad, "gone "+l.former, "%s was restarted: %s of its former process %s.", l.former, plural(l.partitions, "partition"), again)
		default:
			s.say(levelBad, "gone "+l.former, "%s is gone: its %s %s.", l.former, plural(l.partitions, "partition"), again)
		}
	}
}

func (s *speech) silent() {
	for _, w := range s.live.Workers {
		if w.Error != "" {
			s.say(levelBad, "silent "+w.Name, "%s does not answer: if it is gone, its %s wait until its session is over.", w.Name, plural(w.Wanted, "partition"))
		}
	}
}

// sessions reports workers whose sessions are not confirmed.
func (s *speech) sessions() {
	var names []string
	least := math.Inf(1)
	for _, w := range s.told {
		if w.Status.State != "active" || w.Status.Store.Fails() || w.Status.SessionSlackSeconds >= lowSlack*s.live.TTLSeconds {
			continue
		}
		names = append(names, w.Name)
		least = min(least, w.Status.SessionSlackSeconds)
	}
	switch {
	case len(names) == 0:
	case least > 0:
		s.say(levelWarn, "sessions", "The store has not confirmed the %s of %s lately: serving ends in %.1f s unless it does.", form(len(names), "session", "sessions"), listed(names), least)
	default:
		s.say(levelBad, "sessions", "The store does not confirm the %s of %s.", form(len(names), "session", "sessions"), listed(names))
	}
}

// places reports workers that are not on the ring, or not as they should be.
func (s *speech) places() {
	for _, w := range s.told {
		t, left := w.Status, ""
		if t.Served+t.BusyKeys > 0 {
			left = fmt.Sprintf(" %s and %s are left.", plural(t.Served, "partition"), plural(t.BusyKeys, "busy key"))
		}
		switch {
		case t.App != nil && !t.App.Up:
			s.say(levelWarn, "app "+w.Name, "%s is off the ring, since its app does not answer: %s.%s", w.Name, t.App.Trouble, left)
		case t.State == "drained" && left != "":
			s.say(levelMove, "draining "+w.Name, "%s is being drained.%s", w.Name, left)
		case t.State == "drained":
			s.say(levelMove, "drained "+w.Name, "%s is drained.", w.Name)
		case t.State == "leaving":
			s.say(levelMove, "leaving "+w.Name, "%s is leaving.%s", w.Name, left)
		case t.State == "joining" && t.Store.Fails(): // stores has said it
		case t.State == "joining" && t.NotReady != "":
			s.say(levelMove, "joining "+w.Name, "%s is not on the ring yet: %s.", w.Name, t.NotReady)
		case t.NotReady != "" && t.Arriving == 0 && t.SessionSlackSeconds > 0:
			s.say(levelWarn, "ready "+w.Name, "%s is not ready: %s.", w.Name, t.NotReady)
		}
	}
}

// moving reports partitions that move from one living worker to another.
func (s *speech) moving() {
	type pair struct{ from, to string }
	var pairs []pair
	counts, sum := make(map[pair]int), 0
	for _, w := range s.told {
		for _, m := range w.Status.Missing {
			if m.Worker != "" && !m.Gone {
				p := pair{m.Worker, w.Name}
				pairs, counts[p], sum = append(pairs, p), m.Partitions, sum+m.Partitions
			}
		}
	}
	if len(pairs) > spelledOut {
		s.say(levelMove, "moving", "%s moving, between %d pairs of workers.", areMany(sum, "partition"), len(pairs))
		return
	}
	for _, p := range pairs {
		s.say(levelMove, "moving "+p.from+" "+p.to, "%s moving from %s to %s.", areMany(counts[p], "partition"), p.from, p.to)
	}
}

// residue reports keys that still run at former owners.
func (s *speech) residue() {
	type lingering struct {
		name   string // of the former owner
		keys   int
		oldest float64
	}
	var all []lingering
	for _, w := range s.told {
		for _, r := range w.Status.Residue {
			l := entry(&all, func(l lingering) bool { return l.name == r.Worker }, lingering{name: r.Worker})
			l.keys += r.Keys
			l.oldest = max(l.oldest, r.OldestSeconds)
		}
	}
	for _, l := range all {
		urgency := levelMove
		if l.oldest >= longResidue {
			urgency = levelWarn
		}
		s.say(urgency, "residue "+l.name, "%s of partitions that have moved still %s at %s, for %.0f s: requests for %s wait.",
			plural(l.keys, "key"), form(l.keys, "runs", "run"), l.name, l.oldest, form(l.keys, "it", "them"))
	}
}

// queues reports workers whose queues are nearly full.
func (s *speech) queues() {
	for _, w := range s.told {
		if t := w.Status; float64(t.Waiting) >= fullQueue*float64(t.Queue) && t.Queue > 0 {
			s.say(levelWarn, "queue "+w.Name, "%s %s for keys of %s: the limit is %s.", plural(t.Waiting, "request"), form(t.Waiting, "waits", "wait"), w.Name, grouped(t.Queue))
		}
	}
}

func (s *speech) serving() {
	var names []string
	for _, w := range s.live.Workers {
		if t := w.Status; w.Wanted > 0 && (t == nil && !s.live.Self.Asks || t != nil && t.Served > 0 && t.State == "active") {
			names = append(names, w.Name)
		}
	}
	still := ""
	if !slices.ContainsFunc(s.list, func(t sentence) bool { return t.Level >= levelMove && !strings.HasPrefix(t.About, "drained ") }) {
		still = "; nothing is moving"
	}
	n, all := len(names), len(s.live.Workers)
	about := fmt.Sprint("serving ", n, " of ", all)
	switch {
	case n == 0:
	case n < all:
		s.say(levelGood, about, "%d of %d workers %s%s.", n, all, form(n, "serves", "serve"), still)
	case n == 1:
		s.say(levelGood, about, "The only worker, %s, serves%s.", names[0], still)
	case n == 2:
		s.say(levelGood, about, "Both workers serve%s.", still)
	default:
		s.say(levelGood, about, "All %d workers serve%s.", n, still)
	}
}

// entry returns the first element of a list that fits. If there is none, it adds the fresh one.
func entry[T any](list *[]T, fits func(T) bool, fresh T) *T {
	i := slices.IndexFunc(*list, fits)
	if i < 0 {
		i, *list = len(*list), append(*list, fresh)
	}
	return &(*list)[i]
}

func plural(n int, noun string) string { return grouped(n) + " " + form(n, noun, noun+"s") }

// areMany returns a number with a noun and a verb: 3 partitions are.
func areMany(n int, noun string) string { return plural(n, noun) + " " + form(n, "is", "are") }

// form returns the form of a word for that number.
func form(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// grouped returns a number with a comma before each three digits.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

func listed(names []string) string {
	if len(names) > spelledOut {
		return fmt.Sprintf("%s and %d others", strings.Join(names[:spelledOut], ", "), len(names)-spelledOut)
	}
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return names[0]
}
