package gossip_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// A router and a worker find each other.
func Example() {
	ctx := context.Background()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	router, err := gossip.Start(ctx, gossip.Config{
		Self:   ring.Member{Name: "router", Role: ring.RoleRouter},
		Logger: quiet,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer router.Close()
	worker, err := gossip.Start(ctx, gossip.Config{
		Self: ring.Member{
			Name:        "worker-1",
			Incarnation: "LJ2VRCUYLZPWUYH5ZLXTLBHTNG",
			Role:        ring.RoleWorker,
			Addr:        "10.0.0.1:8080",
		},
		Seeds:  []string{router.Addr()},
		Logger: quiet,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer worker.Close()

	// Ready: onto the ring.
	err = worker.Announce(func(m *ring.Member) { m.State = ring.StateActive })
	if err != nil {
		fmt.Println(err)
		return
	}
	for {
		changed := router.Changed()
		v := router.View()
		if owner, ok := v.Owner(v.Table.Partition("order-7")); ok {
			fmt.Println("order-7 belongs to", owner.Name, "at", owner.Addr)
			break
		}
		<-changed
	}
	if err := worker.Leave(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: order-7 belongs to worker-1 at 10.0.0.1:8080
}
