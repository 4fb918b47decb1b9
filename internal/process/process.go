// Package process is what the programs and package keyway share: a process's
// name, listeners and servers.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"
)

// Leave tells the other members of a cluster that this process is gone.
func Leave(members interface{ Leave(context.Context) error }, logger *slog.Logger) {
	if err := members.Leave(context.Background()); err != nil {
		logger.Warn("cannot leave gossip: the others will notice", "error", err)
	}
}

// MachineName returns the host's name and the port of addr, such as web1-8080.
func MachineName(addr net.Addr) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("the host has no name: %w", err)
	}
	_, port, _ := net.SplitHostPort(addr.String())
	return host + "-" + port, nil
}

// Listen listens on the address that the flag holds, of TCP or unix:///path. Its
// error names the address and the flag to change.
func Listen(flagName, addr string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(addr, "unix://")
	var l net.Listener
	var err error
	if isUnix {
		l, err = listenUnix(path)
	} else {
		var config net.ListenConfig
		config.SetMultipathTCP(false) // whose sockets cannot be closed as netutil.CloseForNew does
		l, err = config.Listen(context.Background(), "tcp", addr)
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is in use: choose another address with --%s", addr, flagName)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s is not an address of this machine: choose another one with --%s", addr, flagName)
	case err != nil:
		return nil, fmt.Errorf("cannot listen on %s (--%s): %w", addr, flagName, err)
	}
	return l, nil
}

// listenUnix listens on a socket at the path, also where an ended process has left one.
func listenUnix(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	other, refused := net.Dial("unix", path)
	if refused == nil {
		other.Close()
	}
	if !errors.Is(refused, syscall.ECONNREFUSED) || os.Remove(path) != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

// WarnOfAdmin warns if other machines reach the admin address of a process.
func WarnOfAdmin(logger *slog.Logger, addr net.Addr) {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() {
		return
	}
	logger.Warn("anyone who reaches this address (--admin) can see members, addresses, keys and routes, and record profiles: let only operators reach it", "addr", addr)
}

// URL returns where a listener of Listen takes requests of that scheme.
func URL(l net.Listener, scheme string) string {
	if l.Addr().Network() == "unix" {
		return "unix://" + l.Addr().String()
	}
	return scheme + "://" + l.Addr().String()
}

// NewServer returns a server for HTTP/1.1 and HTTP/2, with bounds on the head of a request (64 KiB,
// 10 s) and on idleness (2 min). A body and an answer may take as long as the handler lets them.
func NewServer(h http.Handler, logger *slog.Logger) *http.Server {
	s := &http.Server{
		Handler:           h,
		MaxHeaderBytes:    64 << 10,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		Protocols:         new(http.Protocols),
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	return s
}
