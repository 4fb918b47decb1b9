package trial

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func exec(o *Observer, number, token int64, worker string) (*Execution, int64, bool) {
	x := &Execution{Request: number, Key: "k", Worker: worker, Token: token}
	read, ok := o.begin(x)
	return x, read, ok
}

func TestObserverFindings(t *testing.T) {
	o := NewObserver()
	a, readA, _ := exec(o, 1, 10, "w1")
	b, readB, _ := exec(o, 2, 11, "w2")
	o.write(b, readB)
	o.end(b, Written)
	o.write(a, readA)
	o.end(a, Written)
	if _, _, ok := exec(o, 3, 11, "w1"); ok {
		t.Error("a token was accepted twice")
	}
	c, _, _ := exec(o, 2, 12, "w1")
	o.end(c, aborted)
	total, running, found := o.Counts()
	if total != 4 || running != 0 {
		t.Errorf("%d executions, %d of them running", total, running)
	}
	if want := [Kinds]int{Overlap: 1, Regression: 1, LostUpdate: 1, repeated: 1}; found != want {
		t.Errorf("found %v, want %v", found, want)
	}
}

func TestExecutionEndsWithItsConnection(t *testing.T) {
	o := NewObserver()
	defer o.Close()
	url, err := o.Listen("w1#1", "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{HeaderKey: "a/b", headerRequest: "7", headerWork: "1h", "Keyway-Key": "a%2Fb", "Keyway-Token": "9", "Keyway-Partition": "3"} {
		req.Header.Set(name, value)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
		}
	}()
	awaitRunning(t, o, 1)
	cancel()
	<-sent
	awaitRunning(t, o, 0)
	if x := o.Record().Requests[7]; x == nil || x.Outcome != aborted || x.Worker != "w1#1" || x.Partition != 3 {
		t.Errorf("recorded %+v", x)
	}
}

func awaitRunning(t *testing.T, o *Observer, want int) {
	t.Helper()
	for ctx, cancel := context.WithTimeout(t.Context(), time.Minute); ; {
		total, running, _ := o.Counts()
		if total > 0 && running == want {
			cancel()
			return
		}
		if !Sleep(ctx, time.Millisecond) {
			t.Fatalf("%d run, want %d", running, want)
		}
	}
}

func TestForeignHeadersAreFound(t *testing.T) {
	for _, broken := range []string{"Keyway-Key", "Keyway-Token", "Keyway-Partition", headerRequest, headerWork} {
		o := NewObserver()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for _, name := range []string{"Keyway-Key", "Keyway-Token", "Keyway-Partition", headerRequest, HeaderKey} {
			r.Header.Set(name, "1")
		}
		r.Header.Set(headerWork, "0s")
		r.Header.Set(broken, "x")
		w := httptest.NewRecorder()
		o.App("w1").ServeHTTP(w, r)
		if _, _, found := o.Counts(); found[MixedUp] != 1 || w.Code != http.StatusBadRequest {
			t.Errorf("%s: x was answered %d", broken, w.Code)
		}
	}
}

func TestMixFollowsItsSeed(t *testing.T) {
	jobs := func(seed uint64) string {
		rng := rand.New(rand.NewPCG(seed, 0))
		m, hot, all := NewMix(rng, 10*time.Second), 0, ""
		for range 1000 {
			j := m.Next(rng)
			if strings.HasPrefix(j.Key, "hot-") {
				hot++
			}
			if j.Work > max(m.Long, m.SlowWork) || j.Work < 0 {
				t.Errorf("work of %v", j.Work)
			}
			all += fmt.Sprint(j)
		}
		if hot < 50 || hot > 500 {
			t.Errorf("seed %d: %d of 1000 requests are for hot keys", seed, hot)
		}
		return all
	}
	if first, again := jobs(1), jobs(1); first != again || first == jobs(2) {
		t.Error("the mix is not a function of the seed")
	}
}

func TestAnotherClientStepsInForOneThatWaits(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answer := make(chan struct{})
	var others atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(headerRequest) == "1" {
			<-answer
		} else if others.Add(1) == 10 {
			close(answer)
			cancel()
		}
		fmt.Fprint(w, "1 1")
	}))
	defer server.Close()
	l := &Load{Dial: To(strings.TrimPrefix(server.URL, "http://")), Now: NewObserver().Now, Clients: 1,
		Jobs: func(int) func() (Job, time.Duration) { return func() (Job, time.Duration) { return Job{Key: "k"}, 0 } }}
	l.Run(ctx)
	if all := l.Requests(); len(all) < 11 || !all[0].OK() {
		t.Errorf("%d requests, the first of which was answered %d", len(all), all[0].Status)
	}
}
