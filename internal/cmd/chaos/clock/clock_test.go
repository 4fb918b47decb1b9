package clock

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const program = `package main

import ("bufio"; "fmt"; "os"; "time")

func main() {
	start := time.Now()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		now := time.Now()
		fmt.Println(int64(now.Sub(start)), now.UnixNano())
	}
}
`

// subject is a program with a clock of its own.
type subject struct {
	t     *testing.T
	start time.Time // about the program's
	ask   func() (mono time.Duration, wall time.Time)
}

func start(t *testing.T, c string) *subject {
	t.Helper()
	dir := t.TempDir()
	overlay, err := Overlay(dir)
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	main := filepath.Join(dir, "main.go")
	if err := os.WriteFile(main, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "program")
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", binary, main).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), Env+"="+c)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	lines := bufio.NewReader(out)
	return &subject{t: t, start: time.Now(), ask: func() (mono time.Duration, wall time.Time) {
		var ns int64
		fmt.Fprintln(in)
		if _, err := fmt.Fscanln(lines, &mono, &ns); err != nil {
			t.Fatal(err)
		}
		return mono, time.Unix(0, ns)
	}}
}

func TestClockFollows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clock")
	c, err := New(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := start(t, path)
	between := func(what string, before, got, after time.Time) {
		t.Helper()
		if got.Before(before.Add(-time.Millisecond)) || got.After(after.Add(time.Millisecond)) {
			t.Errorf("%s: %v, want from %v to %v", what, got, before, after)
		}
	}
	read := func() (before time.Time, mono time.Duration, wall, after time.Time) {
		before = time.Now()
		mono, wall = s.ask()
		return before, mono, wall, time.Now()
	}
	before, _, wall, after := read()
	between("untouched", before, wall, after)

	c.Step(time.Hour)
	before, monoHour, wall, after := read()
	between("an hour ahead", before.Add(time.Hour), wall, after.Add(time.Hour))
	if monoHour > 10*time.Minute {
		t.Errorf("a step of the wall clock has moved the monotonic one to %v", monoHour)
	}
	c.Step(-2 * time.Hour)
	before, _, wall, after = read()
	between("an hour back", before.Add(-time.Hour), wall, after.Add(-time.Hour))
	c.Step(time.Hour)

	// A thousand times as fast, so that a few milliseconds are seconds.
	_, mono0, wall0, _ := read()
	begin := time.Now()
	c.Rate(1000)
	for time.Since(begin) < 20*time.Millisecond {
		s.ask()
	}
	c.Rate(1)
	end := time.Now()
	_, mono1, wall1, _ := read()
	if d := mono1 - mono0; d < 19*time.Second || d > 1000*end.Sub(begin)+time.Minute {
		t.Errorf("the monotonic clock moved by %v in %v", d, end.Sub(begin))
	}
	if d := wall1.Sub(wall0) - (mono1 - mono0); d < -time.Second || d > time.Second {
		t.Errorf("the wall clock moved by %v more", d)
	}
	if again, _ := s.ask(); again < mono1 {
		t.Error("the monotonic clock went back")
	}
}
