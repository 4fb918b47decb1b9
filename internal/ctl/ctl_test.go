package ctl_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/lockservice"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/ctl"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/suspects"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// run runs ctl against an admin address, and returns what it shows.
func run(t *testing.T, admin string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	at := append([]string{"--admin", strings.TrimPrefix(admin, "http://")}, args...)
	err := ctl.Run(t.Context(), "router", "127.0.0.1:1", at, &out)
	return out.String(), err
}

// shows fails the test unless a command succeeds and shows what matches.
func shows(t *testing.T, admin string, pattern string, args ...string) {
	t.Helper()
	out, err := run(t, admin, args...)
	if err != nil || !regexp.MustCompile(pattern).MatchString(out) {
		t.Errorf("%q: %v\n%s\nwant what matches %s", args, err, out, pattern)
	}
}

func TestCommands(t *testing.T) {
	s := site.NewOperated(t, "")
	w1 := s.Start()
	w2 := s.Start()
	together(t, w1, w2)
	for _, admin := range []string{s.Admin, w1.Admin} {
		shows(t, admin, `(?m)^NAME +ROLE +STATE .*\n(.*\n)*w1 +worker +active +w1:80`, "members")
		shows(t, admin, `(?m)^WORKER .*\nw1 +\d+ +[\d.]+ % .*\nw2 .*\n\n16 partitions, ring [0-9a-f]{16}$`, "ring")
		shows(t, admin, `(?m)^NAME .*\nw1 +active +\d+ +\d+ +0 +0 +\S+s +ok `, "workers")
		shows(t, admin, `(?m)taken +\d+ +w1 +this worker joined the ring`, "moves")
		shows(t, admin, `^WORKER +A SECOND .*KEY`, "hot")
		shows(t, admin, `(?s)^PARTITION +WORKER +A SECOND.*\nw1: load [\d.]+, .* for its weight 1\nw2: load `, "loads")
		shows(t, admin, `^WORKER +HELD BY .*KEY`, "locks")
		if out, err := run(t, admin, "unlock", "k"); err == nil || !strings.Contains(err.Error(), `the key is not locked: "k"`) {
			t.Errorf("unlock of a key that is not locked: %v %s", err, out)
		}
		shows(t, admin, `(?s)key +"k".*The key is free: a request for it runs at once at worker w[12]\.`, "explain", "k")
		shows(t, admin, `^ok\n$`, "health")
		shows(t, admin, `^ready\n$`, "health", "--ready")
		for _, command := range []string{"members", "ring", "workers", "moves", "hot", "loads", "locks", "quarantine", "explain k", "health"} {
			out, err := run(t, admin, append(strings.Fields(command), "--json")...)
			if err != nil || !json.Valid([]byte(out)) {
				t.Errorf("%s --json: %v %s", command, err, out)
			}
		}
	}
	shows(t, s.Admin, `(?s)source +path:/orders/\{key\}, by the route "orders" \(auto\).*key +"42"`, "explain", "--request", "POST http://shop.example/orders/42")
	shows(t, s.Admin, `(?s)source +header:X-Key, by the route "rest".*key +"7"`, "explain", "--request", "GET /", "--header", "X-Key: 7")

	lock := kit.Must(w2.Client.Lock(t.Context(), s.KeyOf(w1)))
	row := fmt.Sprintf(`^WORKER .*KEY\nw1 .* %d +"%s"\n`, lock.Token(), s.KeyOf(w1))
	shows(t, s.Admin, row+`$`, "locks")
	shows(t, s.Admin, row+`\nThese locks are released`, "unlock", s.KeyOf(w1))
	lock.Unlock(t.Context())

	for _, admin := range []string{s.Admin, w1.Admin} {
		if out, err := run(t, admin, "release", "deadly"); err == nil || !strings.Contains(err.Error(), `the key is not quarantined: "deadly"`) {
			t.Errorf("release of a key that is not quarantined: %v %s", err, out)
		}
		book := suspects.Book{Cases: []suspects.Case{{Key: "deadly", Since: time.Now().Unix(), Workers: [2]string{"gone", "lost"}}}}
		kit.Must(s.Store.Replace(t.Context(), records.Suspects, "", book.String()))
		kit.Eventually(t, "all know of it", func() bool {
			return len(w1.Status().Quarantined) == 1 && len(w2.Status().Quarantined) == 1
		})
		shows(t, admin, `^WORKERS THAT DIED +LEFT +KEY\ngone, lost +(10m0|9m\d+)s +"deadly"\n$`, "quarantine")
		shows(t, admin, `(?s)The key is quarantined for another (10m0|9m\d+)s: workers gone and lost died`, "explain", "deadly")
		shows(t, admin, `^key "deadly": released\n$`, "release", "deadly")
		kit.Eventually(t, "it is free", func() bool { return len(w1.Status().Quarantined)+len(w2.Status().Quarantined) == 0 })
	}

	key := s.KeyOf(w1)
	p := strconv.Itoa(w1.Ring.Partition(key))
	serving := w1.Serving()
	shows(t, s.Admin, `^partition `+p+`: placed at w2\n$`, "place", p, "w2")
	kit.Eventually(t, "the partition has moved", func() bool { return w1.Serving() == serving-1 && w2.Serving() == site.Partitions-serving+1 })
	for _, admin := range []string{s.Admin, w1.Admin} {
		shows(t, admin, `\npartition `+p+` is placed at w2 by hand\n$`, "ring")
		shows(t, admin, `worker w2 .*serves it: yes(?s:.*)Partition `+p+` is placed by hand, and does not go by the ring\.`, "explain", key)
	}
	shows(t, w2.Admin, `^partition `+p+`: unplaced\n$`, "unplace", p)
	kit.Eventually(t, "the partition is back", func() bool { return w1.Serving() == serving && w2.Serving() == site.Partitions-serving })
	for _, wrong := range [][]string{{"place", p, "w9"}, {"place", "9999", "w1"}, {"place", "first", "w1"}, {"unplace", "9999"}} {
		for _, admin := range []string{s.Admin, w1.Admin} {
			if out, err := run(t, admin, wrong...); err == nil {
				t.Errorf("%v at %s: %v %s", wrong, admin, err, out)
			}
		}
	}

	shows(t, s.Admin, `^w1: drained\n$`, "drain", "w1")
	if _, err := run(t, s.Admin, "place", p, "w1"); err == nil || !strings.Contains(err.Error(), `there is no such worker on the ring: "w1"; there are ["w2"]`) {
		t.Errorf("place at a worker that is drained: %v", err)
	}
	shows(t, s.Admin, `(?m)^w1 +drained +0 +0 (.*\n)+\nw1: not ready: .*drained`, "workers")
	kit.Eventually(t, "the other one serves all", func() bool { return w2.Serving() == site.Partitions })
	shows(t, s.Admin, `^w1: undrained\n$`, "undrain", "w1")
	together(t, w1, w2)
	shows(t, w2.Admin, `drained`, "drain", "w1") // one worker by another's address
	shows(t, w2.Admin, `undrained`, "undrain", "w1")
}

// together waits until both serve, and all partitions are.
func together(t *testing.T, a, b *site.Worker) {
	t.Helper()
	kit.Eventually(t, "both serve", func() bool {
		return a.Serving() > 0 && b.Serving() > 0 && a.Serving()+b.Serving() == site.Partitions && a.Ready() == nil && b.Ready() == nil
	})
}

// What goes wrong is said in a sentence: 2 for mistakes in the arguments, 1 for the rest.
func TestMistakes(t *testing.T) {
	s := site.NewOperated(t, "secret")
	if _, err := run(t, s.Admin, "release", "k", "--admin-token", "secret"); err == nil || err.Error() != "not released: gateway: no worker is on the ring" {
		t.Errorf("release without a worker: %v", err)
	}
	w := s.Start()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	nobody := kit.FreeAddr(t)
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	requests := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the request has no key", http.StatusBadRequest)
	}))
	defer requests.Close()
	for _, tt := range []struct {
		admin string
		args  string
		code  int
		want  string
	}{
		{s.Admin, "", 2, "needs a command: members,"},
		{s.Admin, "membres", 2, "the nearest one is members"},
		{s.Admin, "explain k --header X-Key:7", 2, "--header has no effect without --request"},
		{s.Admin, "explain k --body x", 2, "--body has no effect without --request"},
		{s.Admin, "members now", 2, `members does not take "now"`},
		{s.Admin, "explain", 2, "ctl explain needs KEY: call it as "},
		{s.Admin, "place 17", 2, "ctl place PARTITION NAME"},
		{s.Admin, "place w1 17 --admin-token secret", 1, `partition is "w1", want a number`},
		{s.Admin, "explain --request POST", 2, "want METHOD URL"},
		{s.Admin, "members --nope", 2, "unknown flag --nope"},
		{s.Admin, "members --admin x", 2, "host:port"},
		{s.Admin, "drain w1 --admin-token a --admin-token-file b", 2, "exclude each other"},
		{s.Admin, "drain w1 --admin-token-file " + empty, 2, "is empty"},
		{s.Admin, "drain w1", 1, "needs a token"},
		{s.Admin, "drain w1 --admin-token wrong", 1, "needs a token"},
		{s.Admin, "drain w9 --admin-token secret", 1, `there is no such worker: "w9"; there are ["w1"]`},
		{s.Admin, "drain w1 --admin-token secret", 1, "no other worker is on the ring"},
		{w.Admin, "explain --request GET\x00/", 1, "only a router has routes"},
		{s.Admin, "explain --request GET\x00/", 1, "header:X-Key"},
		{nobody, "members", 1, "nobody answers at " + nobody},
		{nobody, "health", 1, "nobody answers at " + nobody},
		{other.URL, "members", 1, "is it the admin address"},
		{requests.URL, "members", 1, "is it the admin address"},
	} {
		args := strings.Fields(tt.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "\x00", " ")
		}
		out, err := run(t, tt.admin, args...)
		if err == nil || cli.ExitCode(err) != tt.code || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v %s, want exit %d with %q", tt.args, err, out, tt.code, tt.want)
		}
	}
	if _, err := run(t, s.Admin, "unlock", ""); cli.ExitCode(err) != 2 || !strings.Contains(err.Error(), "empty argument: call it as router ctl unlock KEY") {
		t.Errorf("an empty key: %v", err)
	}
	for _, help := range []string{"--help", "help"} {
		if out, err := run(t, s.Admin, help); err == nil || cli.ExitCode(err) != 0 || !strings.Contains(out, "Usage: router ctl COMMAND [flags]") {
			t.Errorf("%s: %v %s", help, err, out)
		}
	}
}

// ctl health is for containers: the address may be given as the process has it, one that
// stands for all of the machine's.
func TestHealthOfAllAddresses(t *testing.T) {
	s := site.NewOperated(t, "")
	port := s.Admin[strings.LastIndex(s.Admin, ":"):]
	t.Setenv("KEYWAY_ADMIN", "0.0.0.0"+port)
	var out bytes.Buffer
	if err := ctl.Run(t.Context(), "worker", "127.0.0.1:1", []string{"health"}, &out); err != nil || out.String() != "ok\n" {
		t.Errorf("%v %q", err, &out)
	}
	if err := ctl.Run(t.Context(), "worker", "127.0.0.1:1", []string{"health", "--ready"}, &out); err == nil || !strings.Contains(err.Error(), "not ready") {
		t.Errorf("ready without a worker: %v", err)
	}
}

// The token stands for an address whose name the process does not know, for what reads, too.
func TestTokenByAnotherName(t *testing.T) {
	s := site.NewOperated(t, "secret")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = "router.example"
		target, _ := url.Parse(s.Admin)
		(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", target.Host
			p.Out.Host = r.Host
		}}).ServeHTTP(w, r)
	}))
	defer other.Close()
	if out, err := run(t, other.URL, "members"); err == nil || !strings.Contains(err.Error(), "--admin-host") {
		t.Errorf("without the token: %v %s", err, out)
	}
	shows(t, other.URL, `^NAME `, "members", "--admin-token", "secret")
}

// A worker that does not answer is a row that says so.
func TestSilentWorker(t *testing.T) {
	s := site.NewOperated(t, "")
	w1, w2 := s.Start(), s.Start()
	together(t, w1, w2)
	s.Sever(w2, true)
	shows(t, s.Admin, `(?s)w1 +active.*w2 +active +\? .*w2: gateway: the worker does not answer within 2s`, "workers")
	shows(t, s.Admin, `w2 did not answer`, "moves")
	shows(t, s.Admin, `LEFT +KEY\n$`, "quarantine")
	shows(t, s.Admin, `(?m)^w1: load .*\nw2 did not answer: gateway: the worker does not answer within 2s`, "loads")
	shows(t, s.Admin, `Worker w2, to which requests for the key go, has not said what it does`, "explain", s.KeyOf(w2))
	s.Sever(w1, true)
	shows(t, s.Admin, `no worker has answered`, "quarantine")
}

// The busiest partitions of the cluster are shown, with their part of their worker's load, and of each worker
// how its load compares with its weight.
func TestLoads(t *testing.T) {
	page := status.ClusterLoads{Workers: []status.LoadRow{
		{Worker: "a", Loads: &status.Loads{Weight: 3, Total: status.Work{Load: 6}}},
		{Worker: "b", Loads: &status.Loads{Weight: 1, Total: status.Work{Load: 4}}},
	}}
	for i := range 30 {
		l := page.Workers[i%2].Loads
		l.Partitions = append(l.Partitions, status.PartitionLoad{Partition: 100 + i, Work: status.Work{Executions: 12.34, Running: 0.5, Queueing: 0.25, Load: 3 - float64(i)/10}})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { json.NewEncoder(w).Encode(page) }))
	defer server.Close()
	shows(t, server.URL, `^PARTITION +WORKER .*\n100 +a +12.3 +0.500 +0.250 +3.000 +50.0 %\n101 +b +12.3 +0.500 +0.250 +2.900 +72.5 %\n(.*\n){17}119 .*\n\na: load 6.000, 80.0 % of the mean for its weight 3\nb: load 4.000, 160.0 % of the mean for its weight 1\n$`, "loads")
}

// Names and keys that others chose reach the terminal without control characters and without
// those that turn text around; --json keeps them.
func TestPrintable(t *testing.T) {
	const bad = "k\u202e\u009b\x1b[2J\r\n"
	text, _ := json.Marshal(bad)
	fill := func(page string) string { return strings.ReplaceAll(page, "BAD", string(text)) }
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/members":
			io.WriteString(w, fill(`{"members":[{"name":BAD,"role":BAD,"state":BAD,"address":BAD,"gossip":BAD,"view":BAD}]}`))
		case "/ring":
			io.WriteString(w, fill(`{"digest":BAD,"partitions":4,"workers":[{"name":BAD,"incarnation":BAD}]}`))
		case "/workers":
			io.WriteString(w, fill(`{"workers":[{"name":BAD,"error":BAD},{"name":BAD,"status":{"state":BAD,"version":BAD,"not_ready":BAD,"store":{"last_error":BAD},"quarantined":[{"key":BAD,"workers":[BAD]}]}}]}`))
		case "/moves":
			io.WriteString(w, fill(`{"moves":[{"worker":BAD,"from":BAD,"to":BAD,"because":BAD,"at":BAD}],"silent":[BAD]}`))
		case "/hot":
			io.WriteString(w, fill(`{"keys":[{"key":BAD,"worker":BAD}],"silent":[BAD]}`))
		case "/loads":
			io.WriteString(w, fill(`{"workers":[{"worker":BAD,"error":BAD},{"worker":BAD,"loads":{"weight":1,"total":{"load":2},"partitions":[{"partition":1,"load":1}]}}]}`))
		case "/locks":
			io.WriteString(w, fill(`{"locks":[{"key":BAD,"worker":BAD,"label":BAD}],"next":BAD}`))
		case "/unlock":
			io.WriteString(w, fill(`[{"key":BAD,"label":BAD}]`))
		case "/explain":
			io.WriteString(w, fill(`{"source":BAD,"route":BAD,"key":BAD,"wanted":{"name":BAD,"address":BAD},"worker":{"worker":BAD,"owner":BAD,"holder":{"kind":"hold","held_by":BAD,"label":BAD},"rates":[{"route":BAD}]},"verdict":[BAD]}`))
		default:
			io.WriteString(w, bad)
		}
	}))
	defer other.Close()
	for _, command := range []string{"members", "ring", "workers", "moves", "hot", "loads", "locks", "unlock k", "quarantine", "release k", "explain k", "drain w", "undrain w", "health", "health --ready"} {
		out, err := run(t, other.URL, strings.Fields(command)...)
		if err != nil || !strings.Contains(out, `k\u202e\u009b\x1b[2J`) {
			t.Errorf("%s: %v %+q", command, err, out)
		}
		for _, r := range out {
			if r != '\n' && !strconv.IsPrint(r) {
				t.Errorf("%s shows %+q in %q", command, r, out)
			}
		}
		out, err = run(t, other.URL, append(strings.Fields(command), "--json")...)
		if raw, _ := json.Marshal(strings.TrimSpace(bad)); err != nil || !strings.Contains(out, strings.Trim(string(raw), `"`)) {
			t.Errorf("%s --json: %v %+q", command, err, out)
		}
	}
}

// A router without a file of routes has none to name.
func TestExplainWithoutRoutes(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"source":"header:X-Key","mode":"auto","key":"7"}`)
	}))
	defer other.Close()
	shows(t, other.URL, `(?m)^source +header:X-Key$`, "explain", "--request", "GET /")
}

// soon has a worker see sooner than by default that keys are held for long.
func soon(cfg *worker.Config) { cfg.SlowKey = 400 * time.Millisecond }

// What docs/admin.md shows of keys that are slow is what explain says of them, but
// for numbers.
func TestWhyIsAKeySlow(t *testing.T) {
	for _, tt := range []struct {
		name  string
		stage func(t *testing.T, s *site.Operated) (key string)
	}{
		{"a hot key", func(t *testing.T, s *site.Operated) string {
			w := s.Start(soon)
			key := s.KeyOf(w)
			for i := range 30 {
				s.Block(key, 1+i%3)
			}
			kit.Eventually(t, "29 wait", func() bool { return w.Queued(key) == 29 })
			return key
		}},
		{"residue on a slow worker", func(t *testing.T, s *site.Operated) string {
			slow := s.Start(soon)
			for i := range 200 {
				s.Block("order-"+string(rune('a'+i%26))+string(rune('a'+i/26)), 1)
			}
			kit.Eventually(t, "all run", func() bool { return s.Running() == 200 })
			next := s.Start()
			together(t, slow, next)
			key := ""
			for i := 0; key == ""; i++ {
				k := "order-" + string(rune('a'+i%26)) + string(rune('a'+i/26))
				if m, _ := next.Member.View().Owner(s.Ring.Partition(k)); m.Name == "w2" {
					key = k
				}
			}
			s.Block(key, 2)
			kit.Eventually(t, "one waits", func() bool { return next.Queued(key) == 1 })
			return key
		}},
		{"a dead worker", func(t *testing.T, s *site.Operated) string {
			alive, dead := s.Start(), s.Start()
			together(t, alive, dead)
			key := s.KeyOf(dead)
			s.Kill(dead)
			kit.Eventually(t, "the other one is to have it", func() bool {
				s, err := alive.Explain(key)
				return err == nil && strings.Contains(s.WaitsFor, "session of its last owner")
			})
			return key
		}},
		{"a lock of a script that is dead", func(t *testing.T, s *site.Operated) string {
			w := s.Start(soon)
			key := s.KeyOf(w)
			lock := httptest.NewRequest(http.MethodPost, "http://localhost/v1/locks/"+key+"?ttl=59s&label=nightly-import", nil)
			lock.RemoteAddr = "127.0.0.1:4711"
			answer := httptest.NewRecorder()
			lockservice.New(s.Router, lockservice.Config{}).ServeHTTP(answer, lock)
			if answer.Code != http.StatusOK {
				t.Fatalf("the lock: %d %s", answer.Code, answer.Body)
			}
			for range 2 {
				s.Block(key, 1)
			}
			kit.Eventually(t, "two wait", func() bool { return w.Queued(key) == 2 })
			return key
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := site.NewOperated(t, "")
			key := tt.stage(t, s)
			docs := meaning(string(kit.Must(os.ReadFile("../../docs/admin.md"))))
			var out string
			defer func() {
				if t.Failed() {
					t.Logf("explain says:\n%s", out)
				}
			}()
			kit.Eventually(t, "docs/admin.md shows this, except for numbers", func() bool {
				var err error
				if out, err = run(t, s.Admin, "explain", key); err != nil {
					t.Fatal(err)
				}
				return strings.Contains(docs, meaning(out))
			})
		})
	}
}

var (
	numbers = regexp.MustCompile(`\d+(\.\d+)?(ms|s|m)?`)
	keys    = regexp.MustCompile(`order-\w+`)
	spaces  = regexp.MustCompile(` +`)
)

// meaning returns a text without its numbers and its layout.
func meaning(s string) string {
	s = keys.ReplaceAllString(s, "order")
	return spaces.ReplaceAllString(numbers.ReplaceAllString(s, "0"), " ")
}
