package etcd

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// loginTimeout bounds a login. etcd hashes the password, which may take longer than an attempt of a request.
const loginTimeout = 30 * time.Second

// login gives requests the token of a user, until etcd refuses it. clientv3 would log in for each stream, and so for
// each renewal. It would also send its token along, and etcd 3.4 refuses a login with a token that it has forgotten.
type login struct {
	user, password string
	token          atomic.Pointer[string] // nil while there is none; empty if etcd has no users
	group          singleflight.Group
}

// with returns ctx with the token. A login goes on when ctx ends, so the next attempt need not begin anew.
func (l *login) with(ctx context.Context, conn *grpc.ClientConn) (context.Context, error) {
	token := l.token.Load()
	if token == nil {
		done := l.group.DoChan("", func() (any, error) {
			if token := l.token.Load(); token != nil { // another login has just ended
				return token, nil
			}
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loginTimeout)
			defer cancel()
			r, err := pb.NewAuthClient(conn).Authenticate(ctx, &pb.AuthenticateRequest{Name: l.user, Password: l.password})
			if err != nil && !errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled) {
				return nil, err
			}
			token := r.GetToken()
			l.token.Store(&token)
			return &token, nil
		})
		select {
		case r := <-done:
			if r.Err != nil {
				return ctx, r.Err
			}
			token = r.Val.(*string)
		case <-ctx.Done():
			return ctx, ctx.Err()
		}
	}
	if *token == "" {
		return ctx, nil
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, *token), nil
}

// call is a grpc.UnaryClientInterceptor. clientv3 repeats a request whose token was refused.
func (l *login) call(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) (err error) {
	if method != pb.Auth_Authenticate_FullMethodName {
		if ctx, err = l.with(ctx, conn); err != nil {
			return err
		}
	}
	if err = invoke(ctx, method, request, reply, conn, opts...); err != nil && !mayPass(err) {
		l.token.Store(nil)
	}
	return err
}

// stream is a grpc.StreamClientInterceptor.
func (l *login) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (_ grpc.ClientStream, err error) {
	if ctx, err = l.with(ctx, conn); err != nil {
		return nil, err
	}
	return open(ctx, desc, conn, method, opts...)
}
