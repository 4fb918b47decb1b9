package lock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/fallback"
	"github.com/keyway-go/keyway/fallback/lock"
	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// startRedis starts a Redis in this process; use a server of its own where it
// matters.
func startRedis() (url string, stop func()) {
	server, err := store.StartEmbedded("127.0.0.1:0", "")
	if err != nil {
		log.Fatal(err)
	}
	return server.URL(), func() { _ = server.Close() }
}

func newLocker(url string, o lock.Config) (*lock.Locker, func()) {
	client, err := fallback.NewClient(url)
	if err != nil {
		log.Fatal(err)
	}
	locker, err := lock.New(client, o)
	if err != nil {
		log.Fatal(err)
	}
	return locker, func() {
		_ = locker.Close()
		_ = client.Close()
	}
}

// charge is what the package's comment begins with.
func charge(ctx context.Context, url string) error {
	client, err := fallback.NewClient(url) // redis://127.0.0.1:6379
	if err != nil {
		return err
	}
	defer client.Close()
	locker, err := lock.New(client, lock.Config{Label: "billing"})
	if err != nil {
		return err
	}
	defer locker.Close()
	held, err := locker.Lock(ctx, "order:42", locking.TTL(time.Minute), locking.Wait(5*time.Second))
	if err != nil {
		return err
	}
	defer held.Unlock(context.WithoutCancel(ctx))
	return ship(held.Context(), held.Token())
}

func ship(ctx context.Context, token int64) error {
	fmt.Println("shipped, with a token:", token > 0)
	return ctx.Err()
}

func Example() {
	url, stop := startRedis()
	defer stop()
	fmt.Println(charge(context.Background(), url))
	// Output:
	// shipped, with a token: true
	// <nil>
}

// The package's comment begins with lines that this file compiles and runs.
func TestPageBeginsWithAnExample(t *testing.T) {
	var texts [2]string
	for i, file := range []string{"doc.go", "example_test.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	var lines strings.Builder
	for line := range strings.Lines(texts[0]) {
		if code, ok := strings.CutPrefix(line, "//\t"); ok {
			lines.WriteString("\t" + code)
		}
	}
	if code := lines.String(); strings.Count(code, "\n") < 10 || !strings.Contains(texts[1], "{\n"+code+"}\n") {
		t.Errorf("no function has this body:\n%s", code)
	}
}

// A lock goes on in another process, by a handle that travels as JSON.
func ExampleLock_Detach() {
	url, stop := startRedis()
	defer stop()
	here, done := newLocker(url, lock.Config{})
	defer done()
	there, done := newLocker(url, lock.Config{}) // another process
	defer done()
	ctx := context.Background()

	upload, err := here.Lock(ctx, "upload:7")
	if err != nil {
		log.Fatal(err)
	}
	handle, err := upload.Detach(ctx)
	if err != nil {
		log.Fatal(err)
	}
	text, _ := json.Marshal(handle)
	fmt.Println("here:", context.Cause(upload.Context()))

	var received lock.Handle
	_ = json.Unmarshal(text, &received)
	goesOn, err := there.Attach(ctx, received)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("there, with the same token:", goesOn.Token() == upload.Token())
	_, err = here.Attach(ctx, received)
	fmt.Println("once only:", errors.Is(err, locking.ErrNotOwner))
	_ = goesOn.Unlock(ctx)
	// Output:
	// here: lock: detached
	// there, with the same token: true
	// once only: true
}

func Example_lock() {
	url, stop := startRedis()
	defer stop()
	ctx := context.Background()

	client, err := fallback.NewClient(url)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	locker, err := lock.New(client, lock.Config{TTL: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	order, err := locker.Lock(ctx, "order:42") // waits until ctx ends
	if err != nil {
		log.Fatal(err)
	}
	// Work with order.Context(), which ends before the lock can be another's,
	// and give order.Token() to what is written to.
	state, _ := locker.State(ctx, "order:42")
	fmt.Println("locked:", state.Held, "with a token:", order.Token() > 0)

	switch err := order.Unlock(ctx); {
	case err == nil:
		fmt.Println("released")
	case errors.Is(err, locking.ErrNotOwner):
		fmt.Println("it was another's by then")
	case errors.Is(err, locking.ErrUnlockUnknown):
		fmt.Println("Redis did not say")
	}
	// Output:
	// locked: true with a token: true
	// released
}

func ExampleLocker_TryLock() {
	url, stop := startRedis()
	defer stop()
	here, done := newLocker(url, lock.Config{})
	defer done()
	there, done := newLocker(url, lock.Config{}) // another process
	defer done()
	ctx := context.Background()

	job, err := here.TryLock(ctx, "nightly job")
	fmt.Println("here:", err)
	_, err = there.TryLock(ctx, "nightly job")
	fmt.Println("there, locked:", errors.Is(err, locking.ErrLocked))
	_ = job.Unlock(ctx)
	// Output:
	// here: <nil>
	// there, locked: true
}

// Readers share a lock, and a writer becomes one of them with nobody between.
func ExampleLock_Downgrade() {
	url, stop := startRedis()
	defer stop()
	locker, done := newLocker(url, lock.Config{})
	defer done()
	ctx := context.Background()

	price, err := locker.Lock(ctx, "price")
	if err != nil {
		log.Fatal(err)
	}
	_, err = locker.TryRLock(ctx, "price")
	fmt.Println("a reader while it is written:", errors.Is(err, locking.ErrLocked))

	if err := price.Downgrade(ctx); err != nil {
		log.Fatal(err)
	}
	reader, err := locker.TryRLock(ctx, "price")
	fmt.Println("a reader after the downgrade:", err)
	_, err = locker.TryLock(ctx, "price")
	fmt.Println("a writer beside readers:", errors.Is(err, locking.ErrLocked))
	_ = reader.Unlock(ctx)
	_ = price.Unlock(ctx)
	// Output:
	// a reader while it is written: true
	// a reader after the downgrade: <nil>
	// a writer beside readers: true
}

func ExampleLocker_LockAll() {
	url, stop := startRedis()
	defer stop()
	locker, done := newLocker(url, lock.Config{})
	defer done()
	ctx := context.Background()

	transfer, err := locker.LockAll(ctx, []string{"account:b", "account:a", "account:b"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(transfer.Keys())
	_, err = locker.TryLock(ctx, "account:a")
	fmt.Println("one of them alone:", errors.Is(err, locking.ErrLocked))
	_ = transfer.Unlock(ctx)
	// Output:
	// [account:a account:b]
	// one of them alone: true
}

// A context that holds a lock takes it again without waiting for itself.
func ExampleLock_Context() {
	url, stop := startRedis()
	defer stop()
	locker, done := newLocker(url, lock.Config{})
	defer done()

	outer, err := locker.Lock(context.Background(), "cart:7")
	if err != nil {
		log.Fatal(err)
	}
	ctx := outer.Context()
	inner, err := locker.Lock(ctx, "cart:7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the same lock:", inner.Token() == outer.Token())
	_ = inner.Unlock(ctx)
	fmt.Println("still held:", ctx.Err() == nil)
	_ = outer.Unlock(context.Background())
	fmt.Println(errors.Is(context.Cause(ctx), lock.ErrUnlocked))
	// Output:
	// the same lock: true
	// still held: true
	// true
}

func Example_fifo() {
	url, stop := startRedis()
	defer stop()
	locker, done := newLocker(url, lock.Config{FIFO: true})
	defer done()
	ctx := context.Background()

	first, err := locker.Lock(ctx, "ticket desk")
	if err != nil {
		log.Fatal(err)
	}
	var running sync.WaitGroup
	for i := range 3 {
		running.Go(func() {
			k, err := locker.Lock(ctx, "ticket desk")
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println("guest", i)
			_ = k.Unlock(ctx)
		})
		for waiting := 0; waiting <= i; {
			s, err := locker.State(ctx, "ticket desk")
			if err != nil {
				log.Fatal(err)
			}
			waiting = s.Waiting
		}
	}
	_ = first.Unlock(ctx)
	running.Wait()
	// Output:
	// guest 0
	// guest 1
	// guest 2
}

func ExampleLock_Extend() {
	url, stop := startRedis()
	defer stop()
	locker, done := newLocker(url, lock.Config{TTL: time.Minute, NoRenewal: true}) // not by itself
	defer done()
	ctx := context.Background()

	lease, err := locker.Lock(ctx, "leader")
	if err != nil {
		log.Fatal(err)
	}
	if err := lease.Extend(ctx, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Println("nearly a minute left:", time.Until(lease.Until()) > 50*time.Second)
	_ = lease.Unlock(ctx)
	// Output:
	// nearly a minute left: true
}

func ExampleNewQuorum() {
	var clients []redis.UniversalClient
	for range 5 {
		url, stop := startRedis()
		defer stop()
		client, err := fallback.NewClient(url)
		if err != nil {
			log.Fatal(err)
		}
		defer client.Close()
		clients = append(clients, client)
	}
	locker, err := lock.NewQuorum(clients, lock.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	ctx := context.Background()

	clients[0].Close() // two of five may fail
	clients[1].Close()
	vault, err := locker.Lock(ctx, "vault")
	fmt.Println(err)
	fmt.Println(vault.Unlock(ctx))
	// Output:
	// <nil>
	// <nil>
}
