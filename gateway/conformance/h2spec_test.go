package conformance

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"
)

var (
	h2specSum    = regexp.MustCompile(`(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed`)
	h2specFailed = regexp.MustCompile(`(?m)^\s*× (.*)$`)
)

// TestH2spec runs h2spec's 145 cases of RFC 7540 and 7541 against the router.
func TestH2spec(t *testing.T) {
	t.Parallel()
	cert, key, _ := certificate(t)
	for _, tt := range []struct {
		name   string
		router []string
		suite  []string
		fails  []string
	}{
		// A port without TLS speaks HTTP/1.1 too, so that what is no preface is a bad
		// request: it is answered before the connection is closed.
		{name: "prior knowledge", fails: []string{"2: Sends invalid connection preface"}},
		{name: "TLS", router: []string{"--tls-cert", cert, "--tls-key", key}, suite: []string{"-t", "-k"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "", tt.router...)
			host, port := split(t, c.router)
			out, _ := program(t, 5*time.Minute, filepath.Join(bin, "h2spec"), append(tt.suite, "-h", host, "-p", port, "-o", "5")...)
			counts := h2specSum.FindStringSubmatch(out)
			if counts == nil || counts[1] != "145" || counts[3] != "0" {
				t.Fatalf("h2spec did not run its 145 cases:\n%s", out)
			}
			var fails []string
			for _, f := range h2specFailed.FindAllStringSubmatch(out, -1) {
				if !slices.Contains(fails, f[1]) {
					fails = append(fails, f[1])
				}
			}
			if !slices.Equal(fails, tt.fails) {
				t.Errorf("these fail: %q, want %q\n%s", fails, tt.fails, out)
			}
		})
	}
}
