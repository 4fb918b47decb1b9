package etcd

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
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

// connect makes a connection.
func connect(config clientv3.Config) (*connection, error) {
	c := &connection{members: config.Endpoints, at: rand.IntN(len(config.Endpoints)), present: make(chan struct{})}
	config.Endpoints = c.members[c.at : c.at+1]
	if config.Username != "" {
		l := &login{user: config.Username, password: config.Password}
		config.DialOptions = append(slices.Clip(config.DialOptions), grpc.WithChainUnaryInterceptor(l.call), grpc.WithChainStreamInterceptor(l.stream))
		config.Username, config.Password = "", ""
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, badURL("%v", err)
	}
	c.Client = client
	return c, nil
}

// keepAlive sends one renewal of a lease. KeepAliveOnce of clientv3 would repeat a refused renewal without a pause, and
// wait for a member that is away.
func (c *connection) keepAlive(ctx context.Context, id clientv3.LeaseID) (*pb.LeaseKeepAliveResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewLeaseClient(c.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return nil, rpctypes.Error(err)
	}
	_ = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}) // Recv returns why it was not sent
	lease, err := stream.Recv()
	return lease, rpctypes.Error(err)
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
