// Package keyway runs functions and requests one at a time per key, on the one
// node of a cluster that owns the key, without a lock server:
//
//	node, err := keyway.Start(ctx, keyway.Config{})
//	if err != nil {
//		return err
//	}
//	defer node.Close(ctx)
//	err = node.Do(ctx, "order-42", func(x keyway.Execution) error {
//		return ship(x.Context(), x.Key(), x.Token()) // nobody else works on order-42
//	})
//
// The zero [Config] is a node of this machine: it finds a router (bin/router) or
// other nodes at 127.0.0.1:7946, where one of them keeps in its memory who owns
// what. More machines need Config.Redis, Join, Gossip and Listen.
package keyway
