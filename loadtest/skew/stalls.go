//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
	"github.com/keyway-go/keyway/ring"
)

// stalls prints how long a request for an idle key takes that meets the move of its partition to another worker.
func (s *site) stalls(ctx context.Context) error {
	running, err := servers.NewSite(ctx, "skew", s.programs, workers, 0, nil, []string{"--placement", "off"})
	if err != nil {
		return err
	}
	defer running.Close()
	var met, others []time.Duration
	failed := 0
	for p := range s.moves {
		key := ""
		for i := 0; key == "" || (ring.Settings{}).WithDefaults().Ring.Partition(key) != p; i++ {
			key = fmt.Sprint("order-", i)
		}
		m, err := s.move(ctx, running.Router, p, key)
		if err != nil {
			return fmt.Errorf("move of partition %d: %w", p, err)
		}
		met, others, failed = append(met, m.first), append(others, m.others...), failed+m.failed
	}
	fmt.Fprintf(s.stdout, "\n%d moves of a partition, with requests for a key of it one after the other; %d failed.\n\n| request | number | p50 | p99 | longest |\n|---|---|---|---|---|\n", s.moves, failed)
	for _, row := range []struct {
		name string
		took []time.Duration
	}{{"the first at the new owner", met}, {"others", others}} {
		slices.Sort(row.took)
		at := func(percent int) time.Duration {
			return row.took[min(len(row.took)-1, len(row.took)*percent/100)].Round(10 * time.Microsecond)
		}
		fmt.Fprintf(s.stdout, "| %s | %d | %v | %v | %v |\n", row.name, len(row.took), at(50), at(99), at(100))
	}
	return nil
}

// move is how long the requests took that were sent while a partition moved.
type move struct {
	first  time.Duration // that the new owner answered
	others []time.Duration
	failed int
}

// move places a partition at the worker that follows its owner, and sends requests for a key of it one after the other
// until the router knows that it is the owner.
func (s *site) move(ctx context.Context, of *cluster.Process, partition int, key string) (m move, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	owner := func() (name string, err error) {
		var e struct{ Worker struct{ Worker string } }
		body, _, err := servers.Ask(ctx, http.MethodGet, "http://"+of.Admin+"/explain?key="+key, "")
		if err == nil {
			err = json.Unmarshal(body, &e)
		}
		return e.Worker.Worker, err
	}
	was, err := owner()
	if err != nil {
		return m, err
	}
	to := "w0"
	for i := range workers {
		if was == fmt.Sprint("w", i) {
			to = fmt.Sprint("w", (i+1)%workers)
		}
	}
	placed := make(chan error, 1)
	go func() {
		time.Sleep(50 * time.Millisecond) // of requests before the move
		_, status, err := servers.Ask(ctx, http.MethodPost, "http://"+of.Admin+"/place?"+url.Values{"partition": {fmt.Sprint(partition)}, "worker": {to}}.Encode(), "")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("/place answers %d", status)
		}
		for name := ""; err == nil && name != to; name, err = owner() {
			time.Sleep(100 * time.Millisecond)
		}
		placed <- err
	}()
	for {
		began := time.Now()
		body, status, err := servers.Ask(ctx, http.MethodGet, "http://"+of.Listen+"/", key)
		took := time.Since(began)
		var answer struct{ Worker string }
		if err != nil || status != http.StatusOK || json.Unmarshal(body, &answer) != nil {
			m.failed++
		}
		if answer.Worker == to && m.first == 0 {
			m.first = took
		} else {
			m.others = append(m.others, took)
		}
		select {
		case err := <-placed:
			if err == nil && m.first == 0 {
				err = fmt.Errorf("worker %s has answered no request", to)
			}
			return m, err
		default:
			time.Sleep(time.Millisecond)
		}
	}
}
