package localmutex_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/keyway-go/keyway/localmutex"
)

func ExampleMutex() {
	var (
		mutex   localmutex.Mutex
		balance int // of account 4711
		wg      sync.WaitGroup
	)
	for range 100 {
		wg.Go(func() {
			if err := mutex.Lock(context.Background(), "account 4711"); err != nil {
				return
			}
			defer mutex.Unlock("account 4711")
			balance++
		})
	}
	wg.Wait()
	fmt.Println(balance)
	// Output: 100
}

func ExampleMutex_Lock() {
	var mutex localmutex.Mutex
	_ = mutex.Lock(context.Background(), "seat 12A")

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	err := mutex.Lock(ctx, "seat 12A")
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output: true
}
