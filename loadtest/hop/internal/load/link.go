//go:build linux

package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/wire/link"
)

// Link says how to speak to a worker as a router does: over few connections, on which
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

// runLink drives each stream from a goroutine of its own.
func runLink(cfg Config) (Result, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := newCourse(cfg)
	clients := make([]link.Client, cfg.Connections)
	for i := range clients {
		clients[i].Addr, clients[i].Config = cfg.Addr, cfg.Link.config()
		defer clients[i].Close()
	}
	meters := make([]*meter, cfg.Connections*cfg.Streams)
	var wg sync.WaitGroup
	for i := range meters {
		meters[i] = newMeter(c)
		meters[i].position = i * sequenceLen / len(meters)
		wg.Go(func() { call(ctx, &clients[i/cfg.Streams], meters[i]) })
	}
	c.run(&wg, cancel)
	return total(meters), nil
}

// call makes one request after the other.
func call(ctx context.Context, client *link.Client, m *meter) {
	cfg := &m.course.cfg
	for {
		key, begun, ok := m.next(nanoseconds())
		if !ok {
			return
		}
		status, bytes, body, err := exchange(ctx, client, cfg, string(key))
		if err == nil {
			m.answered(begun, nanoseconds(), status, bytes, body.take())
			continue
		}
		m.fail(fmt.Errorf("load: %w", err))
		if m.failed > maxFailed || ctx.Err() != nil {
			return
		}
	}
}

// exchange sends a request and reads the answer, and keeps the beginning of one other
// than 200.
func exchange(ctx context.Context, client *link.Client, cfg *Config, key string) (status int, bytes int64, body detail, err error) {
	var memory [512]byte
	fields := link.Fields(memory[:0])
	for _, f := range requestFields(cfg) {
		fields = link.AppendField(fields, f[0], f[1])
	}
	res, err := client.Do(ctx, &link.Request{
		Method: "GET", Target: cfg.Path, Host: host, Key: cfg.Link.Prefix + key, Client: 1, Policy: cfg.Link.Policy,
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
			body.add(piece)
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

// AwaitLink makes requests for the keys, one after the other, until each of them in a
// row is answered with 200.
func AwaitLink(ctx context.Context, cfg Config, keys []string) error {
	client := &link.Client{Addr: cfg.Addr, Config: cfg.Link.config()}
	defer client.Close()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for good := 0; good < len(keys); {
		status, _, body, err := exchange(ctx, client, &cfg, keys[good])
		if err == nil && status == 200 {
			good++
			continue
		}
		good = 0
		select {
		case <-poll.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err, &statusError{status, body.take()})
		}
	}
	return nil
}
