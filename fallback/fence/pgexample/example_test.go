package pgexample

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"testing"

	"github.com/keyway-go/keyway/fallback/fence"
)

func mustExec(query string, args ...any) {
	if _, err := db.Exec(query, args...); err != nil {
		log.Fatal(err)
	}
}

// The resource is one row, which carries the token.
func Example_row() {
	ctx := context.Background()
	mustExec(`CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL, fence bigint NOT NULL DEFAULT 0)`)
	mustExec(`INSERT INTO account (id, balance) VALUES (1, 100)`)

	write := func(token, balance int64) error {
		r, err := db.ExecContext(ctx, `UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2`, balance, token, 1)
		if err != nil {
			return err
		}
		return fence.Applied(r)
	}
	fmt.Println("token 34:", write(34, 70))
	fmt.Println("token 33 is refused:", errors.Is(write(33, 50), fence.ErrStale))
	fmt.Println("token 34 again:", write(34, 60))

	var balance int64
	if err := db.QueryRow(`SELECT balance FROM account WHERE id = 1`).Scan(&balance); err != nil {
		log.Fatal(err)
	}
	fmt.Println("balance:", balance)
	// Output:
	// token 34: <nil>
	// token 33 is refused: true
	// token 34 again: <nil>
	// balance: 60
}

// A transaction over several rows asks the table of tokens first.
func Example_transaction() {
	ctx := context.Background()
	mustExec(`CREATE TABLE IF NOT EXISTS fence (key text PRIMARY KEY, token bigint NOT NULL)`)
	mustExec(`CREATE TABLE booking (seat text, guest text)`)

	book := func(token int64, guest string, seats ...string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := fence.Advance(ctx, tx, "show:7", token); err != nil {
			return err
		}
		for _, seat := range seats {
			if _, err := tx.ExecContext(ctx, `INSERT INTO booking (seat, guest) VALUES ($1, $2)`, seat, guest); err != nil {
				return err
			}
		}
		return tx.Commit()
	}
	fmt.Println("token 34:", book(34, "ann", "A1", "A2"))
	fmt.Println("token 33 is refused:", errors.Is(book(33, "bob", "A1", "A2"), fence.ErrStale))

	var guests string
	if err := db.QueryRow(`SELECT string_agg(guest, ' ') FROM booking`).Scan(&guests); err != nil {
		log.Fatal(err)
	}
	fmt.Println("booked by:", guests)
	// Output:
	// token 34: <nil>
	// token 33 is refused: true
	// booked by: ann ann
}

// An older transaction that was first to lock the row commits first; one that
// comes second is refused. In neither order does the older one win.
func TestOlderTransactionNeverCommitsAfterANewerOne(t *testing.T) {
	ctx := t.Context()
	if _, err := db.Exec(`CREATE TABLE IF NOT EXISTS fence (key text PRIMARY KEY, token bigint NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`CREATE TABLE log (at bigserial, token bigint)`); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for token := range int64(40) {
		running.Go(func() {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer tx.Rollback()
			err = fence.Advance(ctx, tx, "race", token)
			if errors.Is(err, fence.ErrStale) {
				return
			}
			if err == nil {
				_, err = tx.ExecContext(ctx, `INSERT INTO log (token) VALUES ($1)`, token)
			}
			if err == nil {
				err = tx.Commit()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	var falls, last int64
	if err := db.QueryRow(`SELECT count(*) FROM (SELECT token < lag(token) OVER (ORDER BY at) AS fell FROM log) AS l WHERE fell`).Scan(&falls); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRow(`SELECT token FROM log ORDER BY at DESC LIMIT 1`).Scan(&last); err != nil {
		t.Fatal(err)
	}
	if falls != 0 || last != 39 {
		t.Errorf("%d writes came after one with a later token; the last token is %d", falls, last)
	}
}
