// Command wallet transfers money between accounts whose balances no database
// transaction spans: each is at a service of its own that can be read and
// written, and no more. A transfer reads two of them, decides and writes two. It
// does so within DoAll, which holds both accounts, at whichever nodes own them,
// so that nobody else reads or writes them in between.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cluster/proc"
)

const (
	accounts  = 10
	start     = 100 // on each account
	clerks    = 12  // who transfer at the same time
	transfers = 25  // by each of them
)

var (
	errTooPoor = errors.New("not enough money")
	errStale   = errors.New("a later execution has written: this one came too late")
)

// account stands for the service that keeps a balance. Reading and writing it
// takes a moment, and it takes no write that is older than the last one.
type account struct {
	mu      sync.Mutex
	balance int
	token   int64
}

func (a *account) read() int {
	time.Sleep(time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.balance
}

func (a *account) write(balance int, token int64) error {
	time.Sleep(time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	if token < a.token {
		return errStale
	}
	a.balance, a.token = balance, token
	return nil
}

type bank struct {
	accounts [accounts]account
	done     atomic.Int64
	refused  atomic.Int64
}

func key(account int) string { return fmt.Sprintf("account-%d", account) }

// transfer moves money from one account to another. It may be called at any
// node. Both directions can be asked for at the same time: DoAll holds the keys
// in an order of its own, so that nobody waits in a circle.
func (b *bank) transfer(ctx context.Context, node *keyway.Node, from, to, amount int) error {
	return node.DoAll(ctx, []string{key(from), key(to)}, func(xs keyway.Execution) error {
		payer, payee := b.accounts[from].read(), b.accounts[to].read()
		if payer < amount {
			return errTooPoor
		}
		// The context ends when a key may be lost: a worker that holds it has died, or
		// cannot be reached. Nothing has been written yet, so this is the time to look.
		// DoAll is no transaction: after the first write the second one has to follow.
		if err := context.Cause(xs.Context()); err != nil {
			return err
		}
		if err := b.accounts[from].write(payer-amount, xs.TokenOf(key(from))); err != nil {
			return err
		}
		return b.accounts[to].write(payee+amount, xs.TokenOf(key(to)))
	})
}

// clerk makes transfers at random, at all nodes.
func (b *bank) clerk(ctx context.Context, nodes []*keyway.Node) error {
	for i := range transfers {
		pair := rand.Perm(accounts)
		switch err := b.transfer(ctx, nodes[i%len(nodes)], pair[0], pair[1], 1+rand.IntN(start)); {
		case err == nil:
			b.done.Add(1)
		case errors.Is(err, errTooPoor):
			b.refused.Add(1)
		default:
			return err
		}
	}
	return nil
}

func run(ctx context.Context, args []string, stdout, _ io.Writer) (failed error) {
	if err := flag.NewFlagSet("wallet", flag.ContinueOnError).Parse(args); err != nil {
		return err
	}
	meeting, err := proc.FreeAddr() // others may run at 127.0.0.1:7946, where nodes meet by default
	if err != nil {
		return err
	}
	var nodes []*keyway.Node
	for _, name := range []string{"n1", "n2", "n3"} { // in life they are processes, on machines of their own
		node, err := keyway.Start(ctx, keyway.Config{Name: name, Join: []string{meeting}, NewCluster: true})
		if err != nil {
			return err
		}
		defer func() { failed = errors.Join(failed, node.Close()) }()
		nodes = append(nodes, node)
	}
	b := new(bank)
	for i := range b.accounts {
		b.accounts[i].balance = start
	}
	var wait sync.WaitGroup
	errs := make([]error, clerks)
	for i := range clerks {
		wait.Go(func() { errs[i] = b.clerk(ctx, nodes) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	sum := 0
	for i := range b.accounts {
		sum += b.accounts[i].balance
	}
	fmt.Fprintf(stdout, "%d transfers, %d refused for want of money: %d on all accounts before, %d after\n",
		b.done.Load(), b.refused.Load(), accounts*start, sum)
	return nil
}

func main() { os.Exit(cli.Main("wallet", run)) }
