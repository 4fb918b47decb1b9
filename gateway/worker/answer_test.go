package worker_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/sidecar"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// answerSite is a worker whose requests h answers, by itself or behind a sidecar,
// all in memory: a client that does not read takes nothing.
type answerSite struct {
	*site.Worker
	front site.Listener
	links *link.Client
}

func startAnswers(t *testing.T, h http.Handler, behind bool, change ...func(*worker.Config)) *answerSite {
	kit.EmptyPools(t)
	c := site.New(t, 16)
	s := &answerSite{Worker: c.Start(append(change, direct)...), front: site.NewListener()}
	app := site.NewListener()
	apps := &http.Server{Handler: h}
	go apps.Serve(app)
	served := s.Handler(h)
	if behind {
		served = kit.Must(sidecar.Over(s.Worker.Worker, app.Dial))
	}
	server := s.NewServer(served)
	go server.Serve(s.front)
	s.links = &link.Client{Addr: "memory", Dial: s.front.Dial, Config: link.Config{Cluster: "keyway", Digest: c.Settings.Digest()}}
	t.Cleanup(func() {
		s.links.Close()
		s.Worker.Close()
		server.Close()
		apps.Close()
		time.Sleep(time.Minute) // of the bubble: whatever is left ends
	})
	s.AwaitServing(t, 16)
	return s
}

// answered is an answer that the client has not read.
type answered struct {
	body    io.Reader
	trailer func() string
	leave   func()
}

// answerWays are the ways of a request to the app and of its answer back.
var answerWays = map[string]struct {
	sidecar bool
	ask     func(t *testing.T, s *answerSite) answered
}{
	"handler, link":       {false, askLink(false)},
	"sidecar, link":       {true, askLink(false)},
	"sidecar, link proxy": {true, askLink(true)},
	"handler, HTTP":       {false, askHTTP},
	"sidecar, HTTP":       {true, askHTTP},
}

func askLink(chunked bool) func(t *testing.T, s *answerSite) answered {
	return func(t *testing.T, s *answerSite) answered {
		r := &link.Request{Method: "POST", Target: "/", Host: "x", Key: "k"}
		if chunked {
			r.Body, r.ContentLength = strings.NewReader("x"), -1
		}
		res := kit.Must(s.links.Do(t.Context(), r))
		return answered{res.Body, func() string { return res.Body.Trailer().Header().Get("Sum") }, func() { res.Body.Close() }}
	}
}

func askHTTP(t *testing.T, s *answerSite) answered {
	c := kit.Must(s.front.Dial(t.Context()))
	t.Cleanup(func() { c.Close() })
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n"+gateway.HeaderKey+": k\r\n\r\n")
	var res *http.Response
	return answered{
		body: readerFunc(func(p []byte) (int, error) {
			if res == nil {
				var err error
				if res, err = http.ReadResponse(bufio.NewReader(c), nil); err != nil {
					return 0, fmt.Errorf("no answer: %w", err)
				}
			}
			return res.Body.Read(p)
		}),
		trailer: func() string { return res.Trailer.Get("Sum") },
		leave:   func() { c.Close() },
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// largeAnswer is more than any connection keeps on its way.
var largeAnswer = strings.Repeat("0123456789abcdef", 1<<16)

// answerLarge first lets the reverse proxy of a sidecar begin the answer: its first flush waits for a
// mutex which a blocked write has, and no bubble's time passes meanwhile.
func answerLarge(rw http.ResponseWriter, _ *http.Request) {
	rw.Header().Set("Trailer", "Sum")
	http.NewResponseController(rw).Flush()
	time.Sleep(time.Millisecond)
	for part := largeAnswer; part != ""; part = part[1<<15:] {
		if _, err := io.WriteString(rw, part[:1<<15]); err != nil {
			return
		}
	}
	rw.Header().Set("Sum", "42")
}

// inTurn reports whether another execution of the key begins within a second.
func (s *answerSite) inTurn(t *testing.T) bool {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return s.Do(ctx, "k", func(gateway.Execution) error { return nil }) == nil
}

// A client that reads slowly, or not at all, does not hold the key: that is free
// when the app has answered. Its answer is whole nevertheless.
func TestTrapSlowReaderHoldsNoKey(t *testing.T) {
	for name, way := range answerWays {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startAnswers(t, http.HandlerFunc(answerLarge), way.sidecar)
				a := way.ask(t, s)
				synctest.Wait()
				if !s.inTurn(t) {
					t.Fatal("the key is held while nobody reads the answer")
				}
				time.Sleep(time.Hour)
				got, err := io.ReadAll(a.body)
				if err != nil || string(got) != largeAnswer || a.trailer() != "42" {
					t.Errorf("read %d bytes, want %d; trailer %q; %v", len(got), len(largeAnswer), a.trailer(), err)
				}
				synctest.Wait()
				if n := s.AnswersKept(); n != 0 {
					t.Errorf("%d bytes are kept when all is read", n)
				}
			})
		})
	}
}

// An answer that breaks off reaches the client as broken, however much of it was
// kept, and one that nobody reads any more is dropped while the app goes on.
func TestKeptAnswersThatBreakOff(t *testing.T) {
	for name, way := range answerWays {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startAnswers(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					answerLarge(rw, r)
					panic(http.ErrAbortHandler)
				}), way.sidecar)
				a := way.ask(t, s)
				synctest.Wait()
				if !s.inTurn(t) {
					t.Error("the key is held while nobody reads the answer")
				}
				if got, err := io.ReadAll(a.body); err == nil {
					t.Errorf("an answer that broke off looks whole: %d bytes", len(got))
				}
			})
			synctest.Test(t, func(t *testing.T) {
				goOn, wrote := make(chan struct{}), false
				s := startAnswers(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					answerLarge(rw, r)
					<-goOn
					_, err := io.WriteString(rw, largeAnswer)
					wrote = err == nil
				}), way.sidecar)
				a := way.ask(t, s)
				synctest.Wait()
				a.leave()
				synctest.Wait()
				if n := s.AnswersKept(); n != 0 {
					t.Errorf("%d bytes are kept for a client that has left", n)
				}
				if way.sidecar && s.inTurn(t) {
					t.Error("the key is free while the app answers")
				}
				close(goOn)
				if !s.inTurn(t) || way.sidecar && !wrote {
					t.Errorf("the key is held when the app has answered, all of it: %v", wrote)
				}
			})
		})
	}
}

// Where there is no room for an answer the app waits for its client, and no longer
// than its execution may take.
func TestAnswersAreBounded(t *testing.T) {
	bounds := func(cfg *worker.Config) { cfg.AnswerMax, cfg.Timeout = 1<<17, 10*time.Second }
	for name, way := range answerWays {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := startAnswers(t, http.HandlerFunc(answerLarge), way.sidecar, bounds)
				a := way.ask(t, s)
				synctest.Wait()
				if s.inTurn(t) {
					t.Error("the key is free while there is no room for the answer")
				}
				if n := s.AnswersKept(); n > 2<<17 {
					t.Errorf("%d bytes are kept", n)
				}
				got, err := io.ReadAll(a.body)
				if err != nil || string(got) != largeAnswer || a.trailer() != "42" {
					t.Errorf("read %d bytes, want %d; trailer %q; %v", len(got), len(largeAnswer), a.trailer(), err)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				s := startAnswers(t, http.HandlerFunc(answerLarge), way.sidecar, bounds)
				a := way.ask(t, s)
				time.Sleep(12 * time.Second)
				if !s.inTurn(t) {
					t.Error("the key is held for longer than the timeout")
				}
				if got, err := io.ReadAll(a.body); err == nil {
					t.Errorf("an answer that was given up looks whole: %d bytes", len(got))
				}
			})
		})
	}
}

// A client that reads none of many answers fills its share of the room for them, not
// that of others: their keys are free when the app has answered.
func TestTrapAnswersOfOneClient(t *testing.T) {
	const memory, files = 1 << 18, 8 << 20
	synctest.Test(t, func(t *testing.T) {
		s := startAnswers(t, http.HandlerFunc(answerLarge), false, func(cfg *worker.Config) {
			cfg.AnswerMemory, cfg.AnswerFiles = memory, files
		})
		ask := func(client uint64, key string) io.ReadCloser {
			return kit.Must(s.links.Do(t.Context(), &link.Request{Method: "GET", Target: "/", Host: "x", Key: key, Client: client})).Body
		}
		var unread []io.ReadCloser
		for i := range 12 { // a MiB each
			unread = append(unread, ask(1, fmt.Sprint(i)))
		}
		time.Sleep(time.Second)
		if n := s.AnswersKept(); n > (memory+files)/4 {
			t.Errorf("%d bytes are kept for one client, want a quarter of %d at most", n, memory+files)
		}
		other := ask(2, "k")
		synctest.Wait()
		if !s.inTurn(t) {
			t.Error("another client's key is held for want of room")
		}
		for _, body := range append(unread, other) {
			if got, err := io.ReadAll(body); err != nil || string(got) != largeAnswer {
				t.Errorf("read %d bytes, %v", len(got), err)
			}
		}
		synctest.Wait()
		if n := s.AnswersKept(); n != 0 {
			t.Errorf("%d bytes are kept when all is read", n)
		}
	})
}

// What a handler flushes arrives at once, and interim answers do.
func TestFlushedAnswersArriveAtOnce(t *testing.T) {
	for name, way := range answerWays {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next := make(chan string)
				s := startAnswers(t, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
					rw.Header().Set("Content-Type", "text/event-stream")
					http.NewResponseController(rw).Flush()
					for event := range next {
						io.WriteString(rw, event)
						http.NewResponseController(rw).Flush()
					}
				}), way.sidecar)
				a := way.ask(t, s)
				for i := range 5 {
					event := strings.Repeat(fmt.Sprint(i), 1<<(4*i))
					next <- event
					if got := make([]byte, len(event)); kit.Must(io.ReadFull(a.body, got)) != len(event) || string(got) != event {
						t.Fatalf("event %d does not arrive", i)
					}
				}
				close(next)
				if rest, err := io.ReadAll(a.body); len(rest) > 0 || err != nil {
					t.Errorf("at the end %q, %v", rest, err)
				}
			})
		})
	}
}

// Of an answer that never ends, such as a stream of events, nothing is kept that
// its client has read.
func TestEndlessAnswersLeaveNothing(t *testing.T) {
	for name, way := range answerWays {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next := make(chan int)
				s := startAnswers(t, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
					rw.Header().Set("Content-Type", "text/event-stream")
					for n := range next {
						rw.Write(make([]byte, n))
						http.NewResponseController(rw).Flush()
					}
				}), way.sidecar)
				go func() { next <- 1 }()
				a := way.ask(t, s)
				go io.Copy(io.Discard, a.body)
				for range 100 {
					next <- 10_000
					synctest.Wait()
				}
				if n := s.AnswersKept(); n > 100_000 {
					t.Errorf("%d bytes are kept of what the client has read", n)
				}
				close(next)
			})
		})
	}
}
