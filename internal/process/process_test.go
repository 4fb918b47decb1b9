package process_test

import (
	"bytes"
	"log/slog"
	"net"
	"runtime"
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

// TestKeepHeap: the collector waits for HeapFloor bytes, unless the user says when it runs.
func TestKeepHeap(t *testing.T) {
	next := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NextGC - m.HeapAlloc
	}
	t.Setenv("GOGC", "")
	before := next()
	release := process.KeepHeap()
	if with := next(); before >= process.HeapFloor || with < process.HeapFloor {
		t.Errorf("the collector runs after %d bytes, and with the floor after %d, want less and more than %d", before, with, process.HeapFloor)
	}
	release()
	t.Setenv("GOGC", "100")
	release = process.KeepHeap()
	if with := next(); with >= process.HeapFloor {
		t.Errorf("with GOGC it runs after %d bytes, want less than %d", with, process.HeapFloor)
	}
	release()
}
