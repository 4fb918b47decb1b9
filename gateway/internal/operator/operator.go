// Package operator answers what people ask of a cluster, by asking its workers over the link.
package operator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keyway-go/keyway/gateway/internal/calls"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

const (
	askTimeout = 2 * time.Second // for a worker's answer to a question
	askAtOnce  = 16              // workers that are asked at one time
)

// Operator asks the workers of a cluster about themselves, over the link.
type Operator struct {
	workers *send.Workers
	decide  func(*http.Request) (*status.Explanation, error)
}

// New returns an operator of the workers of a cluster. decide explains the
// route and the key of a request; it is nil for a process without routes.
func New(ws *send.Workers, decide func(*http.Request) (*status.Explanation, error)) *Operator {
	return &Operator{ws, decide}
}

// Workers returns a row for each member that is a worker, by name, even if it does not answer in
// time.
func (o *Operator) Workers(ctx context.Context) (rows []status.WorkerRow) {
	for _, r := range askAll[status.WorkerStatus](ctx, o, calls.Status, "") {
		rows = append(rows, status.WorkerRow{Name: r.Name, Address: r.Addr, State: r.State.String(), Status: r.answer, Error: r.failure})
	}
	return rows
}

// Loads returns a row for each member that is a worker, with what its partitions cost lately.
func (o *Operator) Loads(ctx context.Context) (rows []status.LoadRow) {
	for _, r := range askAll[status.Loads](ctx, o, calls.Load, "") {
		rows = append(rows, status.LoadRow{Worker: r.Name, Loads: r.answer, Error: r.failure})
	}
	return rows
}

func (o *Operator) list() []ring.Member {
	return slices.DeleteFunc(slices.Clone(o.workers.Members.View().Members), func(m ring.Member) bool { return m.Role != ring.RoleWorker })
}

// reply is what a worker answers to a question that all are asked.
type reply[T any] struct {
	ring.Member
	answer  *T     // nil for none
	failure string // why there is none
}

// askAll asks each worker, some at one time. Replies are in the order of the workers' names.
func askAll[T any](ctx context.Context, o *Operator, method, key string) []reply[T] {
	members := o.list()
	replies := make([]reply[T], len(members))
	var asking errgroup.Group
	asking.SetLimit(askAtOnce)
	for i, m := range members {
		asking.Go(func() error {
			if _, _, links := o.workers.Peer(m).Load(); links == 0 && method == calls.Load { // a balancer asks again and again, and both ends watch each link
				defer o.workers.Forget(m)
			}
			r := reply[T]{m, new(T), ""}
			if err := o.askMember(ctx, m, method, key, nil, r.answer); err != nil {
				r.answer, r.failure = nil, err.Error()
			}
			replies[i] = r
			return nil
		})
	}
	_ = asking.Wait() // replies have the errors
	return replies
}

// Locks returns a page of the cluster's locks. It begins behind the key after, or with the first
// lock for "". The order is that of partitions, and of keys within one.
func (o *Operator) Locks(ctx context.Context, after string) status.LockPage {
	order := func(a, b string) int {
		return cmp.Or(cmp.Compare(o.workers.Ring.Partition(a), o.workers.Ring.Partition(b)), cmp.Compare(a, b))
	}
	all := status.LockPage{Locks: []status.LockRow{}}
	for _, r := range askAll[status.LockPage](ctx, o, calls.Locks, after) {
		if r.answer == nil {
			all.Silent = append(all.Silent, r.Name)
			continue
		}
		for _, row := range r.answer.Locks {
			row.At = r.Name
			all.Locks = append(all.Locks, row)
		}
		if next := r.answer.Next; next != "" && (all.Next == "" || order(next, all.Next) < 0) {
			all.Next = next // what follows is not known of this worker
		}
	}
	slices.SortFunc(all.Locks, func(a, b status.LockRow) int { return order(a.Key, b.Key) })
	if all.Next != "" {
		all.Locks = slices.DeleteFunc(all.Locks, func(row status.LockRow) bool { return order(row.Key, all.Next) > 0 })
	}
	if len(all.Locks) > status.MaxLockRows {
		all.Locks = all.Locks[:status.MaxLockRows]
		all.Next = all.Locks[status.MaxLockRows-1].Key
	}
	return all
}

// Unlock releases all locks of a key, regardless of their holders, and returns them. by names the
// operator in the worker's log. If there are none, the error wraps [status.ErrNotLocked].
func (o *Operator) Unlock(ctx context.Context, key, by string) (rows []status.LockRow, err error) {
	e, err := o.Explain(ctx, key)
	if err != nil {
		return nil, err
	}
	if e.Worker == nil || !e.Worker.Served {
		return nil, fmt.Errorf("%w: %s", status.ErrNotAnswered, strings.Join(e.Verdict, " "))
	}
	m, err := o.find(e.Worker.Worker)
	if err != nil {
		return nil, err
	}
	err = o.askMember(ctx, m, calls.Unlock, key, []byte(by), &rows)
	for i := range rows {
		rows[i].At = m.Name
	}
	return rows, asMissing(err, status.ErrNotLocked, key)
}

// Release ends the quarantine of a key. by names the operator in the worker's log. If the key is not
// quarantined, the error wraps [status.ErrNotQuarantined].
func (o *Operator) Release(ctx context.Context, key, by string) error {
	return asMissing(o.orderAny(ctx, calls.Pardon, key, []byte(by)), status.ErrNotQuarantined, key)
}

// asMissing returns err, or an error that wraps missing if a worker has answered 404.
func asMissing(err, missing error, key string) error {
	if refused, ok := errors.AsType[*answerError](err); ok && refused.status == http.StatusNotFound {
		return fmt.Errorf("%w: %q", missing, key)
	}
	return err
}

// orderAny makes a call that any worker can carry out: at the worker of this process, or else at one of the first three
// on the ring that answers.
func (o *Operator) orderAny(ctx context.Context, method, key string, body []byte) error {
	workers := o.workers.Members.View().Workers()
	if self := o.workers.Members.Self(); self.Role == ring.RoleWorker {
		workers = []ring.Member{self}
	}
	err := errors.New("gateway: no worker is on the ring")
	for _, m := range workers[:min(len(workers), 3)] {
		within, cancel := context.WithTimeout(ctx, askTimeout)
		err = o.order(within, m, method, key, body)
		cancel()
		if !errors.Is(err, status.ErrNotAnswered) {
			break
		}
	}
	return err
}

// askMember makes a call that is answered at once, with JSON.
func (o *Operator) askMember(ctx context.Context, m ring.Member, method, key string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := o.call(ctx, m, method, key, body)
	if err == nil {
		err = json.Unmarshal(answer, into)
	}
	if err != nil {
		return fmt.Errorf("%w within %v: %s at %s: %w", status.ErrNotAnswered, askTimeout, m.Name, m.Addr, err)
	}
	return nil
}

// call makes a call to a worker, and returns the body of its answer if that is 200.
func (o *Operator) call(ctx context.Context, m ring.Member, method, key string, body []byte) ([]byte, error) {
	if !m.Link {
		return nil, errors.New("it does not speak the link protocol")
	}
	p := o.workers.Peer(m)
	p.Use()
	defer p.Leave()
	status, answer, err := p.Ask(ctx, &link.Request{Method: method, Key: key}, body, calls.MaxAnswer)
	switch {
	case err != nil:
		return nil, err
	case status != http.StatusOK:
		return nil, &answerError{status, string(bytes.TrimSpace(answer[:min(len(answer), 1024)]))}
	}
	return answer, nil
}

// answerError is a worker's answer that is not 200.
type answerError struct {
	status int
	text   string
}

func (e *answerError) Error() string { return cmp.Or(e.text, http.StatusText(e.status)) }

// Explain says what happens to requests for a key.
func (o *Operator) Explain(ctx context.Context, key string) (*status.Explanation, error) {
	if err := keysource.Check(key); err != nil {
		return nil, err
	}
	return o.conclude(ctx, &status.Explanation{Key: key}), nil
}

// ExplainRequest says where a request has its key, and adds what Explain says about it. Without
// routes the error wraps [errors.ErrUnsupported].
func (o *Operator) ExplainRequest(ctx context.Context, r *http.Request) (*status.Explanation, error) {
	if o.decide == nil {
		return nil, fmt.Errorf("only a router has routes: ask one, or ask for a key: %w", errors.ErrUnsupported)
	}
	e, err := o.decide(r)
	if err != nil {
		return nil, err
	}
	return o.conclude(ctx, e), nil
}

func (o *Operator) conclude(ctx context.Context, e *status.Explanation) *status.Explanation {
	if e.Key != "" {
		o.follow(ctx, e)
	}
	e.Conclude()
	return e
}

// follow goes the way of a request with the key of e, and asks whom it meets.
func (o *Operator) follow(ctx context.Context, e *status.Explanation) {
	view := o.workers.Members.View()
	e.Partition = o.workers.Ring.Partition(e.Key)
	if m, ok := view.Owner(e.Partition); ok {
		e.Wanted = &status.Place{Name: m.Name, Address: m.Addr}
	}
	for _, p := range status.PlacementsOf(view) {
		if p.Partition == e.Partition {
			e.Placed = p.By
		}
	}
	t, ok := o.workers.Routes.Owner(e.Partition)
	if !ok {
		return
	}
	e.Believed, e.Epoch = &status.Place{Name: t.Name, Address: t.Addr}, t.Epoch
	worker := t.Member
	for range 2 { // it may name another one
		status, err := o.explain(ctx, worker, e.Key)
		if err != nil {
			e.WorkerError = err.Error()
			return
		}
		e.Worker = &status
		next, err := o.find(status.Owner)
		if status.Served || err != nil || status.Owner == worker.Name {
			break
		}
		worker = next
	}
	if e.Worker.Residue == nil {
		return
	}
	former, err := o.find(e.Worker.Residue.Worker)
	if err != nil {
		e.FormerError = "it is no longer a member"
		return
	}
	status, err := o.explain(ctx, former, e.Key)
	if err != nil {
		e.FormerError = err.Error()
		return
	}
	e.Former = &status
}

func (o *Operator) explain(ctx context.Context, m ring.Member, key string) (s status.KeyStatus, err error) {
	err = o.askMember(ctx, m, calls.Explain, key, nil, &s)
	return s, err
}

func (o *Operator) find(name string) (ring.Member, error) {
	var names []string
	for _, m := range o.list() {
		if m.Name == name {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return ring.Member{}, fmt.Errorf("%w: %q; there are %q", status.ErrNoWorker, name, names[:min(len(names), 20)])
}

// Drain makes the worker of a name leave the ring, see worker.Worker.LeaveRing.
func (o *Operator) Drain(ctx context.Context, name string) error {
	return o.orderNamed(ctx, name, calls.Drain)
}

// Undrain makes it return.
func (o *Operator) Undrain(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return o.orderNamed(ctx, name, calls.Undrain)
}

func (o *Operator) orderNamed(ctx context.Context, name, method string) error {
	m, err := o.find(name)
	if err != nil {
		return err
	}
	return o.order(ctx, m, method, "", nil)
}

// Place makes a partition belong to the worker of a name, in place of the one by the ring, or with
// the name "" not any more, see worker.Worker.Place.
func (o *Operator) Place(ctx context.Context, partition int, worker string) error {
	return o.orderAny(ctx, calls.Place, "", fmt.Appendf(nil, "%d %s", partition, worker))
}

// order makes a call that changes something.
func (o *Operator) order(ctx context.Context, m ring.Member, method, key string, body []byte) error {
	_, err := o.call(ctx, m, method, key, body)
	if _, refused := errors.AsType[*answerError](err); err != nil && !refused {
		return fmt.Errorf("%w: %s at %s: %w", status.ErrNotAnswered, m.Name, m.Addr, err)
	}
	return err
}
