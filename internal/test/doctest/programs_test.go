package doctest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/test/redistest"
)

// stage stands for the hosts that README.md writes of: each is a loopback
// address of its own, so that what a command binds to one of them is not
// reached by way of another.
type stage struct {
	t         *testing.T
	programs  cluster.Programs
	addresses *strings.Replacer
	requests  string // base URL of the router
}

// newStage puts README.md's hosts and ports on this machine. app is what
// listens on port 3000.
func newStage(t *testing.T, app string) *stage {
	t.Helper()
	probe, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skip("this system has one loopback address only (macOS: ifconfig lo0 alias 127.0.0.2): ", err)
	}
	probe.Close()
	redis := redistest.Start(t)
	programs, err := cluster.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	front := freePort(t, "127.0.0.2")
	return &stage{
		t: t, programs: programs, requests: "http://127.0.0.2:" + front,
		addresses: strings.NewReplacer(
			"redis://redis:6379", redis.URL(),
			"0.0.0.0:8080", "0.0.0.0:"+front,
			"10.0.0.4:7946", "127.0.0.2:"+freePort(t, "127.0.0.2"),
			"10.0.0.5:7946", "127.0.0.3:"+freePort(t, "127.0.0.3"),
			"10.0.0.5:0", "127.0.0.3:0",
			"10.0.0.6:7946", "127.0.0.4:"+freePort(t, "127.0.0.4"),
			"10.0.0.6:9000", "127.0.0.4:"+freePort(t, "127.0.0.4"),
			"http://127.0.0.1:3000", app,
		),
	}
}

func freePort(t *testing.T, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// start starts a command of README.md, with what the environment adds to its
// flags.
func (s *stage) start(command string) {
	s.t.Helper()
	program, args, _ := strings.Cut(command, " ")
	name := strings.TrimPrefix(program, "bin/")
	path := map[string]string{"router": s.programs.Router, "worker": s.programs.Worker}[name]
	if path == "" {
		s.t.Fatalf("%s: neither router nor worker", command)
	}
	p, err := cluster.Start(s.t.Context(), name, "sh", s.t.Output(), "-c", "exec "+path+" "+s.addresses.Replace(args))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(p.Kill)
}

// send sends a request through the router and returns the answer's body.
func (s *stage) send(path string) string {
	s.t.Helper()
	return send(s.t, s.requests+path, nil)
}

func send(t *testing.T, url string, h http.Header) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("ship it"))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(req.Header, h)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s %v", url, res.StatusCode, body, err)
	}
	return string(body)
}

// programCommands returns the commands of README.md that start programs.
func programCommands(t *testing.T) []string {
	t.Helper()
	var commands []string
	for _, b := range blocks(t, "sh") {
		if b.file != "README.md" {
			continue
		}
		commands = append(commands, regexp.MustCompile(`(?m)^bin/.*$`).FindAllString(b.text, -1)...)
	}
	if len(commands) != 2 || !strings.HasPrefix(commands[0], "bin/router ") || !strings.HasPrefix(commands[1], "bin/worker ") {
		t.Fatalf("commands %q, want a router's and a worker's", commands)
	}
	return commands
}

// settings that README.md leaves at their defaults: the machine's own ports
// may be taken, and a new cluster need not wait.
func setEnvironment(t *testing.T) {
	t.Setenv("KEYWAY_ADMIN", "127.0.0.1:0")
	t.Setenv("KEYWAY_NEW_CLUSTER", "true")
	t.Setenv("KEYWAY_GOSSIP_KEY", strings.Repeat("2a", 32))
}

// What README.md starts in front of an app serves it.
func TestInFrontOfAnApp(t *testing.T) {
	setEnvironment(t)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Keyway-Key"), " ", r.URL.Path, " ", r.Header.Get("Keyway-Token") != "")
	}))
	defer app.Close()
	s := newStage(t, app.URL)
	for _, command := range programCommands(t) {
		s.start(command)
	}
	for path, want := range map[string]string{"/orders/42": "42 /orders/42 true", "/orders/42/items": "42 /orders/42/items true"} {
		if got := s.send(path); got != want {
			t.Errorf("%s: the app got %q, want %q", path, got, want)
		}
	}
}

// goBlocks returns README.md's Go: from nothing to Do, Serve, and a configuration
// for more machines.
func goBlocks(t *testing.T) (do, serve, config string) {
	t.Helper()
	var texts []string
	for _, b := range blocks(t, "go") {
		if b.file == "docs/migrating.md" {
			continue // fallback/lock/interoptest compiles and runs it, with the libraries that it names
		}
		if b.file != "README.md" {
			t.Errorf("%s:%d: Go that no test compiles: it must stand in an Example, and be looked for here", b.file, b.line)
			continue
		}
		texts = append(texts, b.text)
	}
	if len(texts) != 3 {
		t.Fatalf("README.md has %d blocks of Go, want 3", len(texts))
	}
	return texts[0], texts[1], texts[2]
}

// zero is the configuration in README.md's first block, which programs of this
// test replace: the machine's port 7946 may be taken.
const zero = "keyway.Config{}"

// From nothing to Do takes ten lines at most, which are those of ExampleStart.
func TestTenLines(t *testing.T) {
	do, _, _ := goBlocks(t)
	if n := strings.Count(do, "\n"); n > 10 || strings.Count(do, zero) != 1 {
		t.Errorf("%d lines, want at most 10, with %s once:\n%s", n, zero, do)
	}
	examples, err := os.ReadFile(filepath.Join(root, "example_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	example := strings.ReplaceAll("\n"+strings.TrimSuffix(strings.Replace(do, zero, "config", 1), "\n"), "\n", "\n\t\t")
	if !strings.Contains(string(examples), example) {
		t.Errorf("ExampleStart does not have these lines of README.md:%s", example)
	}
}

// These lines run in a module that has nothing else, beside a router that was
// started without flags but for its ports.
func TestInAFreshModule(t *testing.T) {
	do, _, _ := goBlocks(t)
	programs, err := cluster.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	router, err := cluster.Start(t.Context(), "router", programs.Router, t.Output(), "--new-cluster",
		"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(router.Kill)
	dir := t.TempDir()
	keyway, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("keyway.Config{Join: []string{%q}}", router.Gossip)
	for name, text := range map[string]string{
		"go.mod":  "module fresh\n\ngo 1.26\n\nrequire github.com/keyway-go/keyway v0.0.0\n\nreplace github.com/keyway-go/keyway => " + keyway + "\n",
		"go.sum":  string(sums),
		"main.go": program(strings.Replace(do, zero, config, 1)),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := exec.CommandContext(t.Context(), "go", "run", "-mod=mod", ".")
	run.Dir = dir
	run.Stderr = t.Output()
	if out, err := run.Output(); err != nil || string(out) != "order-42\n" {
		t.Errorf("it prints %q, %v", out, err)
	}
}

// What README.md writes in Go compiles as it stands, and serves requests beside
// the router that README.md starts.
func TestGoOfReadme(t *testing.T) {
	setEnvironment(t)
	s := newStage(t, "")
	s.start(programCommands(t)[0])
	do, serve, config := goBlocks(t)
	code := program(s.addresses.Replace(config) + "config.NewCluster = true\n" + strings.Replace(do, zero, "config", 1) + serve)
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, source)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("README.md's Go: %v\n%s", err, out)
	}
	cmd := exec.Command(binary)
	cmd.Stderr = t.Output()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var shipped string
	if _, err := fmt.Fscanln(stdout, &shipped); err != nil || shipped != "order-42" {
		t.Fatalf("Do: %q, %v", shipped, err)
	}
	if got, want := s.send("/orders/42"), "POST of 42"; got != want {
		t.Errorf("the handler answers %q, want %q", got, want)
	}
}

// program is one around README.md's Go, with the names that the text takes for
// granted.
func program(code string) string {
	return strings.Replace(`package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/gateway"
)

var key, _ = hex.DecodeString(os.Getenv("KEYWAY_GOSSIP_KEY"))

func ship(_ context.Context, order string, token int64) error {
	_, err := fmt.Println(order)
	return err
}

func run(ctx context.Context, app http.Handler) error {
	// HERE
	return err
}

func main() {
	err := run(context.Background(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _ := gateway.KeyFromHeader(r.Header)
		io.WriteString(w, r.Method+" of "+key)
	}))
	if err != nil {
		log.Fatal(err)
	}
}
`, "// HERE", code, 1)
}

// The curl line of README.md is answered, by the demo that make run starts, in
// the form that README.md shows.
func TestConsole(t *testing.T) {
	programs, err := cluster.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	start := func(name, program string, args ...string) *cluster.Process {
		p, err := cluster.Start(t.Context(), name, program, t.Output(), args...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		return p
	}
	router := start("router", programs.Router, "--new-cluster", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--gossip", "127.0.0.1:0")
	start("w2", programs.Worker, "--new-cluster", "--name", "w2", "--join", router.Gossip)
	for _, b := range blocks(t, "console") {
		for i, part := range strings.Split("\n"+b.text, "\n$ ") {
			if i == 0 {
				continue // before the first command
			}
			command, shown, _ := strings.Cut(part, "\n")
			cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(command, "127.0.0.1:8080", router.Listen))
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("%s:%d: %s: %v", b.file, b.line, command, err)
				continue
			}
			var got, want map[string]any
			if err := json.Unmarshal(out, &got); err != nil {
				t.Errorf("%s:%d: %s: %v: %s", b.file, b.line, command, err, out)
			}
			if err := json.Unmarshal([]byte(shown), &want); err != nil {
				t.Errorf("%s:%d: what %s shows: %v: %s", b.file, b.line, command, err, shown)
			}
			for _, same := range []string{"key", "worker", "partition", "count"} {
				if got[same] != want[same] {
					t.Errorf("%s:%d: %s is %v, shown is %v", b.file, b.line, same, got[same], want[same])
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s:%d: answers %s, shows %s", b.file, b.line, out, shown)
			}
		}
	}
}
