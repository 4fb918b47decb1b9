package lockservice_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// slowStore is a store whose answers to writes of locks take a while.
type slowStore struct {
	worker.Store
	slow time.Duration
}

func (s *slowStore) WriteLocks(ctx context.Context, gen, incarnation string, writes []records.LockWrite) ([]records.WriteNumber, error) {
	numbers, err := s.Store.WriteLocks(ctx, gen, incarnation, writes)
	time.Sleep(s.slow)
	return numbers, err
}

// Who unlocks a long lock while its partition moves is told that it was his, though the store
// has it removed by the owner before, and the next one does not know it.
func TestTrapUnlockOfALongLockThatMoves(t *testing.T) {
	for name, lock := range map[string]func(s *lockSite, key string) (unlock func()){
		"client": func(s *lockSite, key string) func() {
			l := kit.Must(s.NewClient().Lock(s.T.Context(), key, locking.TTL(10*kit.TTL)))
			return func() {
				if err := l.Unlock(s.T.Context()); err != nil {
					s.T.Error(err)
				}
			}
		},
		"lock service": func(s *lockSite, key string) func() {
			s.must(200, "POST", "/v1/locks/"+key+"?ttl=100s", "Idempotency-Key", "x")
			return func() { s.must(204, "DELETE", "/v1/locks/"+key, "Idempotency-Key", "x") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLockSite(t)
				store := &slowStore{}
				a := s.StartServing(func(cfg *worker.Config) {
					store.Store = cfg.Store
					cfg.Store = store
				})
				s.StartServing()
				unlock := lock(s, s.KeyOf(a, "k"))
				store.slow = 2 * time.Second
				unlocked := make(chan struct{})
				go func() {
					defer close(unlocked)
					unlock()
				}()
				time.Sleep(time.Millisecond)
				if err := a.LeaveRing(t.Context()); err != nil {
					t.Error(err)
				}
				<-unlocked
			})
		})
	}
}

// Who waits for a lock at a worker that has stopped, and is not gone, has it from the next owner.
func TestTrapWaitAtAWorkerThatHasStopped(t *testing.T) {
	for name, lock := range map[string]func(s *lockSite, key string){
		"client": func(s *lockSite, key string) {
			kit.Must(s.NewClient().Lock(s.T.Context(), key))
		},
		"lock service": func(s *lockSite, key string) {
			s.must(200, "POST", "/v1/locks/"+key+"?wait=60s")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLockSite(t)
				store := &site.CutStore{}
				a := s.StartServing(func(cfg *worker.Config) {
					store.Store = cfg.Store
					cfg.Store = store
				})
				key := s.KeyOf(a, "k")
				release := make(chan struct{})
				go a.Do(t.Context(), key, func(gateway.Execution) error {
					<-release
					return nil
				})
				synctest.Wait()
				locked, stopped := make(chan struct{}), time.Now()
				go func() {
					defer close(locked)
					lock(s, key)
				}()
				synctest.Wait()
				s.Mute(a)
				store.Set(true)
				a.Member.Vanish()
				b := s.StartServing()
				b.AwaitServing(t, 16)
				<-locked
				if took := time.Since(stopped); took > 5*kit.TTL/2 {
					t.Errorf("the lock was got %v after its owner has stopped, whose session was over after %v, and what it ran as long after that", took, kit.TTL)
				}
				close(release)
			})
		})
	}
}
