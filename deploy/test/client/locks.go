package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keyway-go/keyway/fallback"
	"github.com/keyway-go/keyway/fallback/lock"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	lockers   = 4
	lockTTL   = 300 * time.Millisecond
	lockedFor = 150 * time.Millisecond // longer than it takes to renew once
)

// takeLocks takes and gives back locks in the Redis of a file such as --config of the
// programs takes, and shows their metrics at :9100, until ctx ends.
func takeLocks(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	_, url, ok := strings.Cut(string(text), "redis: ")
	if !ok {
		return errors.New(file + " names no redis")
	}
	url, _, _ = strings.Cut(url, "\n")
	client, err := fallback.NewClient(url)
	if err != nil {
		return err
	}
	defer client.Close()
	locker, err := lock.New(client, lock.Config{TTL: lockTTL})
	if err != nil {
		return err
	}
	defer locker.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(locker)
	server := &http.Server{Addr: ":9100", Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	defer server.Close()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	for i := range lockers {
		running.Go(func() {
			for ctx.Err() == nil {
				holdLock(ctx, locker, strconv.Itoa(i%2))
			}
		})
	}
	select {
	case err := <-failed:
		cancel()
		return err
	case <-ctx.Done():
		return nil
	}
}

// holdLock holds a lock for a while. Failures are what the metrics count.
func holdLock(ctx context.Context, locker *lock.Locker, key string) {
	held, err := locker.Lock(ctx, key)
	if err != nil {
		return
	}
	select {
	case <-held.Context().Done():
	case <-time.After(lockedFor):
	}
	_ = held.Unlock(context.WithoutCancel(ctx))
}
