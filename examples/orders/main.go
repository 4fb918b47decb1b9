// Command orders moves orders through their states. Of each order two events
// come at the same time, at two nodes: it can be shipped, and it can be
// cancelled. Whoever is first wins, and only one may call the courier or the
// bank. No database transaction can be held open over such a call for long; a
// lock could be, but it can be lost without its holder knowing.
//
// Here each event is handled within Do, so that one at a time is decided on
// per order, and what was decided is written with the fencing token: the table
// takes no write that is older than what it has.
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
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/examples/internal/postgres"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cluster/proc"
)

const orders = 100

// next says which event leads from which state to which.
var next = map[string]map[string]string{
	"new":  {"pay": "paid", "cancel": "cancelled"},
	"paid": {"ship": "shipped", "cancel": "refunded"},
}

var errStale = errors.New("a later execution has written: this one came too late")

type shop struct {
	db    *pgxpool.Pool
	nodes map[string]*keyway.Node

	mu    sync.Mutex
	calls map[string]int // of the courier and the bank, by order
}

// handle applies an event to an order. It needs the order's key: it reads,
// acts and writes.
func (s *shop) handle(ctx context.Context, order, event string, token int64) error {
	var state string
	if err := s.db.QueryRow(ctx, "SELECT state FROM keyway_orders WHERE id = $1", order).Scan(&state); err != nil {
		return err
	}
	to, ok := next[state][event]
	if !ok {
		return nil // too late: a shipped order is not cancelled, nor the other way round
	}
	if to == "shipped" || to == "refunded" {
		s.call(order)
	}
	return s.write(ctx, order, to, token)
}

// write is fenced by the condition on the token. That holds whatever happens to
// this process, even if it slept for a minute just before the statement.
func (s *shop) write(ctx context.Context, order, state string, token int64) error {
	tag, err := s.db.Exec(ctx, "UPDATE keyway_orders SET state = $1, token = $2 WHERE id = $3 AND token < $2", state, token, order)
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("%s: %w", order, errStale)
	}
	return err
}

// call stands for the courier or the bank, who cannot be rolled back.
func (s *shop) call(order string) {
	time.Sleep(2 * time.Millisecond)
	s.mu.Lock()
	s.calls[order]++
	s.mu.Unlock()
}

// event handles an event in the process of that node, whichever node owns the order.
func (s *shop) event(ctx context.Context, at *keyway.Node, order, event string) error {
	return at.Do(ctx, order, func(x keyway.Execution) error {
		return s.handle(x.Context(), order, event, x.Token())
	})
}

// day lets the events come: of each order first the payment, then what ends it,
// twice at once. In the middle of it the second node leaves.
func (s *shop) day(ctx context.Context) error {
	n1, n2 := s.nodes["n1"], s.nodes["n2"]
	for i := range orders {
		order := fmt.Sprintf("order-%d", i)
		if _, err := s.db.Exec(ctx, "INSERT INTO keyway_orders VALUES ($1, 'new', 0)", order); err != nil {
			return err
		}
		if err := s.event(ctx, n1, order, "pay"); err != nil {
			return err
		}
		if i == orders/2 {
			if err := n2.Close(); err != nil {
				return err
			}
			n2 = n1
		}
		var wait sync.WaitGroup
		errs := make([]error, 2)
		for j, first := range rand.Perm(2) {
			wait.Go(func() { errs[j] = s.event(ctx, []*keyway.Node{n1, n2}[j], order, []string{"ship", "cancel"}[first]) })
		}
		wait.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// report says how the orders ended, and tries a write that comes too late.
func (s *shop) report(ctx context.Context, stdout io.Writer) error {
	var shipped, refunded int
	err := s.db.QueryRow(ctx, `SELECT count(*) FILTER (WHERE state = 'shipped'), count(*) FILTER (WHERE state = 'refunded')
		FROM keyway_orders`).Scan(&shipped, &refunded)
	if err != nil {
		return err
	}
	twice := 0
	for _, calls := range s.calls {
		if calls > 1 {
			twice++
		}
	}
	fmt.Fprintf(stdout, "%d orders: %d shipped, %d refunded, %d both\n", shipped+refunded, shipped, refunded, twice)

	// A node that was stopped in the middle of an execution, and goes on when
	// another one has long taken the order over, has the token of its own time.
	var token int64
	if err := s.db.QueryRow(ctx, "SELECT token FROM keyway_orders WHERE id = 'order-0'").Scan(&token); err != nil {
		return err
	}
	err = s.write(ctx, "order-0", "paid", token-1)
	if !errors.Is(err, errStale) {
		return fmt.Errorf("a write with an old token: %v, want %v", err, errStale)
	}
	fmt.Fprintf(stdout, "a write with the token %d, after one with %d, was refused\n", token-1, token)
	return nil
}

func run(ctx context.Context, args []string, stdout, _ io.Writer) (failed error) {
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	url := flags.String("postgres", "", "`URL` of a PostgreSQL to use; without it one is started and thrown away")
	if err := flags.Parse(args); err != nil {
		return err
	}
	db, closeDB, err := postgres.Open(ctx, *url)
	if err != nil {
		return err
	}
	defer closeDB()
	_, err = db.Exec(ctx, `DROP TABLE IF EXISTS keyway_orders;
		CREATE TABLE keyway_orders (id text PRIMARY KEY, state text NOT NULL, token bigint NOT NULL)`)
	if err != nil {
		return err
	}
	meeting, err := proc.FreeAddr() // others may run at 127.0.0.1:7946, where nodes meet by default
	if err != nil {
		return err
	}
	s := &shop{db: db, nodes: make(map[string]*keyway.Node), calls: make(map[string]int)}
	for _, name := range []string{"n1", "n2"} { // in life they are processes, on machines of their own
		node, err := keyway.Start(ctx, keyway.Config{Name: name, Join: []string{meeting}, NewCluster: true})
		if err != nil {
			return err
		}
		defer func() { failed = errors.Join(failed, node.Close()) }()
		s.nodes[name] = node
	}
	if err := s.day(ctx); err != nil {
		return err
	}
	return s.report(ctx, stdout)
}

func main() { os.Exit(cli.Main("orders", run)) }
