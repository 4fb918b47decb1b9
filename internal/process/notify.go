package process

import (
	"context"
	"log/slog"
	"net"
	"os"
)

// TellSupervisor tells the supervisor of the process that it is ready and, once ctx ends, that it
// stops, unless stop was called before. It does nothing without a supervisor that listens; systemd
// does for a unit with Type=notify (sd_notify(3)).
func TellSupervisor(ctx context.Context, logger *slog.Logger) (stop func() bool) {
	tell := func(state string) {
		if err := notify(state); err != nil {
			logger.Warn("the state of this process cannot be reported to the supervisor (NOTIFY_SOCKET)", "state", state, "error", err)
		}
	}
	tell("READY=1")
	return context.AfterFunc(ctx, func() { tell("STOPPING=1") })
}

func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}
