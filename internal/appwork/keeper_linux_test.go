package appwork_test

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/appwork"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// site is a sidecar with a connection to its app, and the keeper of its supervisor.
type site struct {
	*appwork.Keeper
	running atomic.Int64
	near    net.Conn // the sidecar's end, as it uses it
	bare    net.Conn // below near
	far     net.Conn // the app's end
}

func newSite(t *testing.T, network string, grace time.Duration) *site {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "app")
	}
	app := kit.Must(net.Listen(network, addr))
	t.Cleanup(func() { app.Close() })
	s := &site{Keeper: kit.Must(appwork.NewKeeper(grace))}
	dial := appwork.NewRecord(&s.running, s.Sidecar).Sharing(func(ctx context.Context) (conn net.Conn, err error) {
		s.bare, err = new(net.Dialer).DialContext(ctx, network, app.Addr().String())
		return s.bare, err
	})
	s.near = kit.Must(dial(t.Context()))
	s.far = kit.Must(app.Accept())
	if err := s.far.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.die(); s.far.Close() })
	return s
}

// die closes what the kernel closes of a process that is killed.
func (s *site) die() {
	s.bare.Close()
	s.Sidecar.Close()
}

func (s *site) hasEnded() bool {
	select {
	case <-s.Ended(1):
		return true
	default:
		return false
	}
}

// TestKeeperAwaitsTheApp: when the sidecar has died the app learns it, and what it still sends does not
// end the connection. Only the app's own end does.
func TestKeeperAwaitsTheApp(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			s := newSite(t, network, time.Minute)
			if _, err := io.WriteString(s.near, "request"); err != nil {
				t.Fatal(err)
			}
			s.die()
			if got, err := io.ReadAll(s.far); string(got) != "request" || err != nil {
				t.Errorf("the app has read %q, %v", got, err)
			}
			for range 100 { // more than any buffer holds
				if _, err := s.far.Write(make([]byte, 64<<10)); err != nil {
					t.Fatalf("the app cannot answer: %v", err)
				}
			}
			if s.hasEnded() {
				t.Error("the app counts as ended while it works")
			}
			s.far.Close()
			<-s.Ended(1)
		})
	}
}

// TestKeeperLeavesLiveConnectionsAlone: what comes on a connection is the sidecar's alone while it lives,
// and a connection that the sidecar closes is closed.
func TestKeeperLeavesLiveConnectionsAlone(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			s := newSite(t, network, time.Minute)
			for range 100 {
				if _, err := io.WriteString(s.far, "answer"); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(s.near, make([]byte, len("answer"))); err != nil {
					t.Fatal(err)
				}
			}
			s.near.Close()
			if _, err := io.ReadAll(s.far); err != nil {
				t.Errorf("the app finds the connection broken: %v", err)
			}
			kit.Eventually(t, "the supervisor's duplicate is closed", func() bool {
				_, err := s.far.Write([]byte("x"))
				return err != nil
			})
			if s.hasEnded() {
				t.Error("the sidecar counts as dead")
			}
			s.die()
			<-s.Ended(1)
		})
	}
}

// TestKeeperGivesUp: an app that does not end is kept no longer than for the grace, and has not ended.
func TestKeeperGivesUp(t *testing.T) {
	s := newSite(t, "tcp", 20*time.Millisecond)
	s.die()
	kit.Eventually(t, "the connection is closed", func() bool {
		_, err := s.far.Write([]byte("x"))
		return err != nil
	})
	if s.hasEnded() {
		t.Error("the app counts as ended")
	}
}

// TestLostConnection: the count shows that a connection did not reach the supervisor, or that the app may
// work on for an execution that has ended.
func TestLostConnection(t *testing.T) {
	s := newSite(t, "tcp", time.Minute)
	r := appwork.NewRecord(&s.running, s.Sidecar)
	pipe := r.Sharing(func(context.Context) (net.Conn, error) { // it is no socket, so it cannot be shared
		conn, _ := net.Pipe()
		return conn, nil
	})
	r.Begin()
	if n := s.running.Load(); n != 1 {
		t.Errorf("the count is %d, want 1", n)
	}
	kit.Must(pipe(t.Context())).Close()
	kit.Must(pipe(t.Context())).Close()
	r.End()
	if n := s.running.Load(); n != appwork.Unproved {
		t.Errorf("the count of two losses is %d, want %d: it would wrap one day", n, appwork.Unproved)
	}
	s.far.Close()
	s.die()
	<-s.Ended(0)
	if s.Ended(s.running.Load()) != nil {
		t.Errorf("with a count of %d the connections prove that the app has ended", s.running.Load())
	}
}
