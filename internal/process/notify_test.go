package process

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
)

func TestTellSupervisor(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@keyway-test-" + filepath.Base(t.TempDir())} {
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		t.Setenv("NOTIFY_SOCKET", name)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		TellSupervisor(ctx, slog.New(slog.DiscardHandler))
		for _, want := range []string{"READY=1", "STOPPING=1"} {
			text := make([]byte, 100)
			if n, err := conn.Read(text); err != nil || string(text[:n]) != want {
				t.Errorf("%s: the supervisor got %q, %v, want %s", name, text[:n], err, want)
			}
			cancel()
		}
	}
}
