//go:build linux

package lockers

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// sparesKept bounds the sessions that nobody uses.
const sparesKept = 1024

// Etcd is the lock of etcd's package concurrency. It belongs to a session, so
// that each caller needs one of its own; they are kept. stop ends them.
func Etcd(endpoints []string, ttl time.Duration) (_ Enter, stop func(), err error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		return nil, nil, err
	}
	spare := make(chan *concurrency.Session, sparesKept)
	session := func() (*concurrency.Session, error) {
		select {
		case s := <-spare:
			return s, nil
		default:
			return concurrency.NewSession(client, concurrency.WithTTL(max(1, int(ttl.Seconds()))))
		}
	}
	giveBack := func(s *concurrency.Session) {
		select {
		case spare <- s:
		default:
			_ = s.Close() // else its lease runs out
		}
	}
	lock := func(ctx context.Context, name string) (context.Context, int64, func(), error) {
		s, err := session()
		if err != nil {
			return nil, 0, nil, err
		}
		m := concurrency.NewMutex(s, name)
		if err := m.Lock(ctx); err != nil {
			_ = s.Close() // it may have lost its lease
			return nil, 0, nil, err
		}
		return ctx, m.Header().Revision, func() {
			if m.Unlock(context.WithoutCancel(ctx)) != nil {
				_ = s.Close() // which frees the lock
				return
			}
			giveBack(s)
		}, nil
	}
	return lock, func() { _ = client.Close() }, nil
}
