package historytest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/localmutex/locking"
)

const accounts = 4

// transfer is what a client of the bank asks for: to move one from an account to
// another, to add one to an account by a way of one key if both are the same, or
// to read all.
type transfer struct {
	from, to int
	read     bool
	way      string // if both are the same
}

// balances are those of all accounts: the state of the model, and as an output
// those that were read, or written: of the accounts that were held.
type balances [accounts]int64

// unknown is the output of a call that may have run.
var unknown = balances{math.MinInt64}

// bank is the model. A call whose outcome is unknown has happened or not.
var bank = porcupine.NondeterministicModel{
	Init: func() []any { return []any{balances{}} },
	Step: func(state, in, out any) []any {
		before, t, got := state.(balances), in.(transfer), out.(balances)
		after := before
		if !t.read {
			if t.from != t.to {
				after[t.from]--
			}
			after[t.to]++
		}
		switch {
		case got == unknown:
			return []any{before, after}
		case t.read && got == after, !t.read && got[t.from] == after[t.from] && got[t.to] == after[t.to]:
			return []any{after}
		}
		return nil
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %v", in, out) },
}

// links are the connections of a world's clients.
type links struct {
	w     *world
	mu    sync.Mutex            // guards what follows
	conns map[string][]net.Conn // by client
}

// dialer returns how the client of that name connects.
func (l *links) dialer(name string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := l.w.Network.Dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns[name] = append(l.conns[name], c)
		return c, nil
	}
}

// sever ends the connections of a client, which are made again.
func (l *links) sever(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns[name] {
		c.Close()
	}
	l.conns[name] = nil
}

// serve lets clients reach a worker.
func (w *world) serve(n *node) {
	n.Serve(w.t, w.Network.Listen(n.Member.Self().Addr), n.Handler(w.App))
}

// lock is the way of one key at which the client takes its lock.
const lock = "Lock"

// Transfers and reads that hold several keys of several workers, and calls at one of
// them, while workers come, go and die, connections are lost and callers leave,
// are as if each had happened at one moment between its call and its return.
func TestDoAll(t *testing.T) { bubble(t, testDoAll) }

func testDoAll(t *testing.T) {
	const clients, calls = 8, 60
	w := newWorld(t, accounts)
	l := &links{w: w, conns: make(map[string][]net.Conn)}
	r := &run{world: w}
	w.started = func(x *node) {
		w.serve(x)
		x.batcher = kit.Must(worker.NewBatcher(x.Worker.Worker, worker.BatchConfig{}, r.batch))
	}
	for range 3 {
		w.start()
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var done, ran, unsure, gaveUp, moves, moved atomic.Int64
	var events, all sync.WaitGroup
	events.Go(func() {
		random := rand.New(rand.NewPCG(seed, 1000))
		for done.Load() < clients && !t.Failed() {
			w.long.Store(random.IntN(2) == 0)
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
			nodes := w.nodes()
			victim := nodes[random.IntN(len(nodes))]
			switch random.IntN(6) {
			case 0:
				w.start()
				w.stop(victim)
				moves.Add(1)
			case 5: // what is held moves on and on
				for range 4 {
					w.start()
					w.stop(w.nodes()[0])
					moves.Add(1)
				}
			case 1:
				w.Sever(victim.Worker, true)
				w.crash(victim)
				w.start()
			case 2:
				victim.store.cut.Store(1)
				time.Sleep(time.Duration(random.Int64N(int64(2 * ttl))))
				victim.store.cut.Store(0)
			case 3:
				w.Sever(victim.Worker, false)
			default:
				l.sever(fmt.Sprint("client", random.IntN(clients)))
			}
		}
	})
	for id := range clients {
		name := fmt.Sprint("client", id)
		c := kit.Must(client.New(client.Config{Members: w.Join(name), Dial: l.dialer(name), Limits: gateway.Limits{Hold: 4 * ttl}}))
		random := rand.New(rand.NewPCG(seed, uint64(id)))
		all.Go(func() {
			defer done.Add(1)
			defer c.Close()
			for range calls {
				in := transfer{from: random.IntN(accounts), to: random.IntN(accounts), read: random.IntN(4) == 0, way: []string{"Do", "TryDo", "Batch", "Batch", "Batch", lock, lock}[random.IntN(7)]}
				together := 1
				if in.way == lock && in.from == in.to && !in.read {
					together = 5 // who take turns
				}
				var askers sync.WaitGroup
				for range together {
					ctx, cancel := context.WithCancel(t.Context())
					if random.IntN(4) == 0 {
						time.AfterFunc(time.Duration(random.IntN(200))*time.Millisecond, cancel)
					}
					askers.Go(func() {
						defer cancel()
						op := porcupine.Operation{ClientId: id, Input: in, Call: w.clock.Add(1)}
						before := moves.Load()
						out, err := r.ask(ctx, c, in)
						if err == nil && in.from != in.to && moves.Load() > before+1 {
							moved.Add(1)
						}
						op.Return, op.Output = w.clock.Add(1), out
						_, mayHaveRun := errors.AsType[*pending](err)
						switch {
						case mayHaveRun:
							unsure.Add(1)
							op.Return, op.Output = math.MaxInt64, unknown
						case err != nil: // it has not written
							gaveUp.Add(1)
							return
						default:
							ran.Add(1)
						}
						r.historyMu.Lock()
						defer r.historyMu.Unlock()
						r.history = append(r.history, op)
					})
				}
				askers.Wait()
			}
		})
	}
	all.Wait()
	events.Wait()
	for _, node := range w.nodes() {
		w.stop(node)
	}
	t.Logf("%d calls, %d that may have run, and %d that gave up; %d lasted over several moves", ran.Load(), unsure.Load(), gaveUp.Load(), moved.Load())
	if ran.Load() < clients*calls/2 {
		t.Errorf("only %d calls of %d have run", ran.Load(), clients*calls)
	}
	if result := porcupine.CheckOperationsTimeout(bank.ToModel(), r.history, time.Minute); result != porcupine.Ok {
		t.Errorf("the history is %v", result)
	}
}

// ask makes a call of the bank. An error means that nothing was written.
func (r *run) ask(ctx context.Context, c *client.Client, in transfer) (out balances, err error) {
	if in.from == in.to && !in.read && in.way == lock {
		out[in.to], err = r.lock(ctx, c, in.to)
		return out, err
	}
	if in.from == in.to && !in.read { // at its owner, among the others
		out[in.to], err = r.at(ctx, input{in.to, in.way})
		return out, err
	}
	held := []int{in.from, in.to}
	if in.read {
		held = []int{0, 1, 2, 3}
	}
	var names []string
	for _, key := range held {
		names = append(names, keyName(key))
	}
	wrote := false
	err = c.DoAll(ctx, names, func(xs gateway.Execution) error {
		for _, key := range slices.Compact(slices.Sorted(slices.Values(held))) {
			token := xs.TokenOf(keyName(key))
			if before := r.tokens[key].Swap(token); before >= token {
				r.t.Errorf("%s: token %d after %d", keyName(key), token, before)
			}
			out[key] = r.values[key].Load()
		}
		if !r.work(xs.Context()) {
			return errGivenUp
		}
		if in.read {
			return nil
		}
		out[in.from]--
		r.values[in.from].Store(out[in.from])
		out[in.to]++
		r.values[in.to].Store(out[in.to])
		wrote = true
		return nil
	})
	if err != nil && wrote {
		r.t.Errorf("%+v has happened, but says %v", in, err)
	}
	return out, err
}

// lock adds one with the lock of a key taken, for a session TTL or more.
func (r *run) lock(ctx context.Context, c *client.Client, key int) (n int64, err error) {
	name := keyName(key)
	take := c.Lock
	if rand.IntN(4) == 0 {
		take = c.TryLock
	}
	l, err := take(ctx, name, locking.TTL(time.Duration(max(rand.IntN(6)-3, 0))*ttl))
	if err != nil {
		return 0, err
	}
	defer func() {
		last := r.tokens[key].Load()
		ctx, cancel := context.WithTimeout(r.t.Context(), 4*ttl)
		defer cancel()
		if unlocked := l.Unlock(ctx); unlocked == nil && last != l.Token() {
			r.t.Errorf("%s: unlocked with token %d after %d", name, l.Token(), last)
		}
	}()
	if before := r.tokens[key].Swap(l.Token()); before >= l.Token() {
		r.t.Errorf("%s: token %d after %d", name, l.Token(), before)
	}
	n = r.values[key].Load() + 1
	if rand.IntN(4) == 0 {
		if err := l.Extend(ctx, 0); errors.Is(err, locking.ErrNotOwner) {
			return 0, err
		}
	}
	if !r.work(l.Context()) {
		return 0, errGivenUp
	}
	r.values[key].Store(n)
	return n, nil
}
