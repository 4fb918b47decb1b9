package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// writeRoutes replaces a file as editors do.
func writeRoutes(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// routesOf reads /routes of the admin address.
func routesOf(t *testing.T, r *startRouter) (s status.RoutesStatus) {
	t.Helper()
	if _, body := fetch(t, r.admin+"/routes", ""); json.Unmarshal([]byte(body), &s) != nil {
		t.Fatalf("/routes: %s", body)
	}
	return s
}

func TestRoutesFile(t *testing.T) {
	const first = "routes:\n- {name: orders, match: {path: '/orders/{id}'}, key: path:id}\n"
	file := filepath.Join(t.TempDir(), "routes.yaml")
	writeRoutes(t, file, first)
	r := start(t, "--routes", file)
	join(t, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("Keyway-Key")) }))
	expect := func(path, want string) {
		t.Helper()
		code, body := fetch(t, r.requests+path, "")
		if code != 200 {
			body = http.StatusText(code)
		}
		if body != want {
			t.Errorf("%s: %q, want %q", path, body, want)
		}
	}
	expect("/orders/7", "7")
	expect("/host", "Not Found")
	was := routesOf(t, r)
	if len(was.Names) != 1 || was.File != file || was.Loaded.IsZero() {
		t.Errorf("%+v", was)
	}

	writeRoutes(t, file, first+"- {name: host, match: {path: /host}, key: host}\n")
	kit.Eventually(t, "the new file is in force", func() bool { return len(routesOf(t, r).Names) == 2 })
	expect("/orders/7", "7")
	expect("/host", "127.0.0.1")
	now := routesOf(t, r)

	for bad, want := range map[string]string{
		"routes:\n- {name: orders, kye: host}\n":                                      file + ":2:18: unknown field",
		strings.Replace(first, "'/orders/{id}'", "'/{id}'", 1):                        "stop all routers",
		first + "- {name: other, match: {path: /host}, key: query:x, timeout: 10s}\n": "stop all routers",
	} {
		writeRoutes(t, file, bad)
		kit.Eventually(t, want, func() bool { return strings.Contains(routesOf(t, r).Error, want) })
		if after := routesOf(t, r); after.Digest != now.Digest || !after.Loaded.Equal(now.Loaded) || len(after.Names) != 2 {
			t.Errorf("a bad file is in force: %+v", after)
		}
		expect("/host", "127.0.0.1")
	}
	if code, body := fetch(t, r.admin+"/readyz", ""); code != 200 {
		t.Errorf("not ready with a bad file: %s", body)
	}
	os.Remove(file)
	kit.Eventually(t, "the missing file", func() bool { return strings.Contains(routesOf(t, r).Error, "no such file") })
	expect("/host", "127.0.0.1")
	writeRoutes(t, file, first)
	kit.Eventually(t, "the first file again", func() bool { s := routesOf(t, r); return s.Error == "" && s.Digest == was.Digest })
	expect("/host", "Not Found")
}

// On SIGHUP the file is read even if it looks the same.
func TestHangupReadsTheRoutes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "routes.yaml")
	writeRoutes(t, file, "routes: [{name: a, key: host}]\n")
	r := start(t, "--routes", file)
	was := routesOf(t, r).Loaded
	if err := kit.Must(os.FindProcess(os.Getpid())).Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "the file is read", func() bool { return routesOf(t, r).Loaded.After(was) })
	if strings.Contains(r.stderr.String(), "SIGHUP is ignored") {
		t.Errorf("%s", r.stderr)
	}
}

func TestAccessLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.log")
	r := start(t, "--access-log", file, "--hold", "0s")
	has := func(n int) {
		t.Helper()
		kit.Eventually(t, fmt.Sprint("the file has lines: ", n), func() bool {
			text, _ := os.ReadFile(file)
			return strings.Count(string(text), `"error":"no-owner"`) == n
		})
	}
	fetch(t, r.requests, "k")
	has(1)
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	if err := kit.Must(os.FindProcess(os.Getpid())).Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	has(0)
	kit.Eventually(t, "the file is there again", func() bool { _, err := os.Stat(file); return err == nil })
	fetch(t, r.requests, "k")
	has(1)
	err := run(t.Context(), append(free, "--access-log", filepath.Join(t.TempDir(), "none", "log")), io.Discard, io.Discard)
	if cli.ExitCode(err) != 2 || !strings.Contains(err.Error(), "--access-log") {
		t.Errorf("a directory that is missing: %v", err)
	}
}

func TestRoutesFlags(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good"), filepath.Join(dir, "bad")
	writeRoutes(t, good, "routes: [{name: a, key: host}]\n")
	writeRoutes(t, bad, "routes: [{name: a, kye: host}]\n")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--routes", good, "--key", "header:X-Key"}, "--key and --routes exclude each other"},
		{[]string{"--routes", good, "--without-key", "any"}, "--without-key and --routes exclude each other"},
		{[]string{"--routes", bad}, bad + ":1:20: unknown field \"kye\""},
		{[]string{"--routes", filepath.Join(dir, "absent")}, "no such file"},
		{[]string{"--without-key", "maybe"}, "--without-key: without-key is none of"},
		{[]string{"check"}, "router check FILE"},
		{[]string{"check", bad}, bad + ":1:20: unknown field \"kye\""},
		{[]string{"check", good, "--request", "x"}, "want a method and a URL"},
		{[]string{"check", good, "more"}, "unexpected argument"},
		{[]string{"check", good, "--header", "X-Key: 7"}, "--header has no effect without --request"},
		{[]string{"check", good, "--request", "GET http://h/a#b"}, "without a #"},
		{[]string{"check", good, "--request", "GET shop.example/a"}, "neither a URL"}, // which has no host
		{[]string{"check", good, "--request", "GET http://h/a", "--header", "X-Key"}, "NAME: VALUE"},
	} {
		err := run(t.Context(), tt.args, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tt.want) || cli.ExitCode(err) != 2 {
			t.Errorf("%q: %v, want %q and exit code 2", tt.args, err, tt.want)
		}
	}
	t.Setenv("KEYWAY_KEY", "host")
	if err := run(t.Context(), []string{"--routes", good}, io.Discard, io.Discard); cli.ExitCode(err) != 2 {
		t.Errorf("KEYWAY_KEY and --routes: %v", err)
	}
}

func TestCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "routes.yaml")
	writeRoutes(t, file, `
routes:
- name: orders
  match: {hosts: [shop.example], methods: [POST], path: "/orders/{id}"}
  key: [path:id, "header:X-Key"]
  prefix: "o:"
  mode: serialize
  timeout: 3s
  rate: {per-key: 5/s}
- {name: pay, match: {methods: [POST], path: /pay}, key: "header:X-Pay"}
- name: rest
  without-key: any
`)
	preflight := []string{"--header", "Origin: http://other", "--header", "Access-Control-Request-Method: POST"}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "NAME    MATCH                          KEY                                        MODE\n" +
			"orders  POST shop.example/orders/{id}  \"o:\" + path:/orders/{key} or header:X-Key  serialize\n" +
			"pay     POST /pay                      header:X-Pay                               auto\n" +
			"rest    all                            none: any                                  auto\n" +
			"The app must find the same key as the router, or take it from Keyway-Key: orders (path:/orders/{key}).\n" +
			"warning: requests without a key run at the same app, with no key held: rest (line 11). If the app takes one of them for a request of a route with keys, two run at once (keys: orders, pay)."},
		{[]string{"--request", "POST http://shop.example/orders/42"}, "route orders (line 3), key \"o:42\", partition "},
		{[]string{"--request", "GET http://shop.example/orders/42", "--header", "X-Key: 1"}, "route rest (line 11), no key: any\n"},
		{[]string{"--request", "POST http://h/pay"}, "route pay (line 10), no key: reject\n"},
		{append([]string{"--request", "OPTIONS http://h/pay"}, preflight...), "route pay (line 10), no key: any\n"},
		{append([]string{"--request", "OPTIONS http://shop.example/orders/42"}, preflight...), "route orders (line 3), key \"o:42\", partition "},
	} {
		var out bytes.Buffer
		err := run(t.Context(), append([]string{"check", file}, tt.args...), &out, io.Discard)
		if got := strings.Join(strings.Fields(out.String()), " "); err != nil || !strings.HasPrefix(got, strings.Join(strings.Fields(tt.want), " ")) {
			t.Errorf("%q: %v\n%s", tt.args, err, out.String())
		}
	}
}

// Without a file, --without-key says what becomes of requests that have no key.
func TestWithoutKey(t *testing.T) {
	r := start(t, "--without-key", "any")
	join(t, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "key "+r.Header.Get("Keyway-Key")) }))
	for key, want := range map[string]string{"": "key ", "7": "key 7"} {
		if code, body := fetch(t, r.requests, key); code != 200 || body != want {
			t.Errorf("%d %q, want %q", code, body, want)
		}
	}
	if s := routesOf(t, r); s.File != "" || len(s.Names) != 1 {
		t.Errorf("%+v", s)
	}
}
