package live_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/live"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// source counts what is gathered of it.
type source struct {
	gathered, now, most atomic.Int64
	deaf                chan struct{} // gathering waits until it is closed, whatever its context; nil: it does not
}

func (s *source) gather(context.Context) []byte {
	s.most.Store(max(s.most.Load(), s.now.Add(1)))
	defer s.now.Add(-1)
	if s.deaf != nil {
		<-s.deaf
	}
	return fmt.Append(nil, s.gathered.Add(1))
}

// screen is a viewer that reads what it is sent, or stops to.
type screen struct {
	mu     sync.Mutex
	text   strings.Builder
	header http.Header
	status int
	read   chan struct{} // nil: it reads; otherwise a write waits until this is closed
	until  time.Time     // of writes
}

func (s *screen) Header() http.Header { return s.header }
func (s *screen) WriteHeader(c int)   { s.status = c }
func (s *screen) FlushError() error   { return nil }

func (s *screen) SetWriteDeadline(t time.Time) error { s.until = t; return nil }

func (s *screen) Write(b []byte) (int, error) {
	if s.read != nil {
		select {
		case <-s.read:
		case <-time.After(time.Until(s.until)):
			return 0, context.DeadlineExceeded
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// watch has somebody watch until the function that it returns is called, which waits for
// the end.
func watch(t *testing.T, stream *live.Stream, s *screen) (leave func()) {
	s.header = make(http.Header)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stream.ServeHTTP(s, httptest.NewRequestWithContext(ctx, "GET", "/events", nil))
	}()
	return func() { cancel(); <-ended }
}

// One viewer gathers once a second for all who watch, and only while somebody does.
func TestGathersOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var src source
		stream := live.New(src.gather)
		time.Sleep(10 * time.Second)
		if n := src.gathered.Load(); n != 0 {
			t.Fatalf("gathered for nobody %d times", n)
		}
		var first, second screen
		leaveFirst := watch(t, stream, &first)
		time.Sleep(3*time.Second + time.Millisecond)
		leaveSecond := watch(t, stream, &second)
		synctest.Wait()
		if got := second.String(); got != "retry: 2000\n\ndata: 4\n\n" {
			t.Errorf("who comes later gets %q, want the latest at once", got)
		}
		time.Sleep(2 * time.Second)
		leaveFirst()
		time.Sleep(time.Second)
		leaveSecond()
		if got, want := first.String(), "retry: 2000\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\ndata: 5\n\ndata: 6\n\n"; got != want {
			t.Errorf("the first one got %q, want %q", got, want)
		}
		if first.header.Get("Content-Type") != "text/event-stream" || first.header.Get("Cache-Control") != "no-store" {
			t.Errorf("header %v", first.header)
		}
		n := src.gathered.Load()
		time.Sleep(time.Minute)
		if src.gathered.Load() != n {
			t.Errorf("%d times gathered after all have left", src.gathered.Load()-n)
		}
		var third screen
		watch(t, stream, &third)()
		leave := watch(t, stream, &third)
		time.Sleep(time.Second)
		leave()
		if src.gathered.Load() == n || src.most.Load() != 1 {
			t.Errorf("%d times gathered for the next one, %d at once", src.gathered.Load()-n, src.most.Load())
		}
	})
}

// Who comes while another one gathers waits for the end of that, and gathers anew if the other one
// has left: no two gather at once.
func TestTrapRunsFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := source{deaf: make(chan struct{})}
		stream := live.New(src.gather)
		var first, second screen
		leaveFirst := watch(t, stream, &first)
		synctest.Wait() // it gathers, and does not hear that it is to end
		left := make(chan struct{})
		go func() { leaveFirst(); close(left) }()
		synctest.Wait()
		leaveSecond := watch(t, stream, &second)
		synctest.Wait()
		if n := src.most.Load(); n != 1 {
			t.Errorf("%d gather at once", n)
		}
		close(src.deaf)
		<-left
		synctest.Wait()
		if got := second.String(); got != "retry: 2000\n\ndata: 2\n\n" {
			t.Errorf("the second one got %q", got)
		}
		leaveSecond()
	})
}

// There are at most so many viewers; the next one is told to come back.
func TestTrapViewersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var src source
		stream := live.New(src.gather)
		var leave []func()
		for range live.MaxViewers {
			leave = append(leave, watch(t, stream, new(screen)))
		}
		synctest.Wait()
		rec := httptest.NewRecorder()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stream.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, "GET", "/events", nil))
		if rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") == "" {
			t.Errorf("one more gets %d, %v", rec.Code, rec.Header())
		}
		leave[0]()
		var s screen
		leave[0] = watch(t, stream, &s)
		synctest.Wait()
		if s.status != 0 || !strings.Contains(s.String(), "data: ") {
			t.Errorf("when one has left, another gets %d %q", s.status, s.String())
		}
		for _, l := range leave {
			l()
		}
	})
}

// A viewer that does not read is dropped, and nobody waits for it.
func TestTrapSlowViewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var src source
		stream := live.New(src.gather)
		slow, quick := screen{read: make(chan struct{}), header: make(http.Header)}, screen{}
		leave := watch(t, stream, &quick)
		dropped := make(chan time.Duration)
		began := time.Now()
		go func() {
			stream.ServeHTTP(&slow, httptest.NewRequestWithContext(t.Context(), "GET", "/events", nil))
			dropped <- time.Since(began)
		}()
		if d := <-dropped; d > live.WriteTimeout {
			t.Errorf("who reads nothing is dropped after %v", d)
		}
		time.Sleep(time.Minute)
		if n := strings.Count(quick.String(), "data: "); n < 60 {
			t.Errorf("the other one has %d events", n)
		}
		// One that takes a write slowly gets nothing of the time before.
		late := screen{read: make(chan struct{}), header: make(http.Header)}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		go func() {
			stream.ServeHTTP(lasting{&late}, httptest.NewRequestWithContext(ctx, "GET", "/events", nil))
			dropped <- 0
		}()
		time.Sleep(10 * time.Second)
		close(late.read)
		<-dropped
		if n := strings.Count(late.String(), "data: "); n > 21 {
			t.Errorf("who was behind for 10 s of 30 got %d events", n)
		}
		leave()
	})
}

// lasting is a screen whose writes have no deadline.
type lasting struct{ *screen }

func (l lasting) SetWriteDeadline(time.Time) error {
	l.until = time.Now().Add(time.Hour)
	return http.ErrNotSupported
}

// Over a real connection viewers get events as they come, and closing the server ends
// everything.
func TestEndsWithTheServer(t *testing.T) {
	kit.NoLeaks(t)
	var src source
	stream := live.New(src.gather)
	ended := make(chan struct{}, 2)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stream.ServeHTTP(w, r)
		ended <- struct{}{}
	}))
	server.Start()
	defer server.Close()
	for range 2 {
		conn := kit.Must(new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String()))
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		for lines, n := bufio.NewScanner(conn), 0; n < 2; {
			if !lines.Scan() {
				t.Fatal("the stream has ended: ", lines.Err())
			}
			if strings.HasPrefix(lines.Text(), "data: ") {
				n++
			}
		}
	}
	server.Config.Close()
	<-ended
	<-ended
}
