package etcd

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc"
)

// connection is a client of etcd that sends all requests to one member, until that does not answer.
// A client of several members would take turns, so that each call with several requests would meet a
// member that hangs.
type connection struct {
	*clientv3.Client
	members []string

	mu      sync.Mutex // guards what follows
	at      int        // index of the present member
	present chan struct{}
}

// loginTimeout bounds a login. etcd hashes the password, which may take longer than an attempt of a request.
const loginTimeout = 30 * time.Second

// login keeps a user's token until etcd refuses it. clientv3 would request another one for each stream, and so
// for each renewal.
type login struct {
	clientv3.Auth
	token atomic.Pointer[clientv3.AuthenticateResponse]
	group singleflight.Group
}

// Authenticate returns the token. A login goes on when ctx ends, so the next attempt need not begin anew.
func (l *login) Authenticate(ctx context.Context, user, password string) (*clientv3.AuthenticateResponse, error) {
	if token := l.token.Load(); token != nil {
		return token, nil
	}
	done := l.group.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loginTimeout)
		defer cancel()
		token, err := l.Auth.Authenticate(ctx, user, password)
		if err == nil {
			l.token.Store(token)
		}
		return token, err
	})
	select {
	case r := <-done:
		token, _ := r.Val.(*clientv3.AuthenticateResponse)
		return token, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// forget drops the token if etcd refuses a request.
func (l *login) forget(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, request, reply, conn, opts...)
	if err != nil && !mayPass(err) {
		l.token.Store(nil)
	}
	return err
}

// connect makes a connection. clientv3.New would request a user's token at once. Given a token that etcd
// refuses, the client requests another one at its first call.
func connect(config clientv3.Config) (*connection, error) {
	c := &connection{members: config.Endpoints, at: rand.IntN(len(config.Endpoints)), present: make(chan struct{})}
	config.Endpoints = c.members[c.at : c.at+1]
	user, password := config.Username, config.Password
	if config.Username, config.Password = "", ""; user != "" {
		config.Token = "none"
	}
	held := new(login)
	config.DialOptions = append(slices.Clip(config.DialOptions), grpc.WithChainUnaryInterceptor(held.forget))
	client, err := clientv3.New(config)
	if err != nil {
		return nil, badURL("%v", err)
	}
	held.Auth, client.Auth = client.Auth, held
	client.Token, client.Username, client.Password = "", user, password
	c.Client = client
	return c, nil
}

// member returns a channel that is closed when the connection leaves its present member.
func (c *connection) member() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.present
}

// leave goes on to the next member, unless it has left this one.
func (c *connection) leave(member chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.present != member || len(c.members) == 1 {
		return
	}
	close(c.present)
	c.present, c.at = make(chan struct{}), (c.at+1)%len(c.members)
	c.SetEndpoints(c.members[c.at])
}
