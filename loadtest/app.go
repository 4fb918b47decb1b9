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
	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/resource"
)

// appConfig describes one process of the app under test.
type appConfig struct {
	Guard     string
	Local     bool // a mutex in the process before the guard
	Records   string
	Keys      int
	Redis     []string          // host:port of the lock's servers; the first one has the stock
	Stores    map[string]string // URLs of other servers
	TTL       time.Duration
	Poll      time.Duration
	Wait      time.Duration // of workWait
	Instance  int           // of Instances, from 0
	Instances int
	Cluster   string // distinguishes what belongs to this stack in its stores
	Name      string // of a Keyway worker
	Join      string // gossip address of the router
	Listen    string // host:port, or the path of a socket
	Advertise string // where others reach it, if that is elsewhere
}

// job is what a request asks for.
type job struct {
	key         string
	index       int
	work        string
	read        bool
	count       int64  // of writes that it stands for, at least 1 if it is none that reads
	transaction pgx.Tx // that the guard holds; else nil
}

// outcome is what became of a job.
type outcome struct {
	key   string
	value int64         // of the key
	begun time.Duration // when its critical section began, on a load.Clock
}

// guard runs a job so that no other one of its key runs at the same time.
type guard func(ctx context.Context, j job) (outcome, error)

// app is the program under test: one handler for all ways to exclude.
type app struct {
	appConfig
	clock    load.Clock
	table    *resource.Table
	stock    *redis.Client
	postgres *pgxpool.Pool // nil without a PostgreSQL
	guard    guard
}

// runApp is the app's process; its argument is an appConfig.
func runApp(ctx context.Context, args []string, stdout, _ io.Writer) error {
	a := &app{clock: load.NewClock()}
	err := json.Unmarshal([]byte(args[0]), &a.appConfig)
	if err != nil {
		return err
	}
	if a.table, err = resource.Open(a.Records, a.Keys); err != nil {
		return err
	}
	defer a.table.Close()
	a.stock = a.client(0)
	defer a.stock.Close()
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
	if slices.Contains([]string{guardMember, guardBatch, guardUnkeyed}, a.Guard) {
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
	fmt.Fprintln(stdout, "ready", listener.Addr())
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
	var done outcome
	if a.guard == nil {
		token, _ := strconv.ParseInt(r.Header.Get("Keyway-Token"), 10, 64)
		done, err = a.execute(r.Context(), j, token)
	} else {
		done, err = a.guard(r.Context(), j)
	}
	done.key = j.key
	reply(w, done, err)
}

var errNoKey = errors.New("there is no such key")

// job is what a request asks for.
func (a *app) job(r *http.Request) (job, error) {
	j := job{key: r.Header.Get(load.HeaderKey), work: r.URL.Path, read: r.Method == http.MethodGet, count: 1}
	var ok bool
	if j.index, ok = a.table.Find(j.key); !ok {
		return job{}, errNoKey
	}
	return j, nil
}

// reply answers a request.
func reply(w http.ResponseWriter, done outcome, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	body := append(make([]byte, 0, 96), `{"key":"`...)
	body = append(append(body, done.key...), `","value":`...)
	body = append(append(strconv.AppendInt(body, done.value, 10), ','), load.Begun...)
	body = append(strconv.AppendInt(body, int64(done.begun), 10), "}\n"...)
	h := w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	_, _ = w.Write(body) // fails if the client has gone
}

// execute is the critical section of a job: read, work, and write. The caller
// excludes others from the key; token is 0 if there is none.
func (a *app) execute(ctx context.Context, j job, token int64) (outcome, error) {
	done := outcome{begun: a.clock.Now()}
	x, err := a.table.Begin(j.index, token)
	if err != nil {
		return outcome{}, err
	}
	if err := a.do(ctx, j); err != nil {
		x.End()
		return outcome{}, err
	}
	done.value = x.Value()
	if j.read {
		x.Read()
		return done, nil
	}
	done.value++
	return done, x.Write()
}

// What is done in the critical section, as paths.
const (
	workNone          = "/none"
	workWait          = "/wait"
	workStock         = "/stock"
	workStockPostgres = "/stock-postgres"
)

func (a *app) do(ctx context.Context, j job) error {
	switch j.work {
	case workWait:
		return a.wait(ctx)
	case workStock:
		return a.sell(ctx, j)
	case workStockPostgres:
		return a.sellInPostgres(ctx, j)
	}
	return nil
}

func (a *app) wait(ctx context.Context) error {
	t := time.NewTimer(a.Wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}
