//go:build linux

package main

import (
	"bytes"
	"errors"
	"flag"
	"regexp"
	"strings"
	"testing"
)

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, &out, nil); !errors.Is(err, flag.ErrHelp) || strings.Count(out.String(), "Usage") != 1 {
		t.Errorf("%v\n%s", err, &out)
	}
}

// Both parts are measured, of both kinds of locks, and each call.
func TestLocks(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-t", "200ms", "-callers", "4"}, &out, nil); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", &out)
	call := `\n  TryLock  p50 .*s  p99 .*\n  Unlock   p50 .*s  p99 .*\n  store    \d+\.\d+ scripts for each lock\n`
	rates := ` as fast as they can: [1-9]\d* operations/s; server: .*` + call
	half := ` half of that: [1-9].*` + call
	if !regexp.MustCompile(`^4 callers, locks in memory,` + rates + `4 callers, locks in memory,` + half + `4 callers, locks of 1m0s,` + rates + `4 callers, locks of 1m0s,` + half + `$`).Match(out.Bytes()) {
		t.Errorf("%q", &out)
	}
}

// Locks of others are measured beside those of a worker, and what they do a second is said.
func TestPeers(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-t", "100ms", "-callers", "4", "-rounds", "1", "-peers", "etcd,lock,redislock,redsync"}, &out, nil); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", &out)
	const line = ` +\d+ pairs/s  fairness \d\.\d\d`
	const other = line + `  keyway is (\d+\.\d|\+Inf|NaN) × .*\n`
	scene := `contended: 4 callers.*\n  keyway` + line + `\n  etcd` + other + `  lock` + other + `  redislock` + other + `  redsync` + other
	if !regexp.MustCompile(`^un` + scene + scene + scene + `$`).Match(out.Bytes()) {
		t.Errorf("%q", &out)
	}
	if err := run(t.Context(), []string{"-peers", "other"}, &out, nil); err == nil || !strings.Contains(err.Error(), `no "other"`) {
		t.Errorf("another peer: %v", err)
	}
}
