package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/internal/yamlfile"
)

// write writes a file of settings and returns its name.
func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func defineWithFile(o *options) *Flags {
	f := define(o)
	f.File()
	return f
}

func TestFileOfSettings(t *testing.T) {
	name := write(t, `# the settings of one program
listen: :8080
hold: 3s         # not the default
join: [a:1, "b:2"]
key:
  - header:X-Order
  - query:a host
partitions: 64
new-cluster: true
gossip-key:
  - 000102030405060708090a0b0c0d0e0f
  - 00010203040506070809000102030405
log-level: 'debug'
`)
	var o options
	if err := defineWithFile(&o).Parse([]string{"--config", name}, nil); err != nil {
		t.Fatal(err)
	}
	if o.listen != ":8080" || o.hold != 3*time.Second || o.size != 64 || !o.fresh || len(o.keyring) != 2 || o.log.level.String() != "DEBUG" {
		t.Errorf("got %+v", o)
	}
	if !slices.Equal(o.join, []string{"a:1", "b:2"}) || !slices.Equal(o.keys, []string{"header:X-Order", "query:a", "host"}) {
		t.Errorf("join %q, key %q", o.join, o.keys)
	}
}

func TestFlagBeforeEnvironmentBeforeFile(t *testing.T) {
	t.Setenv("KEYWAY_CONFIG", write(t, "hold: 1s\nlisten: :1\njoin: [a:1]\nkey: host\npartitions: 7\n"))
	t.Setenv("KEYWAY_LISTEN", ":2")
	t.Setenv("KEYWAY_HOLD", "2s")
	t.Setenv("KEYWAY_JOIN", "b:2")
	var o options
	if err := defineWithFile(&o).Parse([]string{"--hold", "3s", "--key=query:a", "--key=query:b"}, nil); err != nil {
		t.Fatal(err)
	}
	if o.hold != 3*time.Second || o.listen != ":2" || o.size != 7 {
		t.Errorf("got %+v", o)
	}
	if !slices.Equal(o.join, []string{"b:2"}) || !slices.Equal(o.keys, []string{"query:a", "query:b"}) {
		t.Errorf("join %q, key %q", o.join, o.keys)
	}
	o = options{}
	if err := defineWithFile(&o).Parse([]string{"--config=" + write(t, "partitions: 8")}, nil); err != nil || o.size != 8 {
		t.Errorf("the flag --config has not the last word: %v, %d", err, o.size)
	}
	for _, empty := range []string{"", "# nothing\n", "---\n"} {
		o = options{}
		if err := defineWithFile(&o).Parse([]string{"--config", write(t, empty)}, nil); err != nil || o.size != 4096 {
			t.Errorf("%q: %v", empty, err)
		}
	}
}

func TestFileErrors(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"hold: 1s\nlisen: :1\n", ":2:1: unknown setting lisen; the nearest one is listen"},
		{"upstream: http://x\n", ":1:1: upstream is no setting of router, but of another program"},
		{"config: x\n", ":1:1: a file of settings cannot name another one"},
		{"\n\nhold: soon\n", `:3:7: hold: "soon" is not a duration`},
		{"hold:\n", ":1:7: want a value"},
		{"hold: [1s]\n", ":1:1: hold takes one value, not a list"},
		{"hold: {a: 1}\n", ":1:8: want a"},
		{"join: [{a: 1}]\n", ":1:9: want a single value"},
		{"join: []\n", ":1:7: join: empty list"},
		{"1: x\n", ":1:1: unknown setting 1"},
		{"null: x\n", ":1:1: want a value"},
		{"gossip-key: hunter2\n", ":1:13: gossip-key: not a key of 16, 24 or 32 bytes"},
		{"partitions: 0\n", ":1:13: partitions: 0 is below 1"},
		{"new-cluster: maybe\n", `:1:14: new-cluster: "maybe" is neither`},
		{"hold: 1s\nhold: 2s\n", ":2:1: this is not YAML: mapping key"},
		{"hold: 1s\n---\nhold: 2s\n", ":3:1: a second document"},
		{"just text\n", ":1:1: want fields"},
		{"- a\n", ":1:1: want fields"},
		{"hold: &a 1s\n", ":1:7: anchors"},
		{"hold: soon\nlisen: :1\n", "; "},
		{"hold: 'x\n", ":1:"},
		{"hold: 1s\n\tlisten: x\n", ":2:"},
		{strings.Repeat("# long\n", yamlfile.MaxSize/7+1), "at most 1048576"},
	} {
		var o options
		err := defineWithFile(&o).Parse([]string{"--config", write(t, tt.text)}, nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") || ExitCode(err) != 2 {
			t.Errorf("%.30q: %v (exit code %d), want one line with %q", tt.text, err, ExitCode(err), tt.want)
		}
	}
	var o options
	if err := defineWithFile(&o).Parse([]string{"--config", "/nonexistent"}, nil); err == nil || ExitCode(err) != 2 || !strings.HasPrefix(err.Error(), "--config: ") {
		t.Errorf("a file that is not there: %v", err)
	}
	t.Setenv("KEYWAY_CONFIG", "/nonexistent")
	if err := defineWithFile(&o).Parse(nil, nil); err == nil || !strings.HasPrefix(err.Error(), "--config: ") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte("a: b\nc: [1, 'x']\n"))
	f.Add([]byte("? [a]\n: 1\n"))
	f.Add([]byte("a: |\n  x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		name := filepath.Join(t.TempDir(), "settings.yaml")
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		var o options
		err := defineWithFile(&o).Parse([]string{"--config", name}, nil)
		if err != nil && (strings.Contains(err.Error(), "\n") || ExitCode(err) != 2) {
			t.Errorf("the error has several lines, or is none of usage: %v", err)
		}
	})
}
