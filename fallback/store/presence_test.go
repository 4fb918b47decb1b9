package store

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/redistest"
	"github.com/keyway-go/keyway/ring"
)

// stub is a server that answers each command alike, until it is told to answer otherwise.
type stub struct{ answer atomic.Value }

func newStub(answer string) *stub {
	s := new(stub)
	s.answer.Store(answer)
	return s
}

func (s *stub) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		head, err := r.ReadString('\n')
		if err != nil {
			return
		}
		var words []string
		for range kit.Must(strconv.Atoi(strings.TrimSpace(head[1:]))) {
			_, err := r.ReadString('\n') // the length of a word, which has no line break here
			word, _ := r.ReadString('\n')
			if err != nil {
				return
			}
			words = append(words, strings.TrimSpace(word))
		}
		answer := s.answer.Load().(string)
		if usable := strings.HasPrefix(answer, ":"); usable && strings.EqualFold(words[0], "hello") {
			answer = "%0"
		} else if usable && !strings.EqualFold(words[0], "persist") {
			answer = "+OK"
		}
		switch answer {
		case "": // it is silent
		case "hang up":
			return
		default:
			if _, err := io.WriteString(conn, answer+"\r\n"); err != nil {
				return
			}
		}
	}
}

// listen serves at an address, which it returns.
func (s *stub) listen(t *testing.T) string {
	l := kit.Must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return l.Addr().String()
}

// dial is a way to the server without a network, for virtual time.
func (s *stub) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go s.serve(theirs)
	return ours, nil
}

// Whatever keeps a store from being used, log and error say where it is, why, and what to do: the log once, and never a
// password.
func TestAnUnusableStoreIsNamed(t *testing.T) {
	const secret = "s3cret"
	at := func(addr string) string { return "redis://:" + secret + "@" + addr + "/3" }
	for name, tt := range map[string]struct {
		url   func(t *testing.T) string
		words []string
	}{
		"nothing listens": {func(t *testing.T) string { return at(kit.FreeAddr(t)) }, []string{"connection refused", "whether a Redis runs there"}},
		"no name":         {func(t *testing.T) string { return at("redis.invalid:6379") }, []string{`redis.invalid`, "does not resolve", "DNS"}},
		"hangs up":        {func(t *testing.T) string { return at(newStub("hang up").listen(t)) }, []string{"closes connections", "rediss://"}},
		"silent":          {func(t *testing.T) string { return at(newStub("").listen(t)) }, []string{"does not answer", "firewall", "rediss://"}},
		"loading": {func(t *testing.T) string {
			return at(newStub("-LOADING Redis is loading the dataset in memory").listen(t))
		}, []string{"LOADING", "loaded its data"}},
		"full": {func(t *testing.T) string {
			return at(newStub("-OOM command not allowed when used memory > 'maxmemory'.").listen(t))
		}, []string{"OOM", "maxmemory"}},
		"moves a slot": {func(t *testing.T) string {
			return at(newStub("-TRYAGAIN Multiple keys request during rehashing of slot").listen(t))
		}, []string{"TRYAGAIN", "cluster's slots"}},
		"repeats a password": {func(t *testing.T) string {
			return at(newStub("-ERR unknown command 'AUTH', with args beginning with: '" + secret + "'").listen(t))
		}, []string{"unknown command"}},
		"wrong password": {func(t *testing.T) string { return at(redistest.Start(t, "--requirepass", "other").Addr()) }, []string{"WRONGPASS", "correct user and password"}},
		"no password":    {func(t *testing.T) string { return redistest.Start(t, "--requirepass", "other").URL() + "/3" }, []string{"NOAUTH", "give the password"}},
		"no database":    {func(t *testing.T) string { return redistest.Start(t, "--databases", "2").URL() + "/3" }, []string{"out of range", "correct the database in the URL"}},
		"strange CA": {func(t *testing.T) string {
			server, _ := redistest.StartTLS(t)
			return "rediss://" + server.Addr() + "/3"
		}, []string{"certificate signed by unknown authority", "correct its ca, cert and key"}},
		"no replicas": {func(t *testing.T) string { return redistest.Start(t, "--min-replicas-to-write", "1").URL() + "/3" }, []string{"NOREPLICAS", "min-replicas-to-write", "masterauth"}},
		"read-only":   {func(t *testing.T) string { return redistest.Start(t, "--replicaof", "127.0.0.1 1").URL() + "/3" }, []string{"READONLY", "primary's address"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, url := new(kit.Buffer), tt.url(t)
			s := openStore(t, url, Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
			place := s.handle.Place
			if s.Trouble() != nil {
				t.Error("there is trouble before the first call")
			}
			calls := []func(context.Context) error{s.Ping, func(ctx context.Context) error { _, err := s.Generation(ctx, true); return err }, s.Ping}
			for i, call := range calls {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				err := call(ctx)
				cancel()
				for _, word := range append(tt.words, place, "database 3") {
					if err == nil || !strings.Contains(err.Error(), word) {
						t.Errorf("call %d: %v, want a word of %q", i, err, word)
					}
				}
				if err == nil || strings.Contains(err.Error(), secret) || s.Trouble() == nil || s.Trouble().Error() != err.Error() {
					t.Errorf("call %d: %v; the trouble is %v", i, err, s.Trouble())
				}
			}
			text := strings.ReplaceAll(log.String(), `\"`, `"`)
			for _, word := range append(tt.words, place, "database 3", "cluster=keyway") {
				if !strings.Contains(text, word) {
					t.Errorf("no %q in the log: %s", word, text)
				}
			}
			if n := strings.Count(text, "cannot be used"); n != 1 || strings.Contains(text, secret) {
				t.Errorf("%d lines, want one without a password: %s", n, text)
			}
		})
	}
}

// An absence is told once for each cause, at most 2 s after it began, and so is its end with how long it was; one that
// comes and goes does not fill the log.
func TestAbsenceIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, server := new(kit.Buffer), newStub(":0")
		s := openStore(t, "redis://stub", Config{Logger: slog.New(slog.NewTextHandler(log, nil)), Dial: server.dial})
		defer s.Close()
		expect := func(when string, want ...string) {
			t.Helper()
			text := log.String()
			log.Reset()
			lines := strings.Count(text, "\n")
			for _, word := range want {
				if !strings.Contains(text, word) {
					t.Errorf("%s: no %q in the log: %s", when, word, text)
				}
			}
			if lines != len(want) {
				t.Errorf("%s: %d lines, want %d: %s", when, lines, len(want), text)
			}
		}
		try := func(during time.Duration, answer string) {
			server.answer.Store(answer)
			for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				_ = s.Ping(ctx)
				cancel()
			}
			synctest.Wait()
		}
		try(time.Minute, ":0")
		expect("present")
		try(time.Minute, "-LOADING it loads")
		expect("away", "LOADING")
		try(time.Minute, "-OOM it is full")
		expect("another cause", "OOM")
		try(time.Minute, "-LOADING it loads")
		expect("the first cause again")
		try(time.Second, ":0")
		expect("back", "used again") // the times follow below
		for range 20 {
			try(100*time.Millisecond, "-LOADING it loads")
			try(100*time.Millisecond, ":0")
		}
		if n := strings.Count(log.String(), "\n"); n > 2 {
			t.Errorf("20 absences in 8 s: %s", log)
		}
		time.Sleep(time.Minute)
		log.Reset()

		server.answer.Store("")
		asked := make(chan error)
		go func() { asked <- s.Ping(t.Context()) }()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		expect("2 s of silence", "does not answer")
		if err := <-asked; err == nil || s.Trouble() == nil {
			t.Errorf("%v, trouble %v", err, s.Trouble())
		}
		server.answer.Store(":0")
		if err := s.Ping(t.Context()); err != nil || s.Trouble() != nil {
			t.Errorf("%v, trouble %v", err, s.Trouble())
		}
		expect("back again", "away=4")
	})
}

// Neither Ping nor Peers begins a generation: that is for workers, and costs a quarantine.
func TestLookingChangesNothing(t *testing.T) {
	s := openStore(t, startEmbedded(t).URL(), Config{})
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if peers, err := s.Peers(t.Context()); err != nil || len(peers) != 0 {
		t.Errorf("peers %q, %v of an empty store", peers, err)
	}
	if n := kit.Must(s.client.DBSize(t.Context()).Result()); n != 0 {
		t.Errorf("%d keys", n)
	}
	gen := firstGeneration(t, s)
	if _, err := s.Register(t.Context(), gen, records.Session{Incarnation: "i", Name: "n", Addr: "a", Gossip: "10.0.0.1:7946"}, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	if peers, err := s.Peers(t.Context()); err != nil || fmt.Sprint(peers) != "[10.0.0.1:7946]" {
		t.Errorf("peers %q, %v", peers, err)
	}
}

// What a store makes workers wait for is said when its generation is seen, and how to say that there is nothing to wait for.
func TestAWaitIsSaid(t *testing.T) {
	server, log := redistest.Start(t, "--appendonly", "yes"), new(kit.Buffer)
	open := func(newCluster bool) *Store {
		return openStore(t, server.URL(), Config{NewCluster: newCluster, Settings: ring.Settings{TTL: 7 * time.Second}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	}
	said := func(what string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(log.String(), word) {
				t.Errorf("%s: no %q: %s", what, word, log)
			}
		}
		if n := strings.Count(log.String(), "at_most"); n != min(len(words), 1) {
			t.Errorf("%s: said %d times: %s", what, n, log)
		}
		log.Reset()
	}
	firstGeneration(t, open(true))
	said("a new cluster")
	server.RestartEmpty()
	s := open(false)
	gen := firstGeneration(t, s)
	firstGeneration(t, s)
	said("an empty store", "no trace of this cluster", "--new-cluster", "Config.NewCluster", "at_most=7s", "server_run_id=", "server_uptime=", server.Addr())
	if _, err := s.Register(t.Context(), gen, records.Session{Incarnation: "i"}, time.Minute, []records.Holding{{Partition: 1, Epoch: 1}}); err != nil {
		t.Fatal(err)
	}
	firstGeneration(t, open(false)) // for others who come meanwhile
	said("one that was begun", "restarted", "at_most=7s")
	server.Restart()
	firstGeneration(t, s)
	said("a restart with its data", "restarted", "at_most=7s")
}

// The store is named by the addresses of its URL, without the password.
func TestPlace(t *testing.T) {
	for url, want := range map[string]string{
		"redis://u:pw@h":               "h:6379",
		"rediss://:pw@h:1/2":           "h:1 (database 2)",
		"unix://u:pw@/run/r.sock?db=1": "/run/r.sock (database 1)",
		"redis-sentinel://:pw@a?master=m&addr=b:2&sentinel_password=other": "the Sentinels a:26379, b:2 (master m)",
		"redis+cluster://:pw@a?addr=b:2":                                   "a:6379, b:2",
	} {
		p := openStore(t, url, Config{}).handle
		if p.Place != want || p.Password != "pw" {
			t.Errorf("%s: %q, password %q; want %q", url, p.Place, p.Password, want)
		}
	}
}

// A user who may do too little is told what to allow. Without the channel everything works, but slower.
func TestTrapUserLacksRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	for rights, want := range map[string]string{
		"~{keyway:* &* +@all -info":                 "users.acl",
		"~{keyway:* &* +@all -evalsha -eval":        "users.acl",
		"~{keyway:* resetchannels +@all":            "polling",
		"~{keyway:* &{keyway:*}:* +@all -@blocking": "",
	} {
		server.CLI(append([]string{"acl", "setuser", "some", "reset", "on", ">secret"}, strings.Fields(rights)...)...)
		var log bytes.Buffer
		s := openStore(t, strings.Replace(server.URL(), "//", "//some:secret@", 1), Config{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})), NewCluster: true})
		_, err := s.Generation(t.Context(), true)
		if said := log.String() + fmt.Sprint(err); !strings.Contains(said, want) || (want == "users.acl") != (err != nil) || want == "" && log.Len() > 0 {
			t.Errorf("with %s: %s, want %q", rights, said, want)
		}
		server.CLI("flushall")
	}
}
