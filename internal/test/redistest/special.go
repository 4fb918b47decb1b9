package redistest

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/keyway-go/keyway/internal/test/certs"
)

// startSentinelProcess needs a configuration file that it may write to.
func startSentinelProcess(t testing.TB, master *Server) *Server {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir()}
	s.startOnFreePort(func(port int) []string {
		file := filepath.Join(s.dir, "sentinel.conf")
		config := fmt.Sprintf("port %d\nbind 127.0.0.1\nsentinel monitor %[2]s 127.0.0.1 %[3]d 1\n"+
			"sentinel down-after-milliseconds %[2]s 1000\nsentinel failover-timeout %[2]s 3000\n",
			port, masterName, master.port)
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{file, "--sentinel"}
	})
	return s
}

// StartTLS starts a server that takes TLS alone, and returns the file of the
// certificate authority that its certificate is from.
func StartTLS(t testing.TB, config ...string) (s *Server, caFile string) {
	t.Helper()
	Require(t)
	certDir := t.TempDir()
	ca, err := certs.NewCA(certDir, "redistest")
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, err := ca.Issue(certDir, "redis", certs.Loopback)
	if err != nil {
		t.Fatal(err)
	}
	s = &Server{t: t, dir: t.TempDir(), args: config, tls: &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"}}
	s.startOnFreePort(func(port int) []string {
		return s.basics("--port", "0", "--tls-port", strconv.Itoa(port), "--tls-auth-clients", "no",
			"--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", ca.File)
	})
	return s, ca.File
}

// StartUnix starts a server that also listens on a unix socket.
func StartUnix(t testing.TB, config ...string) (s *Server, socket string) {
	t.Helper()
	// A socket's path may have about 100 bytes; t.TempDir's can be longer.
	dir, err := os.MkdirTemp("", "kw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "redis.sock")
	return Start(t, append([]string{"--unixsocket", socket}, config...)...), socket
}
