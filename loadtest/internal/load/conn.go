//go:build linux

package load

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keyway-go/keyway/loadtest/internal/answer"
	"github.com/keyway-go/keyway/loadtest/internal/rawio"
)

func (c *course) open() (err error) {
	c.byFD, c.in = make(map[int32]*conn), make([]byte, 64<<10)
	if c.poll, err = rawio.NewPoll(); err == nil {
		c.to, err = netip.ParseAddrPort(c.Addr)
	}
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	return nil
}

func (c *course) close() {
	for _, k := range c.conns {
		c.hangUp(k)
	}
	c.poll.Close()
}

// wait handles what arrives, for as long as d at most.
func (c *course) wait(d time.Duration) error {
	ready, err := c.poll.Wait(d)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	for _, e := range ready {
		if k := c.byFD[e.Fd]; k != nil {
			c.receive(k)
		}
	}
	return nil
}

// receive takes what has come on a connection.
func (c *course) receive(k *conn) {
	n, err := rawio.Receive(k.fd, c.in)
	if n == 0 && err == nil {
		return
	}
	now, whole := c.now(), false
	if err == nil {
		whole, err = k.feed(c.in[:n])
	}
	switch {
	case err != nil:
		c.broken(k, now, err)
	case whole:
		c.answered(k, now)
	}
}

// conn is a client with its connection, over which one request at a time goes.
type conn struct {
	number      int
	position    int // in the sequence of requests
	waiting     bool
	begun       time.Duration
	pausedUntil time.Duration // 0: not paused

	fd     int // -1: not connected
	answer answer.Reader
	body   []byte // its beginning
}

// connectTime bounds connecting.
const connectTime = time.Second

// connect opens a client's connection if there is none.
func (c *course) connect(k *conn) (err error) {
	if k.fd >= 0 {
		return nil
	}
	if k.fd, err = c.poll.Dial(c.to, connectTime); err == nil {
		k.answer = answer.Reader{}
		c.byFD[int32(k.fd)] = k
	}
	return err
}

func (c *course) hangUp(k *conn) {
	if k.fd >= 0 {
		delete(c.byFD, int32(k.fd))
		unix.Close(k.fd)
		k.fd = -1
	}
}

// write sends a request, which a socket without anything in it takes whole.
func (k *conn) write(b []byte) error {
	n, err := rawio.Write(k.fd, b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}

// maxBody bounds what is kept of an answer's body.
const maxBody = 256

// started returns when the critical section began; 0 if the answer does not
// say.
func (k *conn) started() time.Duration {
	_, rest, _ := bytes.Cut(k.body, []byte(Begun))
	var n int64
	for _, c := range rest {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int64(c-'0')
	}
	return time.Duration(n)
}

// feed takes what has come, and reports whether an answer is whole.
func (k *conn) feed(in []byte) (whole bool, err error) {
	if !k.waiting {
		return false, answer.ErrUnasked
	}
	body, rest, whole, err := k.answer.Feed(in)
	if err == nil && len(rest) > 0 {
		err = answer.ErrUnasked
	}
	k.body = append(k.body, body[:min(len(body), maxBody-len(k.body))]...)
	return whole && err == nil, err
}
