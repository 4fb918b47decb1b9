package offered_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/offered"
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
	var log bytes.Buffer
	var opened []string
	unusable := make(chan struct{}, 1)
	open := func(url string, _ ring.StoreID) (*store.Store, error) {
		if url == "unusable" {
			unusable <- struct{}{}
			return nil, errors.New("not a URL")
		}
		opened = append(opened, url)
		return store.New(url, store.Config{NewCluster: true, Logger: slog.New(slog.DiscardHandler)})
	}
	logger := slog.New(slog.NewTextHandler(&log, nil))

	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("ended"))
	if _, err := offered.Open(ended, members, open, logger); err == nil {
		t.Error("it opened a store that nobody offers")
	}
	members.set(urls[0])
	s, err := offered.Open(t.Context(), members, open, logger)
	if err != nil {
		t.Fatal(err)
	}
	hints := s.Watch(t.Context())
	latest, err := s.Generation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	came := func() {
		t.Helper()
		deadline := time.After(time.Minute)
		for {
			select {
			case <-hints:
			case <-deadline:
				t.Fatalf("it stays with what was offered before: opened %v", opened)
			}
			if next, err := s.Generation(t.Context()); err == nil && next != latest {
				latest = next
				return
			}
		}
	}
	members.set("unusable")
	select {
	case <-unusable:
	case <-time.After(time.Minute):
		t.Fatal("it does not follow")
	}
	members.setView(routers(urls[1:2]), routers(urls[2:]))
	came()
	members.setView(nil, routers(urls[2:]))
	came()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if !slices.Equal(opened, urls) {
		t.Errorf("opened %v", opened)
	}
	if strings.Contains(log.String(), "secret") {
		t.Errorf("the log shows the password:\n%s", &log)
	}

	members.set(urls...)
	waiting, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := offered.Open(waiting, members, open, logger); err == nil || !strings.Contains(log.String(), "--redis") {
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
	opened := make(chan string, 1)
	open := func(url string, _ ring.StoreID) (*store.Store, error) {
		opened <- url
		return store.New(url, store.Config{})
	}
	waiting, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := offered.Open(waiting, members, open, slog.New(slog.NewTextHandler(&log, nil))); err == nil || strings.Contains(log.String(), "ERROR") {
		t.Errorf("with two lives of a store: %v\n%s", err, &log)
	}
	members.setView(lives[1:], nil)
	s, err := offered.Open(t.Context(), members, open, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if url := <-opened; url != lives[1].Store {
		t.Errorf("opened %s, want the one that is left", url)
	}
}

// Workers whose store nobody offers are named, with what to do.
func TestNobodyOffersTheWorkersStore(t *testing.T) {
	members := new(fakeMembers)
	members.setView([]ring.Member{{Name: "w1", Role: ring.RoleWorker, State: ring.StateActive, StoreID: 1, Incarnation: "x"}}, nil)
	var log bytes.Buffer
	waiting, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	_, err := offered.Open(waiting, members, nil, slog.New(slog.NewTextHandler(&log, nil)))
	if err == nil || !strings.Contains(log.String(), "w1") || !strings.Contains(log.String(), "Config.Redis") {
		t.Errorf("%v\n%s", err, &log)
	}
}
