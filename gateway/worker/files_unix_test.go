//go:build unix

package worker_test

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"syscall"
	"testing"

	"github.com/keyway-go/keyway/gateway/router"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// A bound that needs more files than the process may have open is warned of.
func TestTooFewFilesAreWarnedOf(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || uint64(limit.Cur) > math.MaxInt {
		t.Skip("the process may have any number of files open")
	}
	files := int(limit.Cur)
	left := files - max(128, files/4)
	for _, tt := range []struct {
		bound int
		warns bool
	}{{0, false}, {left, false}, {left + 1, true}} {
		for name, start := range map[string]func(*slog.Logger){
			"router": func(l *slog.Logger) {
				site.NewRouter(t, router.Config{Members: hub.Of(), MaxConnections: tt.bound, Logger: l})
			},
			"worker": func(l *slog.Logger) {
				site.New(t, 16).StartReady(func(cfg *worker.Config) { cfg.MaxConnections, cfg.Logger = tt.bound, l })
			},
		} {
			logs := new(kit.Buffer)
			start(slog.New(slog.NewTextHandler(logs, nil)))
			if got := strings.Contains(logs.String(), fmt.Sprintf("connections=%d open_files=%d left=%d", tt.bound, files, left)); got != tt.warns {
				t.Errorf("%s: %d of %d files: %s", name, tt.bound, files, logs)
			}
		}
	}
}
