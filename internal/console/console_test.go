package console_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/keyway-go/keyway/internal/console"
)

var line = regexp.MustCompile(`^(?:(\d\d:\d\d:\d\d\.\d{3}) )?([DIWE]-?\d*) ([a-z]+)( (?: \S+=\S+)+)?$`)

func TestHandlerOfSlog(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return console.New(&out, nil, false)
	}, func(t *testing.T) map[string]any {
		return parse(t, strings.TrimSuffix(out.String(), "\n"))
	})
}

// parse returns what a line says, with the attributes of groups in maps.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	m := line.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("line %q", text)
	}
	all := map[string]any{slog.LevelKey: m[2], slog.MessageKey: m[3]}
	if m[1] != "" {
		all[slog.TimeKey] = m[1]
	}
	for field := range strings.FieldsSeq(m[4]) {
		path, value, _ := strings.Cut(field, "=")
		names, in := strings.Split(path, "."), all
		for _, group := range names[:len(names)-1] {
			if in[group] == nil {
				in[group] = map[string]any{}
			}
			in = in[group].(map[string]any)
		}
		in[names[len(names)-1]] = value
	}
	return all
}

func TestLines(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.UTC)
	for _, tt := range []struct {
		level   slog.Level
		message string
		args    []any
		want    string
	}{
		{slog.LevelInfo, "partitions taken over", []any{"n", 341, "took", 539 * time.Millisecond}, "05:06:07.089 I partitions taken over  n=341 took=539ms"},
		{slog.LevelWarn, "it is late", []any{"because", "nobody had them", "none", ""}, `05:06:07.089 W it is late  because="nobody had them" none=""`},
		{slog.LevelError, "failed", []any{"error", errors.New(`a "b"`), "x=y", "a=b"}, `05:06:07.089 E failed  error="a \"b\"" "x=y"="a=b"`},
		{slog.LevelDebug, "at", []any{"time", at, "nil", nil}, "05:06:07.089 D at  time=2026-03-04T05:06:07.089Z nil=<nil>"},
		{slog.LevelDebug - 4, "low", nil, "05:06:07.089 D-4 low"},
		{slog.LevelInfo + 2, "between", nil, "05:06:07.089 I2 between"},
		{slog.LevelInfo, "a \"quote\", größer\n\x1b[2Jgone", []any{"path", "/a\x1b[1m\nb", "bad", "\xff"}, `05:06:07.089 I a "quote", größer\n\x1b[2Jgone  path="/a\x1b[1m\nb" bad="\xff"`},
		{slog.LevelInfo, "turned\u202eround", []any{"key", "k\u202e\u2066"}, `05:06:07.089 I turned\u202eround  key="k\u202e\u2066"`},
		{slog.LevelInfo, `say "so"`, nil, `05:06:07.089 I say "so"`},
	} {
		var out bytes.Buffer
		r := slog.NewRecord(at, tt.level, tt.message, 0)
		r.Add(tt.args...)
		if err := console.New(&out, &slog.HandlerOptions{Level: slog.LevelDebug - 4}, false).Handle(t.Context(), r); err != nil {
			t.Error(err)
		}
		if got := out.String(); got != tt.want+"\n" {
			t.Errorf("got  %swant %s", got, tt.want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "",
		`größer 世界 "so" \n`:               `größer 世界 "so" \n`,
		"\x1b]0;title\x07\r\n\t\u009b":    `\x1b]0;title\a\r\n\t\u009b`,
		"\u202eabc\u2066\u200f\u2028\xff": `\u202eabc\u2066\u200f\u2028\xff`,
	} {
		if got := console.Printable(text); got != want {
			t.Errorf("%+q: %s, want %s", text, got, want)
		}
	}
}

func TestLevel(t *testing.T) {
	var out bytes.Buffer
	for level, wants := range map[slog.Leveler]string{nil: "IE", slog.LevelError: "E", slog.LevelDebug: "DIE"} {
		out.Reset()
		l := slog.New(console.New(&out, &slog.HandlerOptions{Level: level}, false))
		l.Debug("d")
		l.Info("i")
		l.Error("e")
		if got := regexp.MustCompile(`(?m)^.* ([DIE]) .*\n`).ReplaceAllString(out.String(), "$1"); got != wants {
			t.Errorf("%v: %q, want %q", level, got, wants)
		}
	}
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// With colour a line says the same, and ends without it.
func TestColor(t *testing.T) {
	var plain, colored bytes.Buffer
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "message", 0)
	r.Add("a", 1, "b", "two words", "c=d", `x=1 "y`, "e", "\x1b[31m")
	console.New(&plain, nil, false).Handle(t.Context(), r)
	console.New(&colored, nil, true).Handle(t.Context(), r)
	got := colored.String()
	if escapes.ReplaceAllString(got, "") != plain.String() || got == plain.String() {
		t.Errorf("%q, want %q in colour", got, plain.String())
	}
	if all := escapes.FindAllString(got, -1); len(all)%2 != 0 || all[len(all)-1] != "\x1b[0m" {
		t.Errorf("%q does not end its colours", got)
	}
}

// Lines of several goroutines, and of loggers made of one, do not mix.
func TestLinesStayWhole(t *testing.T) {
	var out lines
	l := slog.New(console.New(&out, nil, false))
	var wg sync.WaitGroup
	for i := range 8 {
		with := l.With("goroutine", i).WithGroup("g")
		wg.Go(func() {
			for n := range 100 {
				with.Info("line", "n", n)
			}
		})
	}
	wg.Wait()
	if len(out.all) != 800 {
		t.Errorf("%d writes, want 800", len(out.all))
	}
	for _, got := range out.all {
		if !regexp.MustCompile(`^\S+ I line  goroutine=\d g\.n=\d+\n$`).MatchString(got) {
			t.Errorf("line %q", got)
		}
	}
}

// lines is what was written, and is not for several goroutines at once.
type lines struct{ all []string }

func (l *lines) Write(p []byte) (int, error) {
	l.all = append(l.all, string(p))
	return len(p), nil
}

func TestColorIsForTerminals(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	file, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, w := range []io.Writer{file, null, new(bytes.Buffer)} {
		if console.HasColor(w) || console.IsTerminal(w) {
			t.Errorf("%T is no terminal", w)
		}
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	for _, tt := range []struct {
		noColor, term string
		want          bool
	}{{"", "xterm", true}, {"1", "xterm", false}, {"", "dumb", false}} {
		t.Setenv("NO_COLOR", tt.noColor)
		t.Setenv("TERM", tt.term)
		if got := console.HasColor(terminal); got != tt.want || !console.IsTerminal(terminal) {
			t.Errorf("%+v: colour %t", tt, got)
		}
	}
}
