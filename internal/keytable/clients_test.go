package keytable

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// Clients take turns at a key, each gets its own callers' in the order in which they
// came, and callers without a client wait in the present turn. Where as many wait as
// may, the last of a client that has more gives way.
func TestClientsTakeTurns(t *testing.T) {
	for _, tt := range []struct {
		name    string
		perKey  int
		callers string // a letter for each: its client, - for none; a capital leaves before it is granted
		want    string // in the order in which they got the key
		full    string // those who did not, sorted
	}{
		{name: "one client", callers: "aaaa", want: "a1 a2 a3 a4"},
		{name: "no clients", callers: "----", want: "-1 -2 -3 -4"},
		{name: "many clients", callers: "abcd", want: "a1 b1 c1 d1"},
		{name: "a flood, then others", callers: "aaaabc", want: "a1 b1 c1 a2 a3 a4"},
		{name: "two floods", callers: "aaabbbab", want: "a1 b1 a2 b2 a3 b3 a4 b4"},
		{name: "a flood and the program", callers: "aaa-a-", want: "a1 -1 -2 a2 a3 a4"},
		{name: "who leaves gives no turn away", callers: "aAab", want: "a1 b1 a3"},
		{name: "full of one client", perKey: 3, callers: "aaaa", want: "a1 a2 a3", full: "a4"},
		{name: "full of a flood", perKey: 3, callers: "aaabc", want: "a1 b1 c1", full: "a2 a3"},
		{name: "full of equals", perKey: 3, callers: "abcd", want: "a1 b1 c1", full: "d1"},
		{name: "full, for the program", perKey: 3, callers: "aaa-", want: "a1 -1 a2", full: "a3"},
		{name: "the program gives no way", perKey: 2, callers: "--a", want: "-1 -2", full: "a1"},
		{name: "one more is no reason", perKey: 3, callers: "aabb", want: "a1 b1 a2", full: "b2"},
	} {
		for _, items := range []bool{false, true} {
			t.Run(tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					queue := &Queue{PerKey: tt.perKey}
					table := Table{Queue: queue}
					held, _ := table.Lock(t.Context(), "k")
					var got, full []string
					count := map[rune]int{}
					var leave []context.CancelFunc
					for _, letter := range tt.callers {
						client := []rune(strings.ToLower(string(letter)))[0]
						count[client]++
						name := string(client) + string(rune('0'+count[client]))
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						if client != letter {
							leave = append(leave, cancel)
						}
						how := Wait{Client: uint64(client)}
						if client == '-' {
							how.Client = 0
						}
						go func() {
							if items {
								how.Item = new(Item)
							}
							token, err := table.LockWait(ctx, "k", how)
							switch {
							case errors.Is(err, ErrQueueFull):
								full = append(full, name)
							case err == nil:
								got = append(got, name)
								table.Unlock("k", token)
							}
						}()
						synctest.Wait()
					}
					for _, cancel := range leave {
						cancel()
					}
					synctest.Wait()
					table.Unlock("k", held)
					synctest.Wait()
					slices.Sort(full)
					if s := strings.Join(got, " "); s != tt.want || strings.Join(full, " ") != tt.full {
						t.Errorf("got the key: %s, want %s; found the queue full: %s, want %s", s, tt.want, full, tt.full)
					}
					if n := queue.Waiting(); n != 0 || table.Len() != 0 {
						t.Errorf("%d wait in the end, %d keys", n, table.Len())
					}
					for client := range queue.shares {
						if n := queue.shares[client].Load(); n != 0 {
							t.Errorf("client %d has %d waiters in the end", client, n)
						}
					}
				})
			})
		}
	}
}

// One client's callers take half of all places at most.
func TestClientsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := &Queue{Total: 4}
		table := Table{Queue: queue}
		held, _ := table.Lock(t.Context(), "k")
		ask := func(client uint64) error {
			err := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			go func() {
				token, e := table.LockWait(ctx, "k", Wait{Client: client})
				if e == nil {
					table.Unlock("k", token)
				}
				err <- e
			}()
			synctest.Wait()
			select {
			case e := <-err:
				return e
			default:
				return nil
			}
		}
		for i, tt := range []struct {
			client uint64
			want   error
		}{{1, nil}, {1, nil}, {1, ErrQueueFull}, {0, nil}, {2, nil}, {2, ErrQueueFull}, {0, ErrQueueFull}} {
			if err := ask(tt.client); err != tt.want {
				t.Errorf("caller %d, of client %d: %v, want %v", i, tt.client, err, tt.want)
			}
		}
		table.Unlock("k", held)
		synctest.Wait()
		if n := queue.Waiting(); n != 0 {
			t.Errorf("%d wait in the end", n)
		}
	})
}

// Who comes back while others wait comes behind those of the present turn.
func TestTurnsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		held, _ := table.Lock(t.Context(), "k")
		var got []string
		next := make(chan struct{})
		ask := func(name string) {
			go func() {
				token, err := table.LockWait(t.Context(), "k", Wait{Client: uint64(name[0])})
				if err != nil {
					t.Error(err)
					return
				}
				got = append(got, name)
				<-next
				table.Unlock("k", token)
			}()
			synctest.Wait()
		}
		for _, name := range []string{"a1", "a2", "b1", "b2"} {
			ask(name)
		}
		table.Unlock("k", held)
		for range 2 {
			next <- struct{}{}
		}
		synctest.Wait() // a2 holds the key
		ask("c1")
		for range 4 - 2 + 1 {
			next <- struct{}{}
		}
		synctest.Wait()
		if s := strings.Join(got, " "); s != "a1 b1 a2 b2 c1" {
			t.Errorf("got the key: %s", s)
		}
	})
}

// Who comes back whenever it gets the key takes every second turn from a client with
// many callers, not all of them.
func TestComingBackIsNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		held, _ := table.Lock(t.Context(), "k")
		var got []byte
		next := make(chan struct{})
		ask := func(client byte) {
			go func() {
				token, err := table.LockWait(t.Context(), "k", Wait{Client: uint64(client)})
				if err != nil {
					t.Error(err)
					return
				}
				got = append(got, client)
				<-next
				table.Unlock("k", token)
			}()
			synctest.Wait()
		}
		for _, client := range []byte("aaab") {
			ask(client)
		}
		table.Unlock("k", held)
		synctest.Wait()
		for i := 0; i < len(got); i++ {
			if got[i] == 'b' && i < 6 {
				ask('b')
			}
			next <- struct{}{}
			synctest.Wait()
		}
		if string(got) != "abababb" {
			t.Errorf("got the key: %s", got)
		}
	})
}
