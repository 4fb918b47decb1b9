package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"

	"github.com/keyway-go/keyway/internal/cluster/proc"
)

// part is what a process of this program is in a scenario of another one: a node, or
// a client of locks. partEnv tells it.
type part struct {
	Node  *bankNode
	Locks *lockClient
}

const partEnv = "KEYWAY_CHAOS_PART"

// partOf returns what this process does in a scenario of another one, nil for nothing.
func partOf(env func(string) string) func(context.Context) error {
	text := env(partEnv)
	if text == "" {
		return nil
	}
	return func(ctx context.Context) error {
		var p part
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return err
		}
		if p.Node != nil {
			return p.Node.run(ctx)
		}
		return p.Locks.run(ctx)
	}
}

// spec is that of a process which is the part.
func (p part) spec(ready string) (proc.Spec, error) {
	self, err := os.Executable()
	if err != nil {
		return proc.Spec{}, err
	}
	text, err := json.Marshal(p)
	return proc.Spec{Program: self, Env: []string{partEnv + "=" + string(text)}, Ready: ready}, err
}

// post tells a judge something, and decodes what it answers into answer unless that is nil.
func post(ctx context.Context, client *http.Client, url string, said, answer any) error {
	body, err := json.Marshal(said)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if answer == nil {
		return nil
	}
	return json.NewDecoder(res.Body).Decode(answer)
}
