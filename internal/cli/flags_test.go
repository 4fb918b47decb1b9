package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

type options struct {
	listen  string
	hold    time.Duration
	join    []string
	keys    []string
	size    int
	fresh   bool
	keyring keyring
	log     logFlags
}

func define(o *options) *Flags {
	f := NewFlags("router", "Router is the front door.")
	f.Group("Addresses")
	f.Address(&o.listen, "listen", "127.0.0.1:8080", "`host:port` where clients connect")
	f.List(&o.join, "join", ", ", nil, "gossip `addresses`")
	f.Group("Behaviour")
	f.Duration(&o.hold, "hold", 15*time.Second, 0, "how long a request waits; `0` fails at once")
	f.List(&o.keys, "key", " ", []string{"header:X-Key"}, "where the `key` is")
	f.Int(&o.size, "partitions", 4096, 1, "`number` of partitions, "+strings.Repeat("the same on all members, ", 5))
	f.Bool(&o.fresh, "new-cluster", "the store is new")
	f.Var(&o.keyring, "gossip-key", "`key` of gossip")
	o.log.define(f)
	return f
}

func TestPrecedence(t *testing.T) {
	t.Setenv("KEYWAY_HOLD", "1s")
	t.Setenv("KEYWAY_LISTEN", ":1")
	t.Setenv("KEYWAY_NEW_CLUSTER", "true")
	t.Setenv("KEYWAY_JOIN", "a:1,b:2")
	t.Setenv("KEYWAY_LOG_LEVEL", "debug")
	t.Setenv("KEYWAY_PARTITIONS", "")
	var o options
	err := define(&o).Parse([]string{"--hold", "2s", "-key=query:a host", "--key", "host", "--join", "c:3"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if o.hold != 2*time.Second || o.listen != ":1" || !o.fresh || o.size != 4096 {
		t.Errorf("got %+v", o)
	}
	if want := []string{"c:3"}; !slices.Equal(o.join, want) {
		t.Errorf("join = %q, want %q: the flag replaces the environment's list", o.join, want)
	}
	if want := []string{"query:a", "host", "host"}; !slices.Equal(o.keys, want) {
		t.Errorf("key = %q, want %q", o.keys, want)
	}
	var out bytes.Buffer
	o.log.logger(&out).Debug("shown")
	if !strings.Contains(out.String(), "shown") {
		t.Error("KEYWAY_LOG_LEVEL=debug had no effect")
	}
}

// A flag that needs another one is a mistake without it, unless it is of an environment for several programs.
func TestNeed(t *testing.T) {
	parse := func(args ...string) (public, cert string, err error) {
		f := NewFlags("worker", "")
		f.String(&public, "public", "", "")
		f.Need("public", func() { f.String(&cert, "tls-cert", "", "") })
		f.File()
		return public, cert, f.Parse(args, nil)
	}
	for _, args := range [][]string{{"--tls-cert", "a"}, {"--config", write(t, "tls-cert: a\n")}} {
		if _, _, err := parse(args...); ExitCode(err) != 2 || err.Error() != "--tls-cert has no effect without --public" {
			t.Errorf("%v: %v", args, err)
		}
	}
	t.Setenv("KEYWAY_TLS_CERT", "b")
	if _, cert, err := parse(); err != nil || cert != "b" {
		t.Errorf("by the environment: %q, %v", cert, err)
	}
	t.Setenv("KEYWAY_PUBLIC", ":1")
	if _, cert, err := parse("--tls-cert", "a"); err != nil || cert != "a" {
		t.Errorf("with --public by the environment: %q, %v", cert, err)
	}
}

func TestLogFormats(t *testing.T) {
	for format, want := range map[string]string{
		"":        `^time=\S+ level=INFO msg="it says" a="k\\u202e\\x1b"\n$`,
		"auto":    `^time=\S+ level=INFO msg="it says" a="k\\u202e\\x1b"\n$`,
		"text":    `^time=\S+ level=INFO msg="it says" a="k\\u202e\\x1b"\n$`,
		"json":    `^\{"time":"[^"]+","level":"INFO","msg":"it says","a":"k\x{202e}\\u001b"\}\n$`,
		"console": `^[0-9:.]{12} I it says  a="k\\u202e\\x1b"\n$`,
	} {
		t.Setenv("KEYWAY_LOG", format)
		var o options
		if err := define(&o).Parse(nil, nil); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		l := o.log.logger(&out)
		l.Debug("unheard")
		l.Info("it says", "a", "k\u202e\x1b")
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("%q: %q", format, out.String())
		}
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	var o options
	t.Setenv("KEYWAY_LOG", "")
	if err := define(&o).Parse(nil, nil); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NO_COLOR", "1")
	o.log.logger(terminal).Info("it says")
	echo := make([]byte, 100) // which a terminal sends for what it is sent
	if n, err := terminal.Read(echo); err != nil || !bytes.Contains(echo[:n], []byte(" I it says\r\n")) {
		t.Errorf("the log on a terminal is not for people: %q, %v", echo[:n], err)
	}
}

func TestUsageErrors(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"--lisen", "x"}, "unknown flag --lisen; the nearest one is --listen"},
		{[]string{"x"}, `unexpected argument "x"`},
		{[]string{"--"}, `unexpected argument "--"`},
		{[]string{"--hold"}, "--hold needs a value"},
		{[]string{"--hold", "soon"}, `--hold: "soon" is not a duration`},
		{[]string{"--hold=-1s"}, "--hold: -1s is below 0s"},
		{[]string{"--partitions", "0"}, "--partitions: 0 is below 1"},
		{[]string{"--listen", "8080"}, `--listen: "8080" is not host:port, such as 127.0.0.1:8080`},
		{[]string{"--listen", ":http"}, `--listen: ":http": the port is not a number`},
		{[]string{"--log", "xml"}, `--log: "xml" is none of auto, console, text, json`},
		{[]string{"--log-level", "loud"}, `--log-level: "loud" is none of`},
		{[]string{"--new-cluster=maybe"}, `--new-cluster: "maybe" is neither`},
		{[]string{"--key", " "}, "--key: empty list"},
		{[]string{"--gossip-key", "hunter2"}, "--gossip-key: not a key of 16, 24 or 32 bytes"},
	}
	for _, tt := range tests {
		var o options
		err := define(&o).Parse(tt.args, nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want one line with %q", tt.args, err, tt.want)
		}
		if ExitCode(err) != 2 {
			t.Errorf("%q: exit code %d, want 2", tt.args, ExitCode(err))
		}
	}
	t.Setenv("KEYWAY_HOLD", "soon")
	var o options
	if err := define(&o).Parse(nil, nil); err == nil || !strings.HasPrefix(err.Error(), "KEYWAY_HOLD: ") {
		t.Errorf("bad environment: %v", err)
	}
}

func TestSecretsStaySecret(t *testing.T) {
	t.Setenv("KEYWAY_GOSSIP_KEY", "AAECAwQFBgcICQoLDA0ODw==")
	var o options
	f := define(&o)
	if err := f.Parse(nil, nil); err != nil {
		t.Fatal(err)
	}
	if len(o.keyring) != 1 || len(o.keyring[0]) != 16 {
		t.Errorf("keyring has %d keys", len(o.keyring))
	}
	if fmt.Sprint(&o.keyring) != "" {
		t.Error("a keyring prints itself")
	}
	if err := o.keyring.Set(strings.Repeat("00", 32) + "," + strings.Repeat("11", 24)); err != nil || len(o.keyring) != 2 {
		t.Errorf("two keys: %v, %d", err, len(o.keyring))
	}
}

func TestHelp(t *testing.T) {
	var o options
	var out bytes.Buffer
	err := define(&o).Parse([]string{"--listen", ":1", "--help"}, &out)
	if !errors.Is(err, flag.ErrHelp) || ExitCode(err) != 0 {
		t.Fatalf("%v, exit code %d", err, ExitCode(err))
	}
	want := `Usage: router [flags]

Router is the front door.

Each flag can be set by an environment variable too: KEYWAY_ and its name, as KEYWAY_LOG_LEVEL for
--log-level. Where both are given, the flag counts. --version prints the version.

Addresses:
  --listen host:port
        host:port where clients connect (default 127.0.0.1:8080)
  --join addresses
        gossip addresses

Behaviour:
  --hold 0
        how long a request waits; 0 fails at once (default 15s)
`
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("help:\n%s", out.String())
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "    ") && len(line) > helpWidth+1 {
			t.Errorf("a line of help has %d characters: %q", len(line), line)
		}
	}
	if !strings.Contains(out.String(), "  --new-cluster\n        the store is new\n") {
		t.Errorf("a boolean shows a value or a default:\n%s", out.String())
	}
}

func TestExitCodes(t *testing.T) {
	for err, want := range map[error]int{nil: 0, flag.ErrHelp: 0, net.ErrClosed: 1, context.Canceled: 1} {
		if got := ExitCode(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
	if ExitCode(fmt.Errorf("wrapped: %w", Usagef("x"))) != 2 {
		t.Error("a wrapped usage error does not exit with 2")
	}
}

// An error is one line, and moves no terminal's cursor.
func TestErrorIsOneLine(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	os.Stderr = out
	code := Main("router", func(context.Context, []string, io.Writer, io.Writer) error {
		return errors.Join(errors.New("key \u202ek\x1b[2J"), errors.New("second"))
	})
	got, err := os.ReadFile(out.Name())
	if want := `router: key \u202ek\x1b[2J; second` + "\n"; err != nil || code != 1 || string(got) != want {
		t.Errorf("exit %d with %q (%v), want %q", code, got, err, want)
	}
}

// A variable that no program reads is refused; one that another program or
// nobody of ours has set is not.
func TestUnknownEnvironment(t *testing.T) {
	for _, tt := range []struct{ name, value, nearest string }{
		{"KEYWAY_LISEN", ":1", "KEYWAY_LISTEN"},
		{"KEYWAY_LOGLEVEL", "debug", "KEYWAY_LOG_LEVEL"},
		{"KEYWAY_TTL", "5s", "KEYWAY_"},
		{"KEYWAY_listen", ":1", "KEYWAY_LISTEN"},
		{"KEYWAY_PORT", "8080", "KEYWAY_"},
		{"KEYWAY_", "x", "KEYWAY_"},
		{"KEYWAY_UPSTREAM", "not read by this program", ""},
		{"KEYWAY_LISEN", "", ""},
		{"KEYWAY", "x", ""},
		{"NOT_KEYWAY_X", "x", ""},
		{"KEYWAY_SERVICE_HOST", "10.0.0.1", ""}, // what Kubernetes sets for a service
		{"KEYWAY_ROUTER_SERVICE_PORT_HTTP", "80", ""},
		{"KEYWAY_PORT", "tcp://10.0.0.1:80", ""},
		{"KEYWAY_ROUTER_PORT_80_TCP", "tcp://10.0.0.1:80", ""},
		{"KEYWAY_ROUTER_PORT_80_TCP_ADDR", "10.0.0.1", ""},
	} {
		t.Run(tt.name+"="+tt.value, func(t *testing.T) {
			t.Setenv(tt.name, tt.value)
			var o options
			err := define(&o).Parse(nil, nil)
			if tt.nearest == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if ExitCode(err) != 2 || !strings.Contains(err.Error(), tt.name+"; ") || !strings.Contains(err.Error(), "nearest one is "+tt.nearest) {
				t.Errorf("%v, want exit code 2 and the nearest name %s", err, tt.nearest)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	var o options
	var out bytes.Buffer
	err := define(&o).Parse([]string{"--version"}, &out)
	if !errors.Is(err, flag.ErrHelp) || !strings.HasPrefix(out.String(), "keyway router ") || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("%v: %q", err, out.String())
	}
}

func TestStateLine(t *testing.T) {
	if got, want := StateLine("worker ready", "http://h:1", "", "h:3"), "keyway worker ready: requests http://h:1, gossip h:3\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := StateLine("router ready", "https://h:1", "h:2", "h:3"), "keyway router ready: requests https://h:1, admin http://h:2, gossip h:3\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
