package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// startSentinelProcess needs a configuration file that it may write to.
func startSentinelProcess(t TB, master *Server) *Server {
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
func StartTLS(t TB, config ...string) (s *Server, caFile string) {
	t.Helper()
	Require(t)
	certFile, keyFile, pool := selfSigned(t)
	s = &Server{t: t, dir: t.TempDir(), args: config, tls: &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"}}
	s.startOnFreePort(func(port int) []string {
		return s.basics("--port", "0", "--tls-port", strconv.Itoa(port), "--tls-auth-clients", "no",
			"--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", certFile)
	})
	return s, certFile
}

// StartUnix starts a server that also listens on a unix socket.
func StartUnix(t TB, config ...string) (s *Server, socket string) {
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

func selfSigned(t TB) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "redistest"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	for file, data := range map[string][]byte{certFile: certPEM, keyFile: keyPEM} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return certFile, keyFile, pool
}
