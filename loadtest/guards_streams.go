//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// streams is a message queue with one consumer per partition: a request is
// written to the stream of its key's partition, the process that reads this
// stream works on one after the other, and writes the answers to a stream of
// the process that has asked. Who reads which stream is fixed.
func (a *app) streams(ctx context.Context) (guard, func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	q := &queue{app: a, client: redis.NewClient(&redis.Options{Addr: a.Redis[0], ContextTimeoutEnabled: true}), waiting: make(map[string]chan answer)}
	for p := a.Instance; p < a.Instances*partitionsPerInstance; p += a.Instances {
		q.readers.Go(func() { q.read(ctx, q.jobs(p), q.work) })
	}
	q.readers.Go(func() { q.read(ctx, q.answers(strconv.Itoa(a.Instance)), q.deliver) })
	return q.do, func() {
		cancel()
		q.readers.Wait()
		_ = q.client.Close()
	}, nil
}

// Of streams: how many partitions each process has, how many entries are read
// at once, how many are kept, and how long a read waits for one.
const (
	partitionsPerInstance = 4
	entriesAtOnce         = 100
	entriesKept           = 10_000
	readWait              = 200 * time.Millisecond
)

func (q *queue) jobs(partition int) string      { return q.app.Cluster + ":jobs:" + strconv.Itoa(partition) }
func (q *queue) answers(instance string) string { return q.app.Cluster + ":answers:" + instance }

type queue struct {
	app     *app
	client  *redis.Client
	readers sync.WaitGroup
	last    atomic.Int64 // number of a request

	mu      sync.Mutex
	waiting map[string]chan answer // by number
}

type answer struct {
	value int64
	err   error
}

// do is a guard.
func (q *queue) do(ctx context.Context, j job) (int64, error) {
	number := strconv.FormatInt(q.last.Add(1), 10)
	got := make(chan answer, 1)
	q.mu.Lock()
	q.waiting[number] = got
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		delete(q.waiting, number)
		q.mu.Unlock()
	}()
	h := fnv.New64a()
	_, _ = h.Write([]byte(j.key)) // never fails
	partition := int(h.Sum64() % uint64(q.app.Instances*partitionsPerInstance))
	err := q.add(ctx, q.client, q.jobs(partition), "number", number, "from", q.app.Instance, "key", j.key, "index", j.index, "work", j.work)
	if err != nil {
		return 0, err
	}
	select {
	case a := <-got:
		return a.value, a.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

func (q *queue) add(ctx context.Context, to redis.Cmdable, stream string, values ...any) error {
	return to.XAdd(ctx, &redis.XAddArgs{Stream: stream, MaxLen: entriesKept, Approx: true, Values: values}).Err()
}

// read passes the entries of a stream on, until ctx ends.
func (q *queue) read(ctx context.Context, stream string, handle func(context.Context, []redis.XMessage)) {
	last := "0"
	for ctx.Err() == nil {
		found, err := q.client.XRead(ctx, &redis.XReadArgs{Streams: []string{stream, last}, Count: entriesAtOnce, Block: readWait}).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			sleep(ctx, readWait)
			continue
		}
		for _, s := range found {
			handle(ctx, s.Messages)
			last = s.Messages[len(s.Messages)-1].ID
		}
	}
}

// work runs jobs one after the other and answers them together.
func (q *queue) work(ctx context.Context, entries []redis.XMessage) {
	answers := q.client.Pipeline()
	for _, e := range entries {
		index, err := strconv.Atoi(text(e, "index"))
		j := job{key: text(e, "key"), index: index, work: text(e, "work"), count: 1}
		var value int64
		if err == nil {
			value, err = q.app.execute(ctx, j, 0)
		}
		failure := ""
		if err != nil {
			failure = err.Error()
		}
		_ = q.add(ctx, answers, q.answers(text(e, "from")), "number", text(e, "number"), "value", value, "error", failure) // it is sent below
	}
	_, _ = answers.Exec(ctx) // who gets no answer fails by itself
}

// deliver gives answers to those who wait for them.
func (q *queue) deliver(_ context.Context, entries []redis.XMessage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range entries {
		value, err := strconv.ParseInt(text(e, "value"), 10, 64)
		if failure := text(e, "error"); failure != "" {
			err = errors.New(failure)
		}
		if got := q.waiting[text(e, "number")]; got != nil {
			got <- answer{value, err}
			delete(q.waiting, text(e, "number"))
		}
	}
}

// text returns a field of an entry.
func text(e redis.XMessage, field string) string { return fmt.Sprint(e.Values[field]) }
