//go:build linux

package load

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/wire/link"
)

// Link says how to speak to a worker as a router does: over one connection, on which
// each request is a stream.
type Link struct {
	Cluster string
	Digest  uint64   // of the settings that members share
	Secrets [][]byte // by which they prove to be members; none if nobody has to
	Policy  []byte   // what routers ask for with each request; nil for nothing
	Prefix  string   // of keys
}

func (l *Link) config() link.Config {
	return link.Config{Cluster: l.Cluster, Digest: l.Digest, Secrets: l.Secrets}
}

// maxFailed is when the streams of the link give up.
const maxFailed = 100_000

// runLink makes a closed loop over the link, in which each stream has a goroutine.
func (c *course) runLink(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := &link.Client{Addr: c.Addr, Config: c.Link.config()}
	defer client.Close()
	var streams sync.WaitGroup
	for i := range c.Streams {
		streams.Go(func() { c.call(ctx, client, i*sequenceLen/c.Streams) })
	}
	poll := time.NewTicker(tick)
	defer poll.Stop()
	for drains := false; !drains; {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		c.mu.Lock()
		if now := c.now(); now >= c.ends {
			c.advance(now)
		}
		drains = c.phase == draining
		c.mu.Unlock()
	}
	late := time.AfterFunc(c.Timeout, cancel)
	defer late.Stop()
	streams.Wait()
	return nil
}

// call makes one request after the other, from a position in the sequence.
func (c *course) call(ctx context.Context, client *link.Client, position int) {
	for ctx.Err() == nil {
		begun := c.now()
		status, length, body, err := exchange(ctx, client, &c.Config, string(c.next(&position)))
		c.mu.Lock()
		if err != nil {
			c.fail(begun, c.now(), kindOf(err))
		} else {
			c.count(0, begun, c.now(), status, length, body)
		}
		ends := c.phase == draining || c.failed >= maxFailed
		c.mu.Unlock()
		if ends {
			return
		}
	}
}

// exchange sends a request and reads the answer, and keeps the beginning of one other
// than 200.
func exchange(ctx context.Context, client *link.Client, cfg *Config, key string) (status int, bytes int64, body []byte, err error) {
	var memory [512]byte
	fields := link.Fields(memory[:0])
	for _, f := range cfg.Mix.fields() {
		fields = link.AppendField(fields, f[0], f[1])
	}
	res, err := client.Do(ctx, &link.Request{
		Method: "GET", Target: cfg.Mix.Path, Host: host, Key: cfg.Link.Prefix + key, Client: 1, Policy: cfg.Link.Policy,
		Fields: link.AppendField(fields, HeaderKey, key),
	})
	if err != nil {
		return 0, 0, nil, err
	}
	defer res.Body.Close()
	for {
		piece, err := res.Body.Next()
		bytes += int64(len(piece))
		if res.Status != 200 {
			body = keep(body, piece)
		}
		switch err {
		case nil:
		case io.EOF:
			return res.Status, bytes, body, nil
		default:
			return 0, 0, nil, err
		}
	}
}
