package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/internal/cluster/proc"
	"github.com/keyway-go/keyway/ring"
)

// lockClientEnv has a [lockClient] in JSON, which a process of this program then is.
const lockClientEnv = "KEYWAY_CHAOS_LOCK_CLIENT"

// lockClient is a process whose callers lock keys until it is killed.
type lockClient struct {
	Life, Judge string
	Join        []string
	TTL         time.Duration
	Callers     int
	Seed        uint64
}

// spec starts the process.
func (me *lockClient) spec() (proc.Spec, error) {
	self, err := os.Executable()
	if err != nil {
		return proc.Spec{}, err
	}
	text, err := json.Marshal(me)
	return proc.Spec{Program: self, Env: []string{lockClientEnv + "=" + string(text)}}, err
}

// runLockClient is what the process does.
func runLockClient(ctx context.Context, text string) error {
	var me lockClient
	if err := json.Unmarshal([]byte(text), &me); err != nil {
		return err
	}
	client, err := keyway.NewClient(ctx, keyway.ClientConfig{Join: me.Join, Settings: ring.Settings{TTL: me.TTL}})
	if err != nil {
		return err
	}
	defer client.Close()
	judge := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: me.Callers}}
	c := &lockCallers{life: me.Life, ttl: me.TTL, tell: func(s said) error { return tell(judge, me.Judge, s) }}
	var callers sync.WaitGroup
	for i := range me.Callers {
		callers.Go(func() { c.run(ctx, rand.New(rand.NewPCG(me.Seed, uint64(i))), byClient(client)) })
	}
	callers.Wait()
	return errors.New("the judge has gone")
}

// tell tells the judge something, and returns when it has heard that.
func tell(client *http.Client, judge string, s said) error {
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	res, err := client.Post(judge, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	return res.Body.Close()
}
