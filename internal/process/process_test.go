package process_test

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/process"
)

func TestListenNamesTheFlag(t *testing.T) {
	l, err := process.Listen("listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr := l.Addr().String()
	_, err = process.Listen("admin", addr)
	if err == nil || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "--admin") {
		t.Errorf("port in use: %v", err)
	}
	_, err = process.Listen("listen", "192.0.2.1:0")
	if err == nil || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("not an address of this machine: %v", err)
	}
}

func TestAdminForAllIsSaid(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1": false, "::1": false, "0.0.0.0": true, "192.0.2.1": true} {
		var log bytes.Buffer
		process.WarnOfAdmin(slog.New(slog.NewTextHandler(&log, nil)), &net.TCPAddr{IP: net.ParseIP(addr), Port: 1})
		if strings.Contains(log.String(), "--admin") != want {
			t.Errorf("%s: %s", addr, &log)
		}
	}
}
