// Package sidecars runs an app that is no Go program as Keyway is meant to run
// it: two of the app, each behind a worker, and a router in front of them.
package sidecars

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/cluster/proc"
)

// Config says what runs.
type Config struct {
	Name   string    // of the example
	App    []byte    // the source of the app. It listens on a free port and prints "listening on http://host:port"
	File   string    // name of its source
	With   string    // what runs the source
	Env    string    // of the app: NAME=value, in which %s is a directory in common
	Key    string    // where in a request the router finds the key
	Stderr io.Writer // takes writes from several goroutines, as files do
}

const apps = 2

// stopPatience is how long a program may take to end.
const stopPatience = 20 * time.Second

// Run starts everything, calls f with the router's URL, and stops everything. The arguments are the example's.
func Run(ctx context.Context, c Config, args []string, f func(ctx context.Context, url string) error) (err error) {
	flags := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	batch := flags.Bool("batch", false, "send the requests that wait for a key to the app together")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "keyway-"+c.Name+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	source := filepath.Join(dir, c.File)
	if err := os.WriteFile(source, c.App, 0o600); err != nil {
		return err
	}
	programs, err := cluster.Build(ctx, dir)
	if err != nil {
		return err
	}
	router, err := cluster.Start(ctx, "router", programs.Router, c.Stderr, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--gossip", "127.0.0.1:0", "--new-cluster", "--log-level", "error", "--key", c.Key)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(router.Process)) }()
	for i := range apps {
		app, err := proc.Start(ctx, proc.Spec{Name: fmt.Sprint("app", i+1), Program: c.With, Args: []string{source}, Env: []string{fmt.Sprintf(c.Env, dir)}, Out: c.Stderr, Ready: "^listening on "})
		if err != nil {
			return err
		}
		defer app.Kill() // it holds nothing: its worker has handed its keys over
		name := fmt.Sprintf("w%d", i+1)
		args := []string{"--name", name, "--join", router.Gossip, "--new-cluster", "--log-level", "error", "--upstream", strings.TrimPrefix(app.ReadyLine(), "listening on ")}
		if *batch {
			args = append(args, "--batch", "/batch")
		}
		worker, err := cluster.Start(ctx, name, programs.Worker, c.Stderr, args...)
		if err != nil {
			return err
		}
		defer stop(worker.Process)
	}
	return f(ctx, "http://"+router.Listen)
}

func stop(p *proc.Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	return p.Stop(ctx)
}

// Answer is what a client got. Body is JSON.
type Answer struct {
	Status int
	Body   []byte
}

// Post sends one POST with a JSON body to each of the URLs, all at the same
// time, and returns the answers in the same order.
func Post(ctx context.Context, urls []string, body any) ([]Answer, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(urls)}}
	defer client.CloseIdleConnections()
	answers, errs := make([]Answer, len(urls)), make([]error, len(urls))
	var wait sync.WaitGroup
	for i, url := range urls {
		wait.Go(func() { answers[i], errs[i] = post(ctx, client, url, content) })
	}
	wait.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("request %d: %w", i, err)
		}
	}
	return answers, nil
}

func post(ctx context.Context, client *http.Client, url string, content []byte) (Answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(content))
	if err != nil {
		return Answer{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := client.Do(r)
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return Answer{res.StatusCode, body}, err
}

// Together returns how many requests an app had in the largest of its batches, as
// the app says in its answers; 1 if it got each by itself.
func Together(answers []Answer) int {
	most := 1
	for _, a := range answers {
		var answer struct{ Together int }
		if json.Unmarshal(a.Body, &answer) == nil {
			most = max(most, answer.Together)
		}
	}
	return most
}
