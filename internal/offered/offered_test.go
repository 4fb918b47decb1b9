package offered_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/offered"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
)

// fakeMembers is a membership that a test changes.
type fakeMembers struct {
	mu      sync.Mutex
	view    *ring.View
	changed chan struct{}
}

// set makes the members routers that offer these stores.
func (m *fakeMembers) set(stores ...string) { m.setView(routers(stores), nil) }

func routers(stores []string) (members []ring.Member) {
	for i, s := range stores {
		members = append(members, ring.Member{Name: fmt.Sprint("r", i), Role: ring.RoleRouter, State: ring.StateActive, Gossip: fmt.Sprint("127.0.0.1:", i+1), Store: s})
	}
	return members
}

func (m *fakeMembers) setView(members, refused []ring.Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.view = ring.NewView(nil, members)
	m.view.Refused = refused
	if m.changed != nil {
		close(m.changed)
	}
	m.changed = make(chan struct{})
}

func (m *fakeMembers) View() *ring.View {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view
}

func (m *fakeMembers) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// A worker follows the router's store to its next life, also where that is
// another store than before, and does not choose between two.
func TestFollowsOfferedStore(t *testing.T) {
	var urls []string
	for range 3 {
		e, err := store.StartEmbedded("127.0.0.1:0", "secret")
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		urls = append(urls, e.URL())
	}
	members := new(fakeMembers)
	members.set()
	var log kit.Buffer
	config := store.Config{NewCluster: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}

	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("ended"))
	if _, err := offered.Open(ended, members, config); err == nil {
		t.Error("it opened a store that nobody offers")
	}
	members.set(urls[0])
	s, err := offered.Open(t.Context(), members, config)
	if err != nil {
		t.Fatal(err)
	}
	hints := s.Watch(t.Context())
	latest, err := s.Generation(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	came := func() {
		t.Helper()
		select {
		case <-hints:
		case <-time.After(time.Minute):
			t.Fatalf("it stays with what was offered before:\n%s", &log)
		}
		// A connection to the store before may end a little later than that for hints.
		kit.Eventually(t, "calls go to the store that is offered", func() bool {
			next, err := s.Generation(t.Context(), true)
			if err != nil || next == latest {
				return false
			}
			latest = next
			return true
		})
	}
	members.set("unusable")
	kit.Eventually(t, "a store that cannot be used is refused", func() bool { return strings.Contains(log.String(), "cannot be used") })

	if now, err := s.Generation(t.Context(), true); err != nil || now != latest {
		t.Errorf("with an offer that cannot be used: %v, %v; want the store before", now, err)
	}
	members.setView(routers(urls[1:2]), routers(urls[2:]))
	came()
	members.setView(nil, routers(urls[2:]))
	came()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), "secret") {
		t.Errorf("the log shows the password:\n%s", &log)
	}

	members.set(urls...)
	waiting, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := offered.Open(waiting, members, config); err == nil || !strings.Contains(log.String(), "--redis") {
		t.Errorf("with two stores on offer: %v\n%s", err, &log)
	}
}

// Two stores at one gossip address are lives of one process: the former one is
// not missed yet. That is no mistake of anybody's, and is waited for.
func TestStoresAtOneAddress(t *testing.T) {
	lives := routers([]string{"redis://127.0.0.1:1", "redis://127.0.0.1:2"})
	lives[1].Gossip = lives[0].Gossip
	members := new(fakeMembers)
	members.setView(lives, nil)
	var log bytes.Buffer
	waiting, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := offered.Open(waiting, members, store.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}); err == nil || strings.Contains(log.String(), "ERROR") {
		t.Errorf("with two lives of a store: %v\n%s", err, &log)
	}
	members.setView(lives[1:], nil)
	s, err := offered.Open(t.Context(), members, store.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if !strings.Contains(log.String(), "store="+lives[1].Store) {
		t.Errorf("want the store that is left:\n%s", &log)
	}
}

// Workers whose store nobody offers are named, with what to do.
func TestNobodyOffersTheWorkersStore(t *testing.T) {
	members := new(fakeMembers)
	members.setView([]ring.Member{{Name: "w1", Role: ring.RoleWorker, State: ring.StateActive, StoreID: 1, Incarnation: "x"}}, nil)
	var log bytes.Buffer
	waiting, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	_, err := offered.Open(waiting, members, store.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err == nil || !strings.Contains(log.String(), "w1") || !strings.Contains(log.String(), "Config.Redis") {
		t.Errorf("%v\n%s", err, &log)
	}
}

// The host's name is made of the process's, which may be long.
func TestHostOfALongName(t *testing.T) {
	h, err := offered.StartHost(t.Context(), offered.HostConfig{Name: "x" + strings.Repeat("é", 60), Addr: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
}
