package etcdtest

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/keyway-go/keyway/fallback/etcd"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// front is a server before an etcd, as a load balancer is.
type front struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	kv    pb.KVClient
	lease pb.LeaseClient

	mu    sync.Mutex
	asked []string // what changes something, in order
	stray bool     // a server of another etcd cluster renews leases
	away  bool     // no server does
	ended bool     // leases end before their renewal
	mute  bool     // the answer to the next write is lost
}

// startFront starts one, and returns a store that asks it.
func startFront(t *testing.T) (*front, *etcd.Store) {
	conn := rawClient(t, startMembers(t, 1, nil)[0]).ActiveConnection()
	f := &front{kv: pb.NewKVClient(conn), lease: pb.NewLeaseClient(conn)}
	l, server := kit.Must(net.Listen("tcp", "127.0.0.1:0")), grpc.NewServer()
	pb.RegisterKVServer(server, f)
	pb.RegisterLeaseServer(server, f)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return f, openStore(t, "etcd://"+l.Addr().String())
}

func (f *front) note(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, what)
}

func (f *front) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if slices.ContainsFunc(r.Success, func(op *pb.RequestOp) bool { return op.GetRequestRange() == nil }) {
		f.note("write")
		f.mu.Lock()
		mute := f.mute
		f.mute = false
		f.mu.Unlock()
		if mute {
			_, _ = f.kv.Txn(ctx, r)
			return nil, status.Error(codes.Unavailable, "the connection broke")
		}
	}
	return f.kv.Txn(ctx, r)
}

func (f *front) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	f.note("grant")
	return f.lease.LeaseGrant(ctx, r)
}

func (f *front) LeaseKeepAlive(client pb.Lease_LeaseKeepAliveServer) error {
	r, err := client.Recv()
	if err != nil {
		return err
	}
	f.note("renew")
	f.mu.Lock()
	stray, away, ended := f.stray, f.away, f.ended
	f.mu.Unlock()
	if ended {
		r.ID++ // etcd has no such lease
	}
	if away {
		return status.Error(codes.Unavailable, "no healthy upstream")
	}
	if stray {
		return client.Send(&pb.LeaseKeepAliveResponse{Header: &pb.ResponseHeader{ClusterId: 1}, ID: r.ID})
	}
	etcd, err := f.lease.LeaseKeepAlive(client.Context())
	if err == nil {
		err = etcd.Send(r)
	}
	if err != nil {
		return err
	}
	answer, err := etcd.Recv()
	if err != nil {
		return err
	}
	return client.Send(answer)
}

// A server of another etcd cluster that has no such lease ends no session.
func TestTrapStrayRenewal(t *testing.T) {
	t.Parallel()
	f, s := startFront(t)
	gen := kit.Must(s.Generation(t.Context(), true))
	kit.Must(s.Register(t.Context(), gen, records.Session{Incarnation: "a"}, time.Minute, nil))
	f.mu.Lock()
	f.stray = true
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := s.Renew(ctx, gen, "a", time.Minute); err == nil || errors.Is(err, records.ErrSessionGone) || !strings.Contains(err.Error(), "one etcd cluster") {
		t.Errorf("a renewal that only a stray server answers: %v", err)
	}
	f.mu.Lock()
	f.stray = false
	f.mu.Unlock()
	if _, err := s.Renew(t.Context(), gen, "a", time.Minute); err != nil {
		t.Errorf("the renewal after it: %v", err)
	}
}

// Sessions of the generation before may be renewed until another one is written, which may be long after the lease of the
// quarantine was granted. So the quarantine lasts for its full time from then on.
func TestTrapQuarantineBeforeItsGeneration(t *testing.T) {
	t.Parallel()
	f, s := startFront(t)
	gen := kit.Must(s.Generation(t.Context(), true))
	for _, mute := range []bool{false, true} {
		f.mu.Lock()
		f.asked, f.mute = nil, mute
		f.mu.Unlock()
		kit.Must(f.kv.DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: []byte("{keyway:keyway}/meta")}))
		next := kit.Must(s.Generation(t.Context(), true))
		if next == gen {
			t.Fatal("no generation has begun")
		}
		gen = next
		want := []string{"grant", "write", "renew"}
		if mute {
			want = slices.Insert(want, 1, "write")
		}
		if !slices.Equal(f.asked, want) {
			t.Errorf("the answer is lost: %v: a generation began with %q, want %q", mute, f.asked, want)
		}
	}
}

// A renewal that is refused at once is repeated after a pause, as all requests are.
func TestTrapRenewalWithoutPause(t *testing.T) {
	t.Parallel()
	f, s := startFront(t)
	gen := kit.Must(s.Generation(t.Context(), true))
	kit.Must(s.Register(t.Context(), gen, records.Session{Incarnation: "a"}, time.Minute, nil))
	f.mu.Lock()
	f.away, f.asked = true, nil
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	began := time.Now()
	if _, err := s.Renew(ctx, gen, "a", time.Minute); err == nil || !strings.Contains(err.Error(), "no healthy upstream") {
		t.Errorf("a renewal that no server answers: %v", err)
	}
	took := time.Since(began)
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.asked); n > 2+int(took/(50*time.Millisecond)) { // one stamp, and a renewal each 50 ms
		t.Errorf("%d requests in %v", n, took)
	}
}

// A session whose lease has ended after its stamp was written is over.
func TestTrapLeaseEndsBeforeItsRenewal(t *testing.T) {
	t.Parallel()
	f, s := startFront(t)
	gen := kit.Must(s.Generation(t.Context(), true))
	kit.Must(s.Register(t.Context(), gen, records.Session{Incarnation: "a"}, time.Minute, nil))
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	if _, err := s.Renew(t.Context(), gen, "a", time.Minute); !errors.Is(err, records.ErrSessionGone) {
		t.Errorf("the renewal of a lease that has ended: %v", err)
	}
}
