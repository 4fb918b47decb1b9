// Command stock sells pieces of one SKU that everybody wants: 64 callers at a
// time, each sale recorded in PostgreSQL. It does so first with Do, one
// transaction for each sale, and then with a Batcher: while one transaction
// commits, the next sales of the SKU come together, and go into the next
// transaction all at once. Each caller still gets its own answer.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/examples/internal/postgres"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cluster/proc"
)

const (
	sku     = "sku-1"
	pieces  = 1_000_000
	callers = 64
)

var (
	errSoldOut = errors.New("sold out")
	errStale   = errors.New("a later execution has written: this one came too late")
)

// order asks for one piece; who has ordered gets the number of pieces left.
type order struct{ buyer string }

type shop struct {
	db      *pgxpool.Pool
	batches atomic.Int64
}

// sell sells to each of the items in their order, in one transaction. It needs
// the SKU's key: it reads, decides and writes.
func (s *shop) sell(ctx context.Context, token int64, items []*keyway.Item[order, int]) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		var left int
		if err := tx.QueryRow(ctx, "SELECT pieces FROM keyway_stock WHERE sku = $1", sku).Scan(&left); err != nil {
			return err
		}
		var buyers []string
		for _, item := range items {
			if left == 0 {
				item.Err = errSoldOut
				continue
			}
			left--
			item.Out = left
			buyers = append(buyers, item.In.buyer)
		}
		tag, err := tx.Exec(ctx, "UPDATE keyway_stock SET pieces = $1, token = $2 WHERE sku = $3 AND token < $2", left, token, sku)
		if err == nil && tag.RowsAffected() == 0 {
			err = errStale
		}
		if err == nil {
			_, err = tx.Exec(ctx, "INSERT INTO keyway_sales SELECT $1, unnest($2::text[])", sku, buyers)
		}
		return err
	})
}

// measure has all callers buy one piece after the other for some time, and
// returns how many pieces a second were sold.
func measure(ctx context.Context, d time.Duration, buy func(ctx context.Context, o order) error) (float64, error) {
	var sold atomic.Int64
	var wait sync.WaitGroup
	errs := make([]error, callers)
	began := time.Now()
	for i := range callers {
		wait.Go(func() {
			for time.Since(began) < d && errs[i] == nil {
				if errs[i] = buy(ctx, order{fmt.Sprintf("buyer-%d", i)}); errs[i] == nil {
					sold.Add(1)
				}
			}
		})
	}
	wait.Wait()
	return float64(sold.Load()) / time.Since(began).Seconds(), errors.Join(errs...)
}

func (s *shop) day(ctx context.Context, node *keyway.Node, d time.Duration, stdout io.Writer) error {
	single, err := measure(ctx, d, func(ctx context.Context, o order) error {
		return node.Do(ctx, sku, func(x keyway.Execution) error {
			return s.sell(x.Context(), x.Token(), []*keyway.Item[order, int]{{In: o}})
		})
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "with Do:    %6.0f sales/s\n", single)

	batcher, err := keyway.NewBatcher(node, keyway.BatchConfig{}, func(x keyway.Execution, items []*keyway.Item[order, int]) error {
		s.batches.Add(1)
		return s.sell(x.Context(), x.Token(), items)
	})
	if err != nil {
		return err
	}
	began := time.Now()
	batched, err := measure(ctx, d, func(ctx context.Context, o order) error {
		_, err := batcher.Do(ctx, sku, o)
		return err
	})
	if err != nil {
		return err
	}
	sold := batched * time.Since(began).Seconds()
	fmt.Fprintf(stdout, "with Batch: %6.0f sales/s, %.0f in a transaction: %.0f times as many\n",
		batched, sold/float64(s.batches.Load()), batched/single)

	var left, sales int
	if err := s.db.QueryRow(ctx, "SELECT pieces, (SELECT count(*) FROM keyway_sales) FROM keyway_stock").Scan(&left, &sales); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "pieces sold and left, less those there were: %d\n", sales+left-pieces)
	return nil
}

func run(ctx context.Context, args []string, stdout, _ io.Writer) (err error) {
	flags := flag.NewFlagSet("stock", flag.ContinueOnError)
	url := flags.String("postgres", "", "`URL` of a PostgreSQL to use; without it one is started and thrown away")
	d := flags.Duration("for", 3*time.Second, "`time` for which pieces are sold in each way")
	if err := flags.Parse(args); err != nil {
		return err
	}
	db, closeDB, err := postgres.Open(ctx, *url)
	if err != nil {
		return err
	}
	defer closeDB()
	_, err = db.Exec(ctx, fmt.Sprintf(`DROP TABLE IF EXISTS keyway_stock, keyway_sales;
		CREATE TABLE keyway_stock (sku text PRIMARY KEY, pieces bigint NOT NULL, token bigint NOT NULL);
		CREATE TABLE keyway_sales (sku text NOT NULL, buyer text NOT NULL);
		INSERT INTO keyway_stock VALUES ('%s', %d, 0)`, sku, pieces))
	if err != nil {
		return err
	}
	meeting, err := proc.FreeAddr() // others may run at 127.0.0.1:7946, where nodes meet by default
	if err != nil {
		return err
	}
	node, err := keyway.Start(ctx, keyway.Config{Join: []string{meeting}, NewCluster: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	return (&shop{db: db}).day(ctx, node, *d, stdout)
}

func main() { os.Exit(cli.Main("stock", run)) }
