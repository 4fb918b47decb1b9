package etcdtest

import (
	"context"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/keyway-go/keyway/fallback/etcd"
	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
)

// enableUsers makes a user who may do anything.
func enableUsers(t *testing.T, raw *clientv3.Client) {
	kit.Must(raw.UserAdd(t.Context(), "root", "s3cret"))
	kit.Must(raw.UserGrantRole(t.Context(), "root", "root"))
	kit.Must(raw.AuthEnable(t.Context()))
}

// A worker's user logs in once for each connection, not with each renewal, which would cost etcd more than all else: it
// hashes the password. It logs in again when etcd has forgotten its token.
func TestLogins(t *testing.T) { // alone, since it counts the requests of all servers
	server := startMembers(t, 1, func(c *embed.Config) { c.BcryptCost = 4 })[0]
	enableUsers(t, rawClient(t, server))
	s := openStore(t, strings.Replace(storeURL([]*member{server}), "//", "//root:s3cret@", 1))
	gen := kit.Must(s.Generation(t.Context(), true))
	kit.Must(s.Register(t.Context(), gen, records.Session{Incarnation: "a"}, time.Minute, nil))
	renew := func() error {
		_, err := s.Renew(t.Context(), gen, "a", time.Minute)
		return err
	}
	before := started(t)["Authenticate"]
	for range 6 {
		if err := renew(); err != nil {
			t.Fatal(err)
		}
	}
	if n := started(t)["Authenticate"] - before; n > 1 {
		t.Errorf("six renewals took %v logins", n)
	}
	server.stop()
	server.start(t)
	kit.Eventually(t, "the session is renewed", func() bool { return renew() == nil })
}

// slowLogin is an etcd that answers logins when it is told to, and refuses those that carry a token, as etcd 3.4 does.
type slowLogin struct {
	pb.UnimplementedAuthServer
	pb.UnimplementedKVServer
	logins atomic.Int64
	answer chan struct{}
}

func tokenOf(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	return strings.Join(md[rpctypes.TokenFieldNameGRPC], " ")
}

func (s *slowLogin) Authenticate(ctx context.Context, _ *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	if tokenOf(ctx) != "" {
		return nil, rpctypes.ErrGRPCInvalidAuthToken
	}
	s.logins.Add(1)
	select {
	case <-s.answer:
		return &pb.AuthenticateResponse{Token: "token"}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *slowLogin) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if tokenOf(ctx) != "token" {
		return nil, rpctypes.ErrGRPCInvalidAuthToken
	}
	nothing := &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{}}}
	return &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: true, Responses: slices.Repeat([]*pb.ResponseOp{nothing}, len(r.Success))}, nil
}

// A login may take longer than an attempt of a request, since etcd hashes the password. It is not begun anew.
func TestSlowLogin(t *testing.T) {
	t.Parallel()
	l, server, slow := kit.Must(net.Listen("tcp", "127.0.0.1:0")), grpc.NewServer(), &slowLogin{answer: make(chan struct{})}
	pb.RegisterAuthServer(server, slow)
	pb.RegisterKVServer(server, slow)
	go server.Serve(l)
	defer server.Stop()
	s := kit.Must(etcd.New("etcd://root:s3cret@"+l.Addr().String(), store.Config{Settings: ring.Settings{TTL: shortTTL}}))
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if s.Ping(ctx) == nil {
		t.Error("a call succeeded before the login")
	}
	close(slow.answer)
	kit.Eventually(t, "the user has logged in", func() bool { return s.Ping(t.Context()) == nil })
	if n := slow.logins.Load(); n != 1 {
		t.Errorf("%d logins, want 1", n)
	}
}

// etcd 3.4 refuses a login that carries a token which it does not know. It forgets tokens when it restarts.
func TestUserOfTheEtcdInstalled(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("etcd is missing: install it, on Debian: apt-get install etcd-server")
	}
	client, peer, dir := "http://"+kit.FreeAddr(t), "http://"+kit.FreeAddr(t), t.TempDir()
	start := func() (stop func()) {
		cmd := exec.Command(program, "--data-dir", dir, "--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--log-level", "error")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return func() { cmd.Process.Kill(); cmd.Wait() }
	}
	stop := start()
	defer func() { stop() }()
	raw := kit.Must(clientv3.New(clientv3.Config{Endpoints: []string{client}, Logger: zap.NewNop()}))
	defer raw.Close()
	enableUsers(t, raw)
	s := openStore(t, "etcd://root:s3cret@"+strings.TrimPrefix(client, "http://"))
	gen := kit.Must(s.Generation(t.Context(), true))
	kit.Must(s.Register(t.Context(), gen, records.Session{Incarnation: "a"}, time.Minute, nil))
	stop()
	stop = start()
	kit.Eventually(t, "the session is renewed", func() bool {
		_, err := s.Renew(t.Context(), gen, "a", time.Minute)
		return err == nil
	})
}
