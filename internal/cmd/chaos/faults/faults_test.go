package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
	"github.com/keyway-go/keyway/internal/test/redistest"
)

func TestOneRow(t *testing.T) {
	redistest.Require(t)
	t.Chdir("..")
	var out strings.Builder
	if err := run(t.Context(), []string{"-session-ttl", "2s", "deploy-worker", "redis"}, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^\| one worker deployed \| Redis \| \d+ of \d{3,} \| \d+\.\d\d s \| \d+ \| 0 \| 0 \|$`).MatchString(out.String()) {
		t.Errorf("the table is\n%s", &out)
	}
}

func TestArguments(t *testing.T) {
	for _, args := range [][]string{{"kil"}, {"-session-ttl", "1ms"}, {"-times", "0"}, {"-no-flag"}} {
		if err := run(t.Context(), args, t.Output(), t.Output()); cli.ExitCode(err) != 2 {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// A fault tried several times is told with the median and the 99th percentile of its stalls.
func TestSeveralTimes(t *testing.T) {
	var all cell
	for i := range 50 {
		all.add(cell{requests: 10, failed: 1, longest: []time.Duration{time.Duration(50-i) * 10 * time.Millisecond}})
	}
	if text, err := all.verdict(); err != nil || text != "50 of 500 | p50 0.25 s, p99 0.50 s of 50 | 0 | 0 | 0 |" {
		t.Errorf("%s, %v", text, err)
	}
}

// A front that does not hold keys, or whose tokens do not rise, is found out.
func TestJudge(t *testing.T) {
	for name, tt := range map[string]struct {
		clients, step        int
		doubles, regressions bool
	}{
		"one after the other": {1, 1, false, false},
		"at once":             {3, 1, true, false},
		"tokens that fall":    {1, -1, false, true},
	} {
		o := trial.NewObserver()
		token := make(chan int, 1)
		token <- 1000
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next := <-token + tt.step
			token <- next
			r.Header.Set("Keyway-Key", r.Header.Get(trial.HeaderKey))
			r.Header.Set("Keyway-Partition", "0")
			r.Header.Set("Keyway-Token", strconv.Itoa(next))
			o.App("worker").ServeHTTP(w, r)
		}))
		l := &trial.Load{Dial: trial.To(front.Listener.Addr().String()), Now: o.Now, Clients: tt.clients, Jobs: func(int) func() (trial.Job, time.Duration) {
			return func() (trial.Job, time.Duration) {
				return trial.Job{Key: "k", Work: 5 * time.Millisecond, Body: 8}, 0
			}
		}}
		l.Run(ctx)
		front.Close()
		c := judge(l.Requests(), o.Record(), nil)
		_, err := c.verdict()
		if c.requests == 0 || c.doubles > 0 != tt.doubles || !tt.doubles && c.regressions > 0 != tt.regressions || (err != nil) != (tt.doubles || tt.regressions) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

// A key stalls from when it is asked for to when anybody is answered, or for as long as requests for it fail.
func TestStall(t *testing.T) {
	const ms = time.Millisecond
	ok := func(send, recv time.Duration) *trial.Request {
		return &trial.Request{Send: send, Recv: recv, Status: 200}
	}
	fails := func(send, recv time.Duration) *trial.Request {
		return &trial.Request{Send: send, Recv: recv, Status: 503}
	}
	for name, tt := range map[string]struct {
		requests []*trial.Request
		want     time.Duration
	}{
		"nobody asks for long":                {[]*trial.Request{ok(0, 2*ms), ok(900*ms, 905*ms)}, 5 * ms},
		"one waits":                           {[]*trial.Request{ok(0, 2*ms), ok(3*ms, 503*ms), ok(504*ms, 505*ms)}, 500 * ms},
		"several fail":                        {[]*trial.Request{ok(0, 2*ms), fails(10*ms, 11*ms), fails(200*ms, 210*ms), ok(300*ms, 310*ms)}, 300 * ms},
		"others are answered while one waits": {[]*trial.Request{ok(0, 900*ms), ok(0, 300*ms), ok(310*ms, 700*ms)}, 400 * ms},
		"until the end":                       {[]*trial.Request{ok(0, 2*ms), fails(10*ms, 11*ms), fails(200*ms, 410*ms)}, 400 * ms},
		"its app works":                       {[]*trial.Request{{Send: 0, Recv: 205 * ms, Work: 200 * ms, Status: 200}}, 5 * ms},
	} {
		if got := stall(tt.requests); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
