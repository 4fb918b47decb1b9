package etcd_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/keyway-go/keyway/fallback/etcd"
	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/ring"
)

// Whatever keeps a store from being used, log and error say where it is, why, and what to do, and no password.
func TestAnUnusableStoreIsNamed(t *testing.T) {
	silent := kit.Must(net.Listen("tcp", "127.0.0.1:0")) // its backlog takes connections
	t.Cleanup(func() { silent.Close() })
	for name, tt := range map[string]struct{ addr, want string }{
		"nothing listens": {kit.FreeAddr(t), "connection refused"},
		"silent":          {silent.Addr().String(), "does not answer"},
		"no name":         {"etcd.invalid:2379", "etcd.invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kit.NoLeaks(t)
			var log kit.Buffer
			s := kit.Must(etcd.New("etcd://user:s3cret@"+tt.addr, store.Config{
				Settings: ring.Settings{TTL: time.Second}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}))
			defer s.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := s.Generation(ctx, true)
			for what, text := range map[string]string{"error": err.Error(), "log": log.String(), "Trouble": s.Trouble().Error()} {
				if !strings.Contains(text, tt.addr) || !strings.Contains(text, tt.want) || strings.Contains(text, "s3cret") {
					t.Errorf("%s: %s, want %q", what, text, tt.want)
				}
			}
			if n := strings.Count(log.String(), "cannot be used"); n != 1 {
				t.Errorf("it was said %d times:\n%s", n, log.String())
			}
		})
	}
}
