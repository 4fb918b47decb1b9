//go:build linux

package load

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// runBlocking drives each connection from a goroutine of its own, as TLS wants
// it.
func runBlocking(cfg Config) (Result, error) {
	c := newCourse(cfg)
	meters := make([]*meter, cfg.Connections)
	conns := make([]net.Conn, cfg.Connections)
	defer func() {
		for _, conn := range conns {
			if conn != nil {
				conn.Close()
			}
		}
	}()
	for i := range conns {
		conn, err := tls.Dial("tcp", cfg.Addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err != nil {
			return Result{}, fmt.Errorf("load: %w", err)
		}
		conns[i] = conn
		meters[i] = newMeter(c)
		meters[i].position = i * sequenceLen / cfg.Connections
	}
	var wg sync.WaitGroup
	for i, conn := range conns {
		wg.Go(func() { converse(conn, meters[i]) })
	}
	c.run(&wg, func() {
		for _, conn := range conns {
			conn.SetDeadline(time.Now())
		}
	})
	return total(meters), nil
}

// run goes through the phases, and waits for those who make the load, until drain
// when interrupt is called.
func (c *course) run(load *sync.WaitGroup, interrupt func()) {
	sleep(c.cfg.WarmUp)
	c.enter(measuring)
	sleep(c.cfg.Time)
	select {
	case <-c.answered:
	case <-time.After(drain):
	}
	c.enter(ending)
	late := time.AfterFunc(drain, interrupt)
	load.Wait()
	late.Stop()
}

// total is the result of all meters together.
func total(meters []*meter) Result {
	sum := meters[0]
	for _, m := range meters[1:] {
		sum.merge(m)
	}
	return sum.result()
}

func sleep(d time.Duration) { <-time.After(d) }

func converse(conn net.Conn, m *meter) {
	s := newSession(m)
	in := make([]byte, 32<<10)
	out := s.begin(nil, nanoseconds())
	for s.busy() > 0 {
		if len(out) > 0 {
			if _, err := conn.Write(out); err != nil {
				m.fail(err)
				return
			}
		}
		n, err := conn.Read(in)
		if err == nil {
			out, err = s.feed(in[:n], out[:0], nanoseconds())
		}
		if err != nil {
			m.fail(errors.Join(errors.New("load: broken connection"), err))
			return
		}
	}
}
