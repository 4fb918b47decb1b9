package keyway_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keyway-go/keyway"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/redistest"
)

// Start over a Redis that cannot be used ends with where it is and why; log and readiness have said it long before.
func TestStartNamesAnUnusableRedis(t *testing.T) {
	addr, log := kit.FreeAddr(t), new(kit.Buffer)
	cfg := config(t, "a", kit.FreeAddr(t))
	cfg.Redis, cfg.Admin, cfg.Logger = "redis://:s3cret@"+addr, kit.FreeAddr(t), slog.New(slog.NewTextHandler(log, nil))
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	ended := make(chan error, 1)
	go func() {
		_, err := keyway.Start(ctx, cfg)
		ended <- err
	}()
	kit.Eventually(t, "the readiness names it", func() bool {
		status, text := ready(t, cfg.Admin)
		return status == 503 && strings.Contains(text, addr) && strings.Contains(text, "connection refused")
	})
	cancel(enough)
	err := <-ended
	if !errors.Is(err, syscall.ECONNREFUSED) || !errors.Is(err, enough) || !strings.Contains(err.Error(), addr) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("Start: %v", err)
	}
	lines := 0
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "the store cannot be used") {
			lines++
		}
	}
	if lines != 1 || strings.Contains(log.String(), "s3cret") {
		t.Errorf("%d lines, want 1: %s", lines, log)
	}
}

// A Redis that goes and comes back is named both times, with its data or without.
func TestARedisGoesAndComesBack(t *testing.T) {
	for name, restart := range map[string]func(*redistest.Server){"with its data": (*redistest.Server).Restart, "empty": (*redistest.Server).RestartEmpty} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, log := redistest.Start(t, "--appendonly", "yes"), new(kit.Buffer)
			cfg := config(t, "a", kit.FreeAddr(t))
			cfg.Redis, cfg.NewCluster, cfg.Admin, cfg.Logger = server.URL(), true, kit.FreeAddr(t), slog.New(slog.NewTextHandler(log, nil))
			node := start(t, cfg)
			server.Kill()
			kit.Eventually(t, "the readiness names it", func() bool {
				status, text := ready(t, cfg.Admin)
				return status == 503 && strings.Contains(text, server.Addr())
			})
			restart(server)
			kit.Eventually(t, "it serves again", func() bool { status, _ := ready(t, cfg.Admin); return status == 200 })
			for _, words := range []string{"the store cannot be used", "connection refused", "the store can be used again", "away=", "at_most=2s"} {
				if !strings.Contains(log.String(), words) {
					t.Errorf("no %q in the log: %s", words, log)
				}
			}
			_ = node
		})
	}
}

// The first start over an empty Redis says at once what it waits for, and how to say that there is nothing to wait for.
func TestAFirstStartSaysWhatItWaitsFor(t *testing.T) {
	server, log := redistest.Start(t), new(kit.Buffer)
	cfg := config(t, "a", kit.FreeAddr(t))
	cfg.Redis, cfg.Admin, cfg.Settings.TTL, cfg.Logger = server.URL(), kit.FreeAddr(t), 5*time.Second, slog.New(slog.NewTextHandler(log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		node, err := keyway.Start(ctx, cfg)
		if err == nil {
			node.Close()
		}
		ended <- err
	}()
	kit.Eventually(t, "the readiness says it", func() bool {
		_, text := ready(t, cfg.Admin)
		return strings.Contains(text, "no trace of this cluster") && strings.Contains(text, "--new-cluster") && strings.Contains(text, "left)")
	})
	if !strings.Contains(log.String(), "no trace of this cluster") || !strings.Contains(log.String(), "server_run_id") {
		t.Errorf("not in the log: %s", log)
	}
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "--new-cluster") {
		t.Errorf("Start: %v", err)
	}
}

// ready asks an admin address whether its node is ready.
func ready(t *testing.T, admin string) (status int, text string) {
	res, err := kit.Client(t, "HTTP/1.1").Get("http://" + admin + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	buf := make([]byte, 4096)
	n, _ := res.Body.Read(buf)
	return res.StatusCode, string(buf[:n])
}
