//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
	"github.com/keyway-go/keyway/ring"
)

// stalls prints how long a request for an idle key takes while the key's partition moves to another worker.
func (s *site) stalls(ctx context.Context) error {
	stage, redis, of, err := s.start(ctx)
	if err != nil {
		return err
	}
	defer stage.Close()
	for i := range s.workers {
		if _, err := stage.Start(ctx, servers.Worker(fmt.Sprint("w", i), s.programs.Worker, "skew", redis, of.Gossip, "--placement", "off")); err != nil {
			return err
		}
	}
	var longest []time.Duration
	failed := 0
	for p := range s.moves {
		key := ""
		for i := 0; key == "" || (ring.Settings{}).WithDefaults().Ring.Partition(key) != p; i++ {
			key = fmt.Sprint("order-", i)
		}
		stall, bad, err := s.move(ctx, of, p, key)
		if err != nil {
			return fmt.Errorf("move of partition %d: %w", p, err)
		}
		longest, failed = append(longest, stall), failed+bad
	}
	slices.Sort(longest)
	at := func(percent int) time.Duration {
		return longest[min(len(longest)-1, len(longest)*percent/100)].Round(10 * time.Microsecond)
	}
	_, err = fmt.Fprintf(s.stdout, "\nLongest request for a key while its partition moves, the key otherwise idle, in %d moves: p50 %v, p99 %v, longest %v; %d requests failed.\n", s.moves, at(50), at(99), at(100), failed)
	return err
}

// move places a partition at the worker that follows its owner, and sends requests for a key of it one after the other
// until that worker answers. It returns how long the longest one took, and how many failed.
func (s *site) move(ctx context.Context, of *cluster.Process, partition int, key string) (longest time.Duration, failed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	owner := func() (name string, err error) {
		var e struct{ Worker struct{ Worker string } }
		body, _, err := ask(ctx, http.MethodGet, "http://"+of.Admin+"/explain?key="+key, "")
		if err == nil {
			err = json.Unmarshal(body, &e)
		}
		return e.Worker.Worker, err
	}
	was, err := owner()
	if err != nil {
		return 0, 0, err
	}
	to := "w0"
	for i := range s.workers {
		if was == fmt.Sprint("w", i) {
			to = fmt.Sprint("w", (i+1)%s.workers)
		}
	}
	placed := make(chan error, 1)
	go func() {
		time.Sleep(50 * time.Millisecond) // of requests before the move
		_, status, err := ask(ctx, http.MethodPost, "http://"+of.Admin+"/place?"+url.Values{"partition": {fmt.Sprint(partition)}, "worker": {to}}.Encode(), "")
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
		_, status, err := ask(ctx, http.MethodGet, "http://"+of.Listen+"/", key)
		if longest = max(longest, time.Since(began)); err != nil || status != http.StatusOK {
			failed++
		}
		select {
		case err := <-placed:
			return longest, failed, err
		default:
			time.Sleep(time.Millisecond)
		}
	}
}

func ask(ctx context.Context, method, at, key string) (body []byte, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, at, nil)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("X-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return body, res.StatusCode, err
}
