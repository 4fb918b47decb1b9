package main

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

func BenchmarkKeyedMutex(b *testing.B) {
	for _, load := range workloads(8) {
		b.Run(load.name, func(b *testing.B) {
			for _, c := range contenders() {
				b.Run(c.name, func(b *testing.B) {
					b.ReportAllocs()
					p := c.make()
					b.ResetTimer()
					load.run(p, b.N)
				})
			}
		})
	}
}

// TestContenders counts with each contender, so that none is fast for being
// wrong.
func TestContenders(t *testing.T) {
	for _, c := range contenders() {
		t.Run(c.name, func(t *testing.T) {
			p, n := c.make(), 0
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 1000 {
						token := p.lock(t.Context(), "k")
						n++
						p.unlock("k", token)
					}
				})
			}
			wg.Wait()
			if n != 8000 {
				t.Errorf("counted to %d", n)
			}
		})
	}
}

func TestRun(t *testing.T) {
	var out, errs bytes.Buffer
	if err := run(t.Context(), []string{"-cpu", "-rounds", "1", "-time", (10 * time.Microsecond).String()}, &out, &errs); err != nil {
		t.Fatal(err, errs.String())
	}
	for _, c := range contenders() {
		if !strings.Contains(out.String(), c.name) {
			t.Errorf("%s is not in\n%s", c.name, out.String())
		}
	}
	out.Reset()
	if err := run(t.Context(), []string{"-only", "dapr", "-rounds", "1", "-time", "10us"}, &out, &errs); err != nil {
		t.Fatal(err, errs.String())
	}
	if lines := strings.Count(out.String(), "\n"); lines != 3 {
		t.Errorf("%d lines for a head and two contenders:\n%s", lines, out.String())
	}
	for _, args := range [][]string{{"-rounds", "0"}, {"-only", "("}, {"more"}} {
		if err := run(t.Context(), args, &out, &errs); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
