//go:build linux

package load

import (
	"context"
	"errors"
	"io"
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
			return errors.Join(context.Cause(ctx), err, errors.New(statusOf(status, body)))
		}
	}
	return nil
}
