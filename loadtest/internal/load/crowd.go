//go:build linux

package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// crowd is a closed loop in which each connection, or stream of the link, has a goroutine, as TLS and the link want it.
type crowd struct {
	Config
	*requests
	clock Clock
	phase atomic.Int32 // a phase
	made  time.Duration
	first chan struct{} // closed at the first answer that is measured
	once  sync.Once
}

// timeout bounds the wait for the first answer, and for the last ones.
const timeout = 30 * time.Second

// meter counts the answers to one goroutine.
type meter struct {
	*crowd
	position int
	session  session // nil for the link
	result   Result
}

func (c *crowd) newMeter(i, of int) *meter {
	return &meter{crowd: c, position: i * sequenceLen / of, result: newResult(&Config{}, 2)}
}

func runCrowd(ctx context.Context, cfg Config) (*Result, error) {
	c := &crowd{Config: cfg, requests: newRequests(&cfg), clock: NewClock(), first: make(chan struct{})}
	c.made = c.clock.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var meters []*meter
	var all sync.WaitGroup
	if cfg.Link != nil {
		clients := make([]link.Client, cfg.Clients)
		for i := range cfg.Clients * cfg.Streams {
			client := &clients[i/cfg.Streams]
			if i%cfg.Streams == 0 {
				client.Addr, client.Config = cfg.Addr, cfg.Link.config()
				defer client.Close()
			}
			m := c.newMeter(i, len(clients)*cfg.Streams)
			meters = append(meters, m)
			all.Go(func() { m.call(ctx, client) })
		}
	} else {
		var conns []net.Conn
		for i := range cfg.Clients {
			conn, err := tls.Dial("tcp", cfg.Addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
			if err != nil {
				return nil, fmt.Errorf("load: %w", err)
			}
			defer conn.Close()
			conns, meters = append(conns, conn), append(meters, c.newMeter(i, cfg.Clients))
		}
		defer context.AfterFunc(ctx, func() {
			for _, conn := range conns {
				conn.SetDeadline(time.Now())
			}
		})()
		for i, conn := range conns {
			all.Go(func() { meters[i].converse(conn) })
		}
	}
	sum := newResult(&cfg, 3)
	if err := c.run(ctx, &sum); err != nil {
		return nil, err
	}
	late := time.AfterFunc(timeout, cancel)
	all.Wait()
	late.Stop()
	for _, m := range meters {
		r := &m.result
		sum.Answered, sum.Total, sum.Failed, sum.Bytes = sum.Answered+r.Answered, sum.Total+r.Total, sum.Failed+r.Failed, sum.Bytes+r.Bytes
		for _, f := range r.Failures {
			sum.Failures = sum.Failures.with(f)
		}
		sum.Latency.Merge(r.Latency)
	}
	return sum.finish(), nil
}

// run goes through the phases up to draining.
func (c *crowd) run(ctx context.Context, sum *Result) error {
	sleep := func(d time.Duration, also <-chan struct{}) error {
		select {
		case <-time.After(d):
		case <-also:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return nil
	}
	if err := sleep(c.WarmUp, nil); err != nil {
		return err
	}
	sum.sample(c.Groups, proc.CPUTime(0), -1)
	began := c.clock.Now()
	c.phase.Store(int32(measuring))
	if err := errors.Join(sleep(c.Time, nil), sleep(timeout, c.first)); err != nil {
		return err
	}
	c.phase.Store(int32(draining))
	sum.Time = c.clock.Now() - began
	sum.sample(c.Groups, proc.CPUTime(0), 1)
	return nil
}

func (m *meter) ends() bool { return m.phase.Load() == int32(draining) }

// answered implements owner.
func (m *meter) answered(begun time.Duration, status int, length int64, body []byte) {
	now := m.clock.Now()
	if status != 200 {
		m.fail(statusOf(status, body))
	} else if m.result.Total++; m.phase.Load() == int32(measuring) {
		m.once.Do(func() { close(m.first) })
		m.result.Answered++
		m.result.Bytes += length
		record(m.result.Latency, now-begun)
	}
	if m.session != nil && !m.ends() {
		m.session.send(m.next(&m.position), now)
	}
}

func (m *meter) fail(why string) {
	at := m.clock.Now() - m.made
	m.result.Failed++
	m.result.Failures = m.result.Failures.with(Failure{What: why, Count: 1, First: at, Last: at})
}

// converse makes one request after the other on a connection.
func (m *meter) converse(conn net.Conn) {
	m.session = newSession(&m.Config, m)
	m.session.send(m.next(&m.position), m.clock.Now())
	in := make([]byte, 32<<10)
	for len(m.session.underWay()) > 0 {
		_, err := conn.Write(m.session.unsent())
		var n int
		if err == nil {
			n, err = conn.Read(in)
		}
		if err == nil {
			err = m.session.feed(in[:n])
		}
		if err != nil {
			m.fail(kindOf(err))
			return
		}
	}
}

// maxFailed is when a stream of the link gives up.
const maxFailed = 10_000

// call makes one request after the other on the link.
func (m *meter) call(ctx context.Context, client *link.Client) {
	for !m.ends() && ctx.Err() == nil && m.result.Failed < maxFailed {
		begun := m.clock.Now()
		status, length, body, err := exchange(ctx, client, &m.Config, string(m.next(&m.position)))
		if err != nil {
			m.fail(kindOf(err))
			continue
		}
		m.answered(begun, status, length, body)
	}
}
