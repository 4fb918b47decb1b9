package deptest

import (
	"errors"
	"go/build"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/keyway-go/keyway"

const (
	memberlist = "github.com/hashicorp/memberlist"
	etcd       = "go.etcd.io/etcd"
	goRedis    = "github.com/redis/go-redis"
	miniredis  = "github.com/alicebob/miniredis"
	consistent = "github.com/buraksezer/consistent"
	xxhash     = "github.com/cespare/xxhash"
	xnet       = "golang.org/x/net"
	otel       = "go.opentelemetry.io/otel"
	protobuf   = "google.golang.org/protobuf"
	grpc       = "google.golang.org/grpc"
)

// only lists which packages, with what is inside them, may import a library,
// tests included.
var only = []struct {
	library string
	by      []string
	why     string
}{
	{memberlist, []string{"ring/gossip"}, "the gossip library has one door, so that it can be replaced"},
	{etcd, []string{"fallback/etcd"}, "etcd has one door, so that the store can be replaced"},
	{goRedis, []string{"fallback"}, "Redis has one door, so that the store can be replaced"},
	{miniredis, []string{"fallback/store"}, "the embedded store is one of the stores"},
	{xnet, []string{"internal/wire/h2", "gateway"}, "all of HTTP/2 but HPACK is Keyway's or the standard library's; the gateway's tests need HPACK, too"},
	{otel, []string{".", "gateway", "internal/tracing", "internal/test/spantest"}, "spans are made at the two ends of a request's way, and configured by who starts them"},
	{otel + "/sdk", []string{"internal/tracing", "internal/test/spantest"}, "a library makes spans by the provider that it is given: which one is for the program to say"},
	{protobuf, []string{"internal/test/spantest"}, "spans in OTLP are the only messages in it, and a library sends them"},
	{consistent, []string{"ring"}, "all placement of partitions goes through ring, where it is a pure function of the member set"},
}

// pure lists packages that may use, in all, the standard library and the
// packages in uses, and that may not import from the standard library what is
// in never.
var pure = []struct {
	pkg   string
	uses  []string
	never []string
	why   string
}{
	{"ring", []string{xxhash, consistent}, impure, "a table is a function of its arguments"},
	{"internal/lease", nil, impure, "whether a deadline has passed is a function of the readings it is given"},
	{"internal/records", nil, impure, "what a store keeps is a value"},
	{"internal/kept", nil, impure, "the rules of a store change what it keeps, and nothing else"},
	{"internal/handoff", nil, impure, "the machine whose every state is explored is the one that runs, so nothing but its inputs may move it"},
	{"gateway/worker/internal/remote", nil, impure, "what becomes of a lock is explored on the machine that runs: its inputs carry the time, and its host acts for it"},
	{"internal/holder", nil, impure, "the machine whose every state is explored is the one that runs, so nothing but its inputs may move it"},
	{"internal/placement", nil, impure, "a plan is a function of the loads, so that transcripts and simulations show what the balancer does"},
	{"internal/keytable", nil, nil, "a keyed mutex knows nothing of what it is for"},
	{"localmutex", nil, nil, "a keyed mutex is useful to programs that want nothing else of Keyway"},
	{"localmutex/locking", nil, nil, "whoever implements or uses the interface of locks brings no store with it"},
}

// impure is where input, output, concurrency and chance come from.
var impure = []string{"context", "crypto/rand", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec", "os/signal", "runtime", "sync", "sync/atomic", "syscall", "unsafe"}

// without lists packages and what none of their dependencies may be, but for those in but.
var without = []struct {
	pkg   string
	never []string
	but   string
	why   string
}{
	{"gateway/router/internal/proxyheader", []string{"gateway", "internal"}, "", "how a connection begins is the same whatever comes then"},
	{"gateway/router", []string{memberlist, goRedis, miniredis, "ring/gossip", "fallback", "gateway/client", "gateway/lockservice", "gateway/worker", "internal/handoff", "internal/keytable", "localmutex"}, "localmutex/locking", "a router owns nothing, and who embeds it brings a membership"},
	{"gateway/router", []string{"gateway/admin"}, "", "what is asked and ordered by people is wired by the program"},
	{"internal/door", []string{"gateway/client", "gateway/lockservice", "gateway/worker", "gateway/admin"}, "", "clients are served the same way with a worker in the process and without"},
	{"gateway/client", []string{"gateway/admin"}, "", "what is asked and ordered by people is wired by the program"},
	{"gateway/worker", []string{"gateway/admin"}, "", "what is asked and ordered by people is wired by the program"},
	{"gateway/internal/routing", []string{"gateway", "internal", "net/http"}, "", "which worker takes a request is the same whatever brings it there, and is tested without a network"},
	{"gateway/client", []string{memberlist, goRedis, miniredis, "ring/gossip", "fallback", "gateway/router", "internal/routes", "gateway/worker", "internal/handoff", "internal/keytable", "localmutex"}, "localmutex/locking", "a program that makes calls has no front door, and brings a membership"},
	{"gateway/lockservice", []string{memberlist, goRedis, miniredis, "ring/gossip", "fallback", "gateway/router", "internal/routes", "gateway/worker", "internal/handoff", "internal/keytable", "localmutex"}, "localmutex/locking", "locks over HTTP need no front door: whoever sends to workers is given to it"},
	{"gateway/internal/send", []string{"gateway/router", "gateway/client", "gateway/lockservice", "gateway/worker", "internal/routes", "internal/accesslog"}, "", "what carries a request knows neither who has made it nor how its key was found"},
	{"gateway/worker", []string{memberlist, goRedis, miniredis, "ring/gossip", "fallback", "gateway/router", "gateway/client", "gateway/lockservice", "gateway/internal/send", xnet, "internal/wire/h2"}, "", "a worker is reached over the link, and who embeds it brings a store and a membership"},
	{"gateway/worker/internal/keyed", []string{"fallback", "ring/gossip", "gateway/internal/hop", "gateway/internal/problem", "gateway/worker/internal/remote", "gateway/worker/internal/locks", "gateway/worker/internal/ownership", "internal/wire/link", "internal/wire/http1", "internal/wire/hop1"}, "", "how a key is had is the same whatever brings the request there, and whoever decides who owns it"},
	{"gateway/worker/internal/ownership", []string{"fallback", "ring/gossip", "gateway/internal/problem", "gateway/worker/internal/remote", "gateway/worker/internal/locks", "internal/wire/http1", "internal/wire/hop1"}, "", "who owns what is decided with the members and a store, whichever they are, and not by requests"},
	{"gateway/worker/internal/locks", []string{"fallback", "ring/gossip", "gateway/internal/problem", "gateway/worker/internal/ownership", "internal/wire/http1", "internal/wire/hop1"}, "", "a lock lives beside the tables of keys, whoever decides who owns them"},
	{"gateway/worker/internal/answers", []string{"fallback", "internal/handoff", "gateway/worker/internal/keyed", "internal/wire/hop1"}, "", "an answer is kept whoever has given it, and its key is free by then"},
	{"gateway/worker", []string{"gateway/sidecar", "internal/wire/hop1", "internal/wire/hop2"}, "", "an app in another process is one of those whose requests a worker admits"},
	{"gateway/sidecar", []string{memberlist, goRedis, miniredis, "ring/gossip", "fallback", "gateway/router", "gateway/client", "gateway/lockservice", "gateway/internal/send", xnet, "internal/wire/h2"}, "", "it is for a worker, of whatever membership and store"},
	{"gateway", []string{"gateway/router", "gateway/client", "gateway/worker", "gateway/admin"}, "", "what both ends share knows neither"},
	{"fallback/lock", []string{memberlist, miniredis, "ring", "gateway", "fallback/store"}, "", "the Redis lock is useful to programs that want nothing else of Keyway"},
	{"fallback/store", []string{memberlist, "ring/gossip", "gateway", "fallback/lock"}, "", "who owns what is for all who embed it"},
	{"fallback/etcd", []string{memberlist, "ring/gossip", "gateway", "fallback/lock"}, "", "who owns what is for all who embed it"},
	{".", []string{etcd, "fallback/etcd"}, "", "who does not keep it in etcd does not link etcd's client"},
	{".", []string{otel + "/sdk", otel + "/exporters", grpc, "internal/tracing"}, "", "where spans go is for the program to say, and not in the graph of one that wants none"},
	{"cmd/router", []string{"internal/test"}, "", "what tests need is not for users to run"},
	{"cmd/worker", []string{"internal/test"}, "", "what tests need is not for users to run"},
	{"ring/gossip", []string{goRedis, miniredis, "fallback", "gateway"}, "", "membership needs no store"},
}

func TestOnly(t *testing.T) {
	pkgs := load(t)
	for _, rule := range only {
		for name, p := range pkgs {
			imports := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
			allowed := slices.ContainsFunc(rule.by, func(by string) bool { return in(by)(name) })
			if i := slices.IndexFunc(imports, in(rule.library)); i >= 0 && !allowed {
				t.Errorf("%s imports %s, which is for %v: %s", name, imports[i], rule.by, rule.why)
			}
		}
	}
}

// wiring lists the packages of the main module that may import its root, which
// joins membership, store, worker and client: nothing else does that, and no part
// of it may know the whole.
var wiring = []string{".", "cmd/worker", "internal/test"}

func TestOneWiring(t *testing.T) {
	for name, p := range load(t) {
		imports := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		allowed := slices.ContainsFunc(wiring, func(by string) bool { return in(by)(name) })
		if slices.Contains(imports, module) && !allowed {
			t.Errorf("%s imports package keyway, which is for %v and programs outside of this module", name, wiring)
		}
	}
	for dep, via := range load(t).deps(t, ".") {
		if in("internal/cli")(dep) || in("internal/test")(dep) {
			t.Errorf("package keyway depends on %s (imported by %s): it is for programs that have flags of their own, or none", dep, via)
		}
	}
}

func TestPure(t *testing.T) {
	pkgs := load(t)
	for _, rule := range pure {
		for dep, via := range pkgs.deps(t, rule.pkg) {
			allowed := !isForeign(dep) || slices.ContainsFunc(rule.uses, func(lib string) bool { return in(lib)(dep) })
			if !allowed || slices.Contains(rule.never, dep) {
				t.Errorf("%s depends on %s (imported by %s): %s", rule.pkg, dep, via, rule.why)
			}
		}
	}
}

func TestWithout(t *testing.T) {
	pkgs := load(t)
	for _, rule := range without {
		for dep, via := range pkgs.deps(t, rule.pkg) {
			if dep != rule.but && slices.ContainsFunc(rule.never, func(never string) bool { return in(never)(dep) }) {
				t.Errorf("%s depends on %s (imported by %s): %s", rule.pkg, dep, via, rule.why)
			}
		}
	}
}

func TestProgramsHoldNoTestHelpers(t *testing.T) {
	pkgs := load(t)
	for name, p := range pkgs {
		if p.Name != "main" {
			continue
		}
		if via, found := pkgs.deps(t, name)["testing"]; found {
			t.Errorf("%s depends on testing (imported by %s)", name, via)
		}
	}
}

// packages are those of the main module by their path in it.
type packages map[string]*build.Package

// load reads the imports of the main module's packages.
func load(t *testing.T) packages {
	t.Helper()
	root := filepath.Join("..", "..", "..")
	pkgs := packages{}
	err := filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if dir != root && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") || isModule(dir)) {
			return filepath.SkipDir
		}
		p, err := build.Default.ImportDir(dir, 0)
		if _, none := errors.AsType[*build.NoGoError](err); none {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, dir)
		pkgs[filepath.ToSlash(name)] = p
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pkgs
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// deps returns what a package depends on, tests left out: packages of the main
// module by their path in it, and through them the others by their import
// path. The value is a package that imports it.
func (pkgs packages) deps(t *testing.T, name string) map[string]string {
	t.Helper()
	if pkgs[name] == nil {
		t.Errorf("a rule is about %s, which does not exist", name)
	}
	deps := map[string]string{}
	var visit func(name string)
	visit = func(name string) {
		p := pkgs[name]
		if p == nil {
			return
		}
		for _, dep := range p.Imports {
			dep = strings.TrimPrefix(dep, module+"/")
			if _, seen := deps[dep]; !seen {
				deps[dep] = name
				visit(dep)
			}
		}
	}
	visit(name)
	return deps
}

// in tells whether a package is parent or inside it; for a library, in any
// major version.
func in(parent string) func(string) bool {
	return func(pkg string) bool {
		return pkg == parent || strings.HasPrefix(pkg, parent+"/")
	}
}

// isForeign tells whether a package is neither of the standard library nor of
// the main module.
func isForeign(pkg string) bool {
	first, _, _ := strings.Cut(pkg, "/")
	return strings.Contains(first, ".")
}
