package accesslog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/accesslog"
)

func start(t *testing.T, cfg accesslog.Config) *accesslog.Log {
	t.Helper()
	l, err := accesslog.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, l) })
	return l
}

func end(t *testing.T, l *accesslog.Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// lines returns the lines of a file.
func lines(t *testing.T, file string) (all []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Errorf("%v: %s", err, line)
		}
		all = append(all, fields)
	}
	return all
}

var whole = accesslog.Entry{
	Time: time.Date(2026, 1, 2, 3, 4, 5, 6789e3, time.FixedZone("", 3600)), ID: "4bf92f3577b34da6a3ce929d0e0e4736", Route: "orders", Method: "GET",
	Path: "/a\"b\x01ö\xff", Status: 200, BytesIn: 1, BytesOut: 2, Key: "order-42", Partition: new(17), Owner: "w1", Way: "link", Tries: 2,
	Hold: accesslog.Milliseconds(1500 * time.Microsecond), Wait: new(1.0), Run: new(0.0), Total: 20, Error: "no-owner",
}

func TestLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for _, keys := range []bool{false, true} {
		l := start(t, accesslog.Config{File: file, Keys: keys})
		l.Add(whole)
		l.Add(accesslog.Entry{Method: "GET", Status: 404, Partition: new(17)})
		end(t, l)
	}
	all := lines(t, file)
	if len(all) != 4 {
		t.Fatalf("%d lines, want 4", len(all))
	}
	want := map[string]any{
		"time": "2026-01-02T02:04:05.006789Z", "id": whole.ID, "route": "orders", "method": "GET", "path": "/a\"b\x01ö\uFFFD", "status": 200.,
		"bytes_in": 1., "bytes_out": 2., "partition": 17., "owner": "w1", "way": "link", "tries": 2.,
		"hold_ms": 1.5, "wait_ms": 1., "run_ms": 0., "total_ms": 20., "error": "no-owner",
	}
	want["key_hash"] = all[0]["key_hash"]
	if hash, _ := all[0]["key_hash"].(string); len(hash) != 16 {
		t.Errorf("the key's hash is %q", hash)
	}
	if !reflect.DeepEqual(all[0], want) {
		t.Errorf("got  %v\nwant %v", all[0], want)
	}
	if want["key"] = "order-42"; !reflect.DeepEqual(all[2], want) {
		t.Errorf("with keys: got  %v\nwant %v", all[2], want)
	}
	least := all[1]
	for _, name := range []string{"key", "key_hash", "partition", "owner", "wait_ms", "run_ms", "error"} {
		if v, ok := least[name]; ok {
			t.Errorf("%s is %v, want none", name, v)
		}
	}
	if id, _ := least["id"].(string); len(id) != 32 || id == all[3]["id"] {
		t.Errorf("the made up id is %q, and another time %q", id, all[3]["id"])
	}
}

func TestSampling(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	l := start(t, accesslog.Config{File: file, Sample: 10, Slow: time.Second})
	n := 0
	for range 100_000 {
		if l.Wants(499, time.Second-1) {
			n++
		}
	}
	if n < 9_000 || n > 11_000 { // ten standard deviations
		t.Errorf("%d of 100,000 requests have lines, want one of ten", n)
	}
	for range 1000 {
		if !l.Wants(500, 0) || !l.Wants(200, time.Second) {
			t.Fatal("a failure or a slow request has no line")
		}
	}
	each := start(t, accesslog.Config{File: file})
	for range 1000 {
		if !each.Wants(200, 0) {
			t.Fatal("a request has no line")
		}
	}
}

// After a rename and Reopen lines go to a new file, and none is lost.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	file, old := filepath.Join(dir, "log"), filepath.Join(dir, "log.1")
	l := start(t, accesslog.Config{File: file})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				l.Add(whole)
			}
		})
	}
	if err := os.Rename(file, old); err != nil {
		t.Fatal(err)
	}
	l.Reopen()
	wg.Wait()
	l.Add(whole)
	end(t, l)
	if n := len(lines(t, old)) + len(lines(t, file)); n != 2001 {
		t.Errorf("%d lines in both files, want 2001", n)
	}
	if len(lines(t, file)) == 0 {
		t.Error("no line is in the new file")
	}
}

// A log that cannot be opened anew goes on in the old file.
func TestReopenFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	l := start(t, accesslog.Config{File: filepath.Join(dir, "log"), Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err := os.Rename(dir, dir+"2"); err != nil {
		t.Fatal(err)
	}
	l.Reopen()
	l.Add(whole)
	end(t, l)
	if len(lines(t, filepath.Join(dir+"2", "log"))) != 1 || !strings.Contains(said.String(), "cannot be reopened") {
		t.Errorf("the log says %s", said.String())
	}
}

// What exceeds the buffer, and what a file does not take, is dropped, counted and said.
func TestDrops(t *testing.T) {
	var said bytes.Buffer
	l := start(t, accesslog.Config{File: "/dev/full", Logger: slog.New(slog.NewTextHandler(&said, nil))})
	e := whole
	e.Path = "/" + strings.Repeat("x", 4<<20)
	l.Add(e)
	if n := l.Dropped(); n != 1 {
		t.Errorf("%d lines dropped, want the one that does not fit", n)
	}
	e.Path = "/"
	l.Add(e)
	end(t, l)
	if n := l.Dropped(); n != 2 || !strings.Contains(said.String(), "dropped") || !strings.Contains(said.String(), "cannot be written") {
		t.Errorf("%d lines dropped, and the log says %s", n, said.String())
	}
	l.Add(e)
	if n := l.Dropped(); n != 3 {
		t.Errorf("%d lines dropped, want also that of a closed log", n)
	}
}

func TestStartFails(t *testing.T) {
	if _, err := accesslog.Start(accesslog.Config{File: filepath.Join(t.TempDir(), "none", "log")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is missing: %v", err)
	}
}

func BenchmarkAdd(b *testing.B) {
	l, err := accesslog.Start(accesslog.Config{File: os.DevNull})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	e := whole
	e.Path = "/orders/42"
	b.ReportAllocs()
	for b.Loop() {
		l.Add(e)
	}
}
