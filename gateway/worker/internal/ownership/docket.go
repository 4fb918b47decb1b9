package ownership

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/suspects"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/ring"
)

// Docket has executions of suspects watched, and refuses those of quarantined keys. It knows the cluster's
// book of them as the store last showed it. While the book is empty it costs nothing. run writes the changes
// that nobody waits for to the store; mu guards pending.
type Docket struct {
	shell *Shell
	known atomic.Pointer[evidence]
	wake  chan struct{}

	mu      sync.Mutex
	pending []change
}

// maxPending is how many changes wait to be written.
const maxPending = 1024

// evidence is a book, and what helps to read it.
type evidence struct {
	text     string
	book     suspects.Book
	hashes   map[uint64]bool // of all its keys
	sessions []records.SessionState
}

// change is a change of the book.
type change func(suspects.Book) suspects.Book

func newDocket(s *Shell) *Docket {
	d := &Docket{shell: s, wake: make(chan struct{}, 1)}
	d.known.Store(new(evidence))
	return d
}

// see takes what the store shows.
func (d *Docket) see(text string, sessions []records.SessionState) {
	known := d.known.Load()
	if text == known.text && (text == "" || len(sessions) == len(known.sessions) && &sessions[0] == &known.sessions[0]) {
		return
	}
	book, err := suspects.Parse(text)
	if err != nil {
		d.shell.cfg.Logger.Error("cannot read in the store which keys are suspects: none counts as one", "error", err)
	}
	for _, death := range book.Deaths {
		m := d.shell.Moves.members[death.Worker]
		if m != nil && (m.state == ring.StateLeaving || m.own && death.Worker != d.shell.current.incarnation) { // it has left, or lost its session
			book = book.Acquit(death.Worker)
			d.change(func(b suspects.Book) suspects.Book { return b.Acquit(death.Worker) })
		}
	}
	next := &evidence{text, book.After(time.Now()), make(map[uint64]bool), sessions}
	for _, death := range next.book.Deaths {
		for _, key := range death.Keys {
			next.hashes[key] = true
		}
	}
	for _, c := range next.book.Cases {
		next.hashes[suspects.Hash(c.Key)] = true
	}
	d.known.Store(next)
	d.shell.cfg.Keys.Guarded.Store(len(next.hashes) > 0)
	wake.Up(d.wake) // to look when it is over
}

// find returns what is known of a key.
func (d *Docket) find(key string) (c suspects.Case, quarantined, suspect bool) {
	known := d.known.Load()
	if !known.hashes[suspects.Hash(key)] {
		return c, false, false
	}
	now := time.Now()
	return known.book.After(now).Find(key, now, func(worker string) bool {
		return slices.ContainsFunc(known.sessions, func(s records.SessionState) bool { return s.Incarnation == worker })
	})
}

// Begin implements [keyed.Guard].
func (d *Docket) Begin(key string) (watched bool, err error) {
	c, quarantined, suspect := d.find(key)
	if !quarantined {
		return suspect, nil
	}
	key = strings.Clone(key)
	if c.Key = key; !slices.Contains(d.known.Load().book.Cases, c) {
		d.change(func(b suspects.Book) suspects.Book { return b.Quarantine(c) })
	}
	return false, &gateway.QuarantinedError{Key: key, Workers: d.names(c), Until: c.Until()}
}

// names returns the names of the workers of a case.
func (d *Docket) names(c suspects.Case) []string {
	return []string{d.shell.Moves.NameOf(c.Workers[0]), d.shell.Moves.NameOf(c.Workers[1])}
}

// End implements [keyed.Guard].
func (d *Docket) End(key string) {
	key = strings.Clone(key)
	d.change(func(b suspects.Book) suspects.Book { return b.Clear(key) })
}

// Accuse notes keys that were under way at a worker that has died. A text of [suspects.Book.String] has them.
func (d *Docket) Accuse(ctx context.Context, text string) error {
	said, err := suspects.Parse(text)
	if err != nil {
		return err
	}
	return d.write(ctx, func(b suspects.Book) suspects.Book {
		for _, death := range said.Deaths {
			b = b.Accuse(death.Worker, time.Now(), death.Keys)
		}
		return b
	})
}

// Release is Worker.Release.
func (d *Docket) Release(ctx context.Context, key, by string) error {
	if _, quarantined, _ := d.find(key); !quarantined {
		return fmt.Errorf("%w: %q", status.ErrNotQuarantined, key)
	}
	err := d.write(ctx, func(b suspects.Book) suspects.Book { return b.Release(key) })
	if err == nil {
		d.shell.cfg.Logger.Warn("a key is quarantined no more", "key", key, "by", by)
	}
	return err
}

// Quarantined returns the quarantined keys.
func (d *Docket) Quarantined() (list []status.Quarantine) {
	now := time.Now()
	for _, c := range d.known.Load().book.After(now).Cases {
		list = append(list, d.tell(c, now))
	}
	return list
}

// Why returns why executions of the key are refused, nil if they are not.
func (d *Docket) Why(key string) *status.Quarantine {
	c, quarantined, _ := d.find(key)
	if !quarantined {
		return nil
	}
	return new(d.tell(c, time.Now()))
}

func (d *Docket) tell(c suspects.Case, now time.Time) status.Quarantine {
	return status.Quarantine{Key: c.Key, Workers: d.names(c), Seconds: c.Until().Sub(now).Seconds()}
}

// change has a change made later. It may be left out if too many others are.
func (d *Docket) change(by change) {
	d.mu.Lock()
	if len(d.pending) < maxPending {
		d.pending = append(d.pending, by)
	}
	d.mu.Unlock()
	wake.Up(d.wake)
}

// run writes changes, and removes from the book what is over.
func (d *Docket) run(ctx context.Context) {
	for {
		var over <-chan time.Time
		if d.known.Load().text != "" {
			over = time.After(suspects.Within + rand.N(suspects.Within/60))
		}
		select {
		case <-d.wake:
		case <-over:
			d.change(func(b suspects.Book) suspects.Book { return b })
		case <-ctx.Done():
			return
		}
		d.mu.Lock()
		changes := d.pending
		d.pending = nil
		d.mu.Unlock()
		if len(changes) == 0 {
			continue
		}
		if err := d.write(ctx, changes...); err != nil {
			d.shell.cfg.Log.Warn("cannot write to the store which keys are suspects", "error", err)
		}
	}
}

// write makes changes to the book in the store, one after the other.
func (d *Docket) write(ctx context.Context, changes ...change) error {
	var begun []suspects.Case
	err := d.shell.editNote(ctx, records.Suspects, d.known.Load().text, func(text string) (string, error) {
		book, err := suspects.Parse(text)
		book = book.After(time.Now())
		before := len(book.Cases)
		for _, c := range changes {
			book = c(book)
		}
		begun = book.Cases[min(before, len(book.Cases)):]
		return book.String(), err
	})
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	for _, c := range begun {
		d.shell.cfg.Logger.Error("a key is quarantined: workers died while executions of it ran; when the cause is mended, release it with ctl release",
			"key", c.Key, "workers", d.names(c), "until", c.Until())
	}
	return nil
}
