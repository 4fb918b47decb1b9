package tickets_test

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway/router/internal/tickets"
	"github.com/keyway-go/keyway/internal/test/kit"
)

// TestShare: which server takes whose tickets, and for how long.
func TestShare(t *testing.T) {
	certFile, keyFile, _ := kit.Certificate(t)
	cert := kit.Must(tls.LoadX509KeyPair(certFile, keyFile))
	// server returns the configuration of one with these secrets, a letter each.
	server := func(secrets string, clients tls.ClientAuthType) *tls.Config {
		cfg := &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: clients}
		var list [][]byte
		for _, s := range secrets {
			list = append(list, []byte(strings.Repeat(string(s), 32)))
		}
		tickets.Share(cfg, list)
		return cfg
	}
	// resumes reports whether a client resumes its last session.
	resumes := func(t *testing.T, at *tls.Config, cache tls.ClientSessionCache, version uint16) bool {
		near, far := net.Pipe()
		go func() {
			s := tls.Server(far, at)
			io.WriteString(s, "x")
			s.Close()
		}()
		c := tls.Client(near, &tls.Config{ServerName: "h", InsecureSkipVerify: true, ClientSessionCache: cache, MaxVersion: version})
		if _, err := io.ReadAll(c); err != nil {
			t.Error(err)
		}
		return c.ConnectionState().DidResume
	}
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		from, to *tls.Config
		version  uint16
		after    time.Duration
		want     bool
	}{
		"another":                  {server("k", 0), server("k", 0), tls.VersionTLS13, 0, true},
		"a day later":              {server("k", 0), server("k", 0), tls.VersionTLS13, day, true},
		"two days later":           {server("k", 0), server("k", 0), tls.VersionTLS13, 2 * day, false},
		"one with the next secret": {server("k", 0), server("nk", 0), tls.VersionTLS13, 0, true},
		"one with another secret":  {server("k", 0), server("o", 0), tls.VersionTLS13, 0, false},
		"one without a secret":     {server("k", 0), server("", 0), tls.VersionTLS13, 0, false},
		"both without a secret":    {server("", 0), server("", 0), tls.VersionTLS13, 0, false},
		"one that asks clients":    {server("k", 0), server("k", tls.RequestClientCert), tls.VersionTLS13, 0, false},
		"another, TLS 1.2":         {server("k", 0), server("k", 0), tls.VersionTLS12, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := tls.NewLRUClientSessionCache(1)
				if resumes(t, tt.from, cache, tt.version) || !resumes(t, tt.from, cache, tt.version) {
					t.Error("only the second connection to the first server is to resume")
				}
				time.Sleep(tt.after)
				if got := resumes(t, tt.to, cache, tt.version); got != tt.want {
					t.Errorf("resumed %v", got)
				}
			})
		})
	}
	// A server that goes on after midnight makes tickets with the key of the new day.
	synctest.Test(t, func(t *testing.T) {
		at, cache := server("k", 0), tls.NewLRUClientSessionCache(1)
		resumes(t, at, cache, tls.VersionTLS13)
		time.Sleep(day)
		resumes(t, at, cache, tls.VersionTLS13)
		time.Sleep(day)
		if !resumes(t, server("k", 0), cache, tls.VersionTLS13) {
			t.Error("yesterday's ticket is not taken")
		}
	})
}
