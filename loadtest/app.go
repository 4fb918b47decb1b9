//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/resource"
)

// appConfig describes one process of the app under test.
type appConfig struct {
	Design    string // id of a contender
	Local     bool   // a mutex in the process before the lock
	Records   string
	Keys      int
	Redis     []string          // host:port of the lock's servers
	Stores    map[string]string // URLs of other servers
	TTL       time.Duration
	Wait      time.Duration // of workWait
	Instance  int           // of Instances, from 0
	Instances int
	Cluster   string // distinguishes what belongs to this stack in its stores
	Name      string // of a Keyway worker
	Join      string // gossip address of the router
	Listen    string // host:port, or the path of a socket
}

// job is what a request asks for.
type job struct {
	key         string
	index       int
	work        string
	count       int64  // of decrements that it stands for
	transaction pgx.Tx // that the guard holds; else nil
}

// guard runs a job so that no other one of its key runs at the same time, and returns the key's value.
type guard func(ctx context.Context, j job) (value int64, err error)

// app is the program under test: one handler for all ways to exclude.
type app struct {
	appConfig
	table    *resource.Table
	postgres *pgxpool.Pool // nil without a PostgreSQL
	guard    guard         // nil for what excludes before the handler
}

// runApp is the app's process; its argument is an appConfig.
func runApp(ctx context.Context, args []string, stdout, _ io.Writer) error {
	a := new(app)
	err := json.Unmarshal([]byte(args[0]), &a.appConfig)
	if err != nil {
		return err
	}
	if a.table, err = resource.Open(a.Records, a.Keys); err != nil {
		return err
	}
	defer a.table.Close()
	if url := a.Stores[storePostgres]; url != "" {
		if a.postgres, err = openPostgres(ctx, url); err != nil {
			return err
		}
		defer a.postgres.Close()
	}
	network := "tcp"
	if filepath.IsAbs(a.Listen) {
		network = "unix"
	}
	listener, err := net.Listen(network, a.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	if slices.Contains([]string{keywayEmbedded, keywayBatch, noneRouter}, a.Design) {
		return a.serveMember(ctx, listener, stdout)
	}
	var stop func()
	if a.guard, stop, err = a.newGuard(ctx); err != nil {
		return err
	}
	defer stop()
	return a.serve(ctx, listener, stdout)
}

// shutdownTime is for the requests that run when the process is to end.
const shutdownTime = 2 * time.Second

// serve answers requests until ctx ends.
func (a *app) serve(ctx context.Context, listener net.Listener, stdout io.Writer) error {
	s := &http.Server{Handler: a, ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(listener) }()
	fmt.Fprintln(stdout, "ready")
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	_ = s.Shutdown(end) // what is left is cut off by Close
	return s.Close()
}

// ServeHTTP is the handler of every contender.
func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	j, err := a.job(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	var value int64
	if a.guard == nil {
		token, _ := strconv.ParseInt(r.Header.Get("Keyway-Token"), 10, 64)
		value, err = a.execute(r.Context(), j, token)
	} else {
		value, err = a.guard(r.Context(), j)
	}
	reply(w, value, err)
}

var errNoKey = errors.New("there is no such key")

// job is what a request asks for.
func (a *app) job(r *http.Request) (job, error) {
	j := job{key: r.Header.Get(load.HeaderKey), work: r.URL.Path, count: 1}
	var ok bool
	if j.index, ok = a.table.Find(j.key); !ok {
		return job{}, errNoKey
	}
	return j, nil
}

// reply answers a request.
func reply(w http.ResponseWriter, value int64, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	body := strconv.AppendInt(make([]byte, 0, 32), value, 10)
	h := w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	_, _ = w.Write(body) // fails if the client has gone
}

// execute is the critical section of a job: read, work, and write. The caller
// excludes others from the key; token is 0 if there is none.
func (a *app) execute(ctx context.Context, j job, token int64) (value int64, err error) {
	x, err := a.table.Begin(j.index, token)
	if err != nil {
		return 0, err
	}
	if err := a.do(ctx, j); err != nil {
		x.End()
		return 0, err
	}
	return x.Value() + j.count, x.Write(j.count)
}

// What is done in the critical section, as paths.
const (
	workNone          = "/none"
	workWait          = "/wait"
	workStockPostgres = "/stock-postgres"
)

func (a *app) do(ctx context.Context, j job) error {
	switch j.work {
	case workWait:
		return a.wait(ctx)
	case workStockPostgres:
		return a.sellInPostgres(ctx, j)
	}
	return nil
}

func (a *app) wait(ctx context.Context) error {
	sleep(ctx, a.Wait)
	return context.Cause(ctx)
}
