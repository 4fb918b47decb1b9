package hop2

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// pool has the connections to a server. It makes one more where all that there are
// carry as many requests as the server takes.
type pool struct {
	http  *http.Transport
	dials singleflight.Group // of "": one at a time

	mu      sync.Mutex // guards what follows
	clients []*client
}

// client is a connection as net/http has it, and below it.
type client struct {
	*http.ClientConn
	conn *conn
}

// dialedKey is for the context that makes a connection: the client it is for.
type dialedKey struct{}

func (p *pool) init(t *Transport) {
	p.http = &http.Transport{
		Protocols:          new(http.Protocols),
		IdleConnTimeout:    t.Idle,
		DisableCompression: true,
		HTTP2:              &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			nc, err := t.Dial(ctx)
			if err != nil {
				return nil, err
			}
			c := ctx.Value(dialedKey{}).(*client)
			c.conn = &conn{Conn: nc, ended: make(chan struct{})}
			return c.conn, nil
		},
	}
	p.http.Protocols.SetUnencryptedHTTP2(true)
}

// get returns a connection on which the caller may make one request.
func (p *pool) get(ctx context.Context) (*client, error) {
	for try := 0; ; try++ {
		if c := p.reserve(); c != nil {
			return c, nil
		}
		if try == tries {
			return nil, errNoRoom
		}
		select {
		case dialed := <-p.dials.DoChan("", func() (any, error) { return nil, p.dial(context.WithoutCancel(ctx)) }):
			if dialed.Err != nil {
				return nil, dialed.Err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// errNoRoom: others were faster, or the server takes no requests.
var errNoRoom = errors.New("hop2: no connection to the server has room for a request")

func (p *pool) dial(ctx context.Context) error {
	c := new(client)
	var err error
	if c.ClientConn, err = p.http.NewClientConn(context.WithValue(ctx, dialedKey{}, c), "http", "app:80"); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients = append(p.clients, c)
	return nil
}

// reserve returns a connection with room for a request, or nil. It drops connections that have
// ended or take no more requests; running requests on them continue without the pool.
func (p *pool) reserve() *client {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients = slices.DeleteFunc(p.clients, func(c *client) bool { return c.Err() != nil })
	for _, c := range p.clients {
		if c.Reserve() == nil {
			return c
		}
	}
	return nil
}

// conn is a connection that records its end by the server.
type conn struct {
	net.Conn
	once  sync.Once
	ended chan struct{}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.once.Do(func() { close(c.ended) })
	}
	return n, err
}
