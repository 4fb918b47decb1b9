package keytable_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/keyway-go/keyway/internal/keytable"
)

func ExampleTable() {
	var table keytable.Table // of one partition
	ctx := context.Background()

	// Two requests run when the partition moves away.
	first, _ := table.Lock(ctx, "order 1")
	second, _ := table.Lock(ctx, "order 2")
	for _, held := range table.Close() {
		fmt.Println("still runs:", held.Key, held.Token)
	}
	_, err := table.Lock(ctx, "order 3")
	fmt.Println(err)

	// Each reports when it ends that it was listed.
	fmt.Println(table.Unlock("order 1", first), table.Unlock("order 2", second))

	// It moves back in epoch 7, while order 4 still runs at its last owner.
	table.Open(7<<20|1, 8<<20, []string{"order 4"})
	_, err = table.TryLock("order 4")
	fmt.Println(err)
	table.Unblock("order 4")
	token, _ := table.Lock(ctx, "order 4")
	fmt.Println(token>>20, token&(1<<20-1))
	// Output:
	// still runs: order 1 1
	// still runs: order 2 2
	// localmutex: closed
	// true true
	// localmutex: locked
	// 7 1
}

func ExampleQueue() {
	queue := &keytable.Queue{PerKey: 1} // for both tables
	table := keytable.Table{Queue: queue}
	ctx := context.Background()
	token, _ := table.Lock(ctx, "hot")

	var wg sync.WaitGroup
	wg.Go(func() {
		token, _ := table.Lock(ctx, "hot")
		table.Unlock("hot", token)
	})
	for queue.Waiting() == 0 {
		runtime.Gosched()
	}
	_, err := table.Lock(ctx, "hot")
	fmt.Println(err)
	table.Unlock("hot", token)
	wg.Wait()
	// Output: localmutex: too many callers wait
}
