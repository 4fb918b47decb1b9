package ring_test

import (
	"fmt"

	"github.com/keyway-go/keyway/ring"
)

func Example() {
	table, err := ring.New(ring.Config{}, []string{"ann", "bob", "cid"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, key := range []string{"order-1", "seat-12A", "sku-77"} {
		p := table.Partition(key)
		owner, _ := table.Owner(p)
		fmt.Println(key, "is in partition", p, "of", owner)
	}
	// Output:
	// order-1 is in partition 173 of bob
	// seat-12A is in partition 375 of cid
	// sku-77 is in partition 970 of bob
}

// A member that joins takes partitions over; few others move.
func ExampleNew() {
	before, err := ring.New(ring.Config{Partitions: 12}, []string{"ann", "bob"})
	if err != nil {
		fmt.Println(err)
		return
	}
	after, err := ring.New(ring.Config{Partitions: 12}, []string{"ann", "bob", "cid"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for p := range before.Partitions() {
		from, _ := before.Owner(p)
		if to, _ := after.Owner(p); to != from {
			fmt.Printf("partition %d: %s -> %s\n", p, from, to)
		}
	}
	// Output:
	// partition 6: bob -> ann
	// partition 10: bob -> cid
	// partition 11: bob -> cid
}

func ExampleBuilder() {
	builder, err := ring.NewBuilder(ring.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	owners := make(map[int]string)
	for _, members := range [][]string{{"ann", "bob", "cid"}, {"bob", "cid"}, {"cid", "ann", "bob"}} {
		table, err := builder.Table(members)
		if err != nil {
			fmt.Println(err)
			return
		}
		moves := 0
		for p := range table.Partitions() {
			if owner, _ := table.Owner(p); owner != owners[p] {
				owners[p] = owner
				moves++
			}
		}
		fmt.Println(table.Members(), "after", moves, "moves")
	}
	// Output:
	// [ann bob cid] after 4096 moves
	// [bob cid] after 1437 moves
	// [ann bob cid] after 1437 moves
}
