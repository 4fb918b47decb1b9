package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/internal/cluster/proc"
	"github.com/keyway-go/keyway/ring"

	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

// The scenario "transfers": nodes, which are processes of package keyway, move money
// between accounts with DoAll while some of them are killed and others leave. The
// bank, which is this process, gives out balances and takes them back, so two
// transfers of one account at a time would make or lose money.
const (
	bankNodes    = 3
	bankAccounts = 24
	bankCallers  = 6 // of each node
	bankStart    = 1000
)

// bankNode is a process of that: its name, the bank's URL, that of
// Redis, its gossip address, all of them, the session TTL and the directory.
type bankNode struct {
	Name, Bank, Redis, Gossip, Dir string
	Join                           []string
	TTL                            time.Duration
}

// entry is what a transfer says to the bank when it holds its accounts, and when it
// has decided.
type entry struct {
	ID     string // of the transfer
	Node   string // name#life
	Keys   []int
	Tokens []int64
	Values []int64 // balances; none before the bank has told them
}

// bank keeps the balances, and judges.
type bank struct {
	*httptest.Server
	mu        sync.Mutex // guards what follows
	balance   [bankAccounts]int64
	token     [bankAccounts]int64
	holder    [bankAccounts]*entry
	last      [bankAccounts]time.Time // when its last transfer began
	gap       time.Duration           // longest time without one
	event     time.Time               // when a node last ended or started
	calm      time.Duration           // as gap, but only since the latest event
	begun     int
	committed int
	seen      trial.Judgement
}

func newBank() *bank {
	b := &bank{}
	for i := range b.balance {
		b.balance[i] = bankStart
	}
	b.Server = httptest.NewServer(b)
	return b
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := new(entry)
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(e); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch r.URL.Path {
	case "/begin":
		_ = json.NewEncoder(w).Encode(b.beginLocked(e))
	case "/commit":
		b.commitLocked(e)
	case "/end":
		b.endLocked(func(open *entry) bool { return open.ID == e.ID })
	}
}

func (b *bank) beginLocked(e *entry) []int64 {
	var values []int64
	for i, key := range e.Keys {
		if other := b.holder[key]; other != nil {
			b.seen.Violate("account %d is held by %s with token %d, and by %s with %d", key, other.Node, b.token[key], e.Node, e.Tokens[i])
		}
		if e.Tokens[i] <= b.token[key] {
			b.seen.Violate("account %d: token %d after %d", key, e.Tokens[i], b.token[key])
		}
		now := time.Now()
		if !b.last[key].IsZero() {
			b.gap = max(b.gap, now.Sub(b.last[key]))
			b.calm = max(b.calm, min(now.Sub(b.last[key]), now.Sub(b.event)))
		}
		b.token[key], b.holder[key], b.last[key] = e.Tokens[i], e, now
		values = append(values, b.balance[key])
	}
	b.begun++
	return values
}

// commitLocked takes the balances of a transfer that is under way.
func (b *bank) commitLocked(e *entry) {
	for _, key := range e.Keys {
		if open := b.holder[key]; open == nil || open.ID != e.ID {
			return // of a process that has been killed
		}
	}
	for i, key := range e.Keys {
		b.balance[key] = e.Values[i]
	}
	b.committed++
	b.endLocked(func(open *entry) bool { return open.ID == e.ID })
}

func (b *bank) endLocked(of func(*entry) bool) {
	for key, open := range b.holder {
		if open != nil && of(open) {
			b.holder[key] = nil
		}
	}
}

// dead ends what a process had under way that is dead.
func (b *bank) dead(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.event = time.Now()
	b.endLocked(func(open *entry) bool { return open.Node == node })
}

// runTransfers plays the scenario.
func runTransfers(ctx context.Context, cfg config, dir string) error {
	rng := rand.New(rand.NewPCG(uint64(cfg.Seed), 0))
	b := newBank()
	defer b.Close()
	redis, err := trial.StartRedis(ctx, dir)
	if err != nil {
		return err
	}
	defer redis.Kill()
	lives := &trial.Lives{Dir: dir}
	defer lives.Kill()
	var join []string
	for range bankNodes {
		addr, err := proc.FreeAddr()
		if err != nil {
			return err
		}
		join = append(join, addr)
	}
	var nodes []*trial.Program
	for i, gossip := range join {
		node := bankNode{Bank: b.URL, Redis: redis.URL(), Gossip: gossip, Join: join, TTL: cfg.TTL, Dir: dir}
		p := &trial.Program{Name: fmt.Sprint("n", i+1), Lives: lives, Spec: func(label string, _ int) (proc.Spec, error) {
			node.Name = label
			return part{Node: &node}.spec("^ready$")
		}}
		if err := p.Start(ctx); err != nil {
			return err
		}
		nodes = append(nodes, p)
	}
	fmt.Fprintf(cfg.Out, "transfers: seed %d, %v, session TTL %v, %d nodes with %d callers each, %d accounts\n", cfg.Seed, cfg.Time, cfg.TTL, bankNodes, bankCallers, bankAccounts)
	end := time.Now().Add(cfg.Time)
	for kills := 0; time.Now().Before(end) && ctx.Err() == nil; kills++ {
		if !trial.Sleep(ctx, cfg.TTL/2+trial.UpTo(rng, cfg.TTL/2)) {
			break
		}
		p, how := nodes[rng.IntN(bankNodes)], "kill"
		l, err := p.Alive()
		if err != nil {
			return err
		}
		if rng.IntN(3) == 0 {
			how, err = "SIGTERM to", p.Stop()
		} else {
			_, err = p.Kill()
		}
		if err != nil {
			return err
		}
		b.dead(l.Label)
		b.mu.Lock()
		fmt.Fprintf(cfg.Out, "%v %s; %d transfers, %d violations, longest time of an account without one %v\n", how, p.Name, b.committed, len(b.seen.Violations), b.gap.Round(time.Millisecond))
		b.mu.Unlock()
		if !trial.Sleep(ctx, trial.UpTo(rng, 2*cfg.TTL)) {
			break
		}
		if err := p.Start(ctx); err != nil {
			return err
		}
		b.mu.Lock()
		b.event = time.Now()
		b.mu.Unlock()
	}
	trial.Sleep(ctx, 2*cfg.TTL) // until every account was asked for again
	if err := errors.Join(trial.StopAll(nodes)...); err != nil {
		return err
	}
	b.seen.Violations = append(b.seen.Violations, lives.Deaths()...)
	return b.verdict(cfg, dir)
}

// verdict says what the bank has seen. An account rests for at most a TTL when its
// owner or a holder dies, and for one more when the other one follows meanwhile. Further
// events prolong that, so the time counts from the latest one.
func (b *bank) verdict(cfg config, dir string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var sum int64
	for i, balance := range b.balance {
		sum += balance
		if rest := time.Since(b.last[i]); b.last[i].IsZero() || rest > 4*cfg.TTL {
			b.seen.Violate("account %d has rested for %v", i, rest)
		}
	}
	if sum != bankAccounts*bankStart {
		b.seen.Violate("%d in all accounts, %d at the start", sum, bankAccounts*bankStart)
	}
	if limit := 5*cfg.TTL/2 + time.Second; b.calm > limit {
		b.seen.Violate("an account had no transfer for %v since a node had ended or started, want at most %v", b.calm, limit)
	}
	fmt.Fprintf(cfg.Out, "%d transfers begun, %d made, %d in all accounts, longest time of an account without one %v, %v of it after the last event\n", b.begun, b.committed, sum, b.gap.Round(time.Millisecond), b.calm.Round(time.Millisecond))
	if b.committed == 0 {
		b.seen.Violate("nothing was transferred")
	}
	return b.seen.Verdict(cfg.Out, cfg.Seed, dir, "")
}

// run is what a node's process does.
func (n *bankNode) run(ctx context.Context) error {
	name, _, _ := strings.Cut(n.Name, "#")
	node, err := keyway.Start(ctx, keyway.Config{
		Name: name, Gossip: n.Gossip, Join: n.Join, Redis: n.Redis, NewCluster: true,
		Settings: ring.Settings{TTL: n.TTL}, LockFile: filepath.Join(n.Dir, name+".lock"),
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	var callers sync.WaitGroup
	for range bankCallers {
		callers.Go(func() {
			for ctx.Err() == nil {
				if err := n.transfer(ctx, node.Client); err != nil && ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, err)
					trial.Sleep(ctx, 10*time.Millisecond)
				}
			}
		})
	}
	callers.Wait()
	return node.Close()
}

// transfer moves one from an account to another.
func (n *bankNode) transfer(ctx context.Context, client *keyway.Client) error {
	from, to := rand.IntN(bankAccounts), rand.IntN(bankAccounts)
	if from == to {
		return nil
	}
	accounts := []string{fmt.Sprintf("account-%02d", from), fmt.Sprintf("account-%02d", to)}
	return client.DoAll(ctx, accounts, func(xs keyway.Execution) error {
		e := entry{ID: fmt.Sprint(n.Name, rand.Uint64()), Node: n.Name, Keys: []int{from, to}, Tokens: []int64{xs.TokenOf(accounts[0]), xs.TokenOf(accounts[1])}}
		ctx := context.WithoutCancel(xs.Context()) // what is decided is told
		defer func() { _ = post(ctx, http.DefaultClient, n.Bank+"/end", e, nil) }()
		var balances []int64
		if err := post(ctx, http.DefaultClient, n.Bank+"/begin", e, &balances); err != nil || len(balances) != 2 {
			return err
		}
		time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
		if xs.Context().Err() != nil {
			return context.Cause(xs.Context())
		}
		e.Values = []int64{balances[0] - 1, balances[1] + 1}
		return post(ctx, http.DefaultClient, n.Bank+"/commit", e, nil)
	})
}
