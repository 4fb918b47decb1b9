package snippettest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/gateway/lockservice"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

const (
	document = "../../../docs/lock-service.md"
	shown    = "http://127.0.0.1:8090" // the lock service there
	key      = "order-42"              // that is locked there
)

// stage is a lock service, and a directory in which snippets run.
type stage struct {
	t   *testing.T
	url string
	dir string
	env []string
}

// newStage starts a lock service. The test is skipped if a program is missing that it needs.
func newStage(t *testing.T, programs ...string) *stage {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%v: install the packages of debian-packages", err)
		}
	}
	front, _ := site.InFrontOf(t, site.Serve(t, http.NotFoundHandler()).URL)
	server := httptest.NewServer(lockservice.New(front.Router, lockservice.Config{}))
	t.Cleanup(server.Close)
	return &stage{t: t, url: server.URL, dir: t.TempDir(), env: os.Environ()}
}

// snippet returns the only block of that kind in the document, for this lock service.
func (s *stage) snippet(kind string) string {
	s.t.Helper()
	text := string(kit.Must(os.ReadFile(document)))
	found := regexp.MustCompile("(?ms)^```"+kind+"\n(.*?)^```$").FindAllStringSubmatch(text, -1)
	if len(found) != 1 || !strings.Contains(found[0][1], shown) || !strings.Contains(found[0][1], "order") {
		s.t.Fatalf("%s has %d blocks of %s; want one, with %s", document, len(found), kind, shown)
	}
	return strings.ReplaceAll(found[0][1], shown, s.url)
}

func (s *stage) write(name, text string, mode os.FileMode) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), mode); err != nil {
		s.t.Fatal(err)
	}
}

// run runs a command, and returns what it prints.
func (s *stage) run(name string, args ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// state returns the state of the key.
func (s *stage) state() (state struct {
	Held  bool
	Token int64
}) {
	s.t.Helper()
	_, body := kit.Fetch(s.t, s.url+"/v1/locks/"+key)
	if err := json.Unmarshal([]byte(body), &state); err != nil {
		s.t.Fatal(err)
	}
	return state
}

// checkRises sees that each run has written with a higher token than the one before, and has
// unlocked the key.
func (s *stage) checkRises(write func() (token int64)) {
	s.t.Helper()
	last := int64(0)
	for range 2 {
		token := write()
		if token <= last {
			s.t.Errorf("it has written with token %d after %d", token, last)
		}
		if last = token; s.state().Held {
			s.t.Error("the key is locked in the end")
		}
	}
}

// newShell returns a stage for the snippet of shell, ship.sh: there is no program but those
// that it needs of a bare Debian, and its psql writes to psql.log.
func newShell(t *testing.T) *stage {
	programs := []string{"bash", "curl", "sed", "hostname", "cat"}
	s := newStage(t, programs...)
	for _, name := range programs {
		if err := os.Symlink(kit.Must(exec.LookPath(name)), filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s.write("psql", "#!/bin/sh\n{ echo \"$@\"; cat; } >>psql.log\n", 0o700)
	s.env = append(s.env, "PATH="+s.dir)
	s.write("ship.sh", s.snippet("bash"), 0o600)
	return s
}

// TestShellFails: without the lock nothing is written, and the script says so by its status.
func TestShellFails(t *testing.T) {
	for _, status := range []int{http.StatusLocked, http.StatusServiceUnavailable, http.StatusOK} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				fmt.Fprint(w, "no lock")
			}))
			defer refuses.Close()
			s := newShell(t)
			s.write("ship.sh", strings.ReplaceAll(s.snippet("bash"), s.url, refuses.URL), 0o600)
			if err := os.Remove(filepath.Join(s.dir, "curl")); err != nil {
				t.Fatal(err)
			}
			s.write("curl", "#!/bin/sh\nexec "+kit.Must(exec.LookPath("curl"))+" \"$@\" --retry 0\n", 0o700)
			cmd := exec.CommandContext(t.Context(), "bash", "ship.sh")
			cmd.Dir, cmd.Env = s.dir, s.env
			if out, err := cmd.CombinedOutput(); err == nil {
				t.Errorf("it succeeds: %s", out)
			}
			if log, err := os.ReadFile(filepath.Join(s.dir, "psql.log")); err == nil {
				t.Errorf("it has written: %s", log)
			}
		})
	}
}

func TestShell(t *testing.T) {
	s := newShell(t)
	s.checkRises(func() int64 {
		s.run("bash", "ship.sh")
		log := string(kit.Must(os.ReadFile(filepath.Join(s.dir, "psql.log"))))
		calls := regexp.MustCompile(`-v token=([0-9]+)\nUPDATE .* token = :token .* token < :token;\n`).FindAllStringSubmatch(log, -1)
		if len(calls) == 0 {
			t.Fatalf("psql was given %q", log)
		}
		return kit.Must(strconv.ParseInt(calls[len(calls)-1][1], 10, 64))
	})
}

func TestPython(t *testing.T) {
	s := newStage(t, "python3")
	const open = "import sqlite3; db = sqlite3.connect('orders.db'); "
	s.run("python3", "-c", open+"db.execute('CREATE TABLE orders (id, state, token)'); db.execute(\"INSERT INTO orders VALUES (42, 'new', 0)\"); db.commit()")
	s.write("ship.py", s.snippet("python"), 0o600)
	s.checkRises(func() (token int64) {
		s.run("python3", "ship.py")
		var state string
		if _, err := fmt.Sscan(s.run("python3", "-c", open+"print(*db.execute('SELECT state, token FROM orders').fetchone())"), &state, &token); err != nil || state != "shipped" {
			t.Fatal(state, err)
		}
		return token
	})
}

func TestNode(t *testing.T) {
	s := newStage(t, "node")
	s.write("ship.mjs", s.snippet("js"), 0o600)
	s.write("main.mjs", `import { ship } from "./ship.mjs";
const db = { query: async (text, values) => { console.log(JSON.stringify({ text, values })); return { rowCount: 1 }; } };
if (!await ship(db, 42)) throw new Error("not shipped");
`, 0o600)
	s.checkRises(func() int64 {
		var call struct {
			Text   string
			Values []int64
		}
		if err := json.Unmarshal([]byte(s.run("node", "main.mjs")), &call); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(call.Text, "token = $1 WHERE id = $2 AND token < $1") || len(call.Values) != 2 || call.Values[1] != 42 {
			t.Fatalf("the database was given %+v", call)
		}
		return call.Values[0]
	})
}
