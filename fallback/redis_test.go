package fallback

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/internal/test/certs"
	"github.com/keyway-go/keyway/internal/test/kit"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		url  string
		want func(*redis.UniversalOptions) bool
	}{
		{"redis://host", func(o *redis.UniversalOptions) bool {
			return slices.Equal(o.Addrs, []string{"host:6379"}) && o.TLSConfig == nil && !o.IsClusterMode && o.MasterName == ""
		}},
		{"redis://u:p%40ss@[::1]:7000/3", func(o *redis.UniversalOptions) bool {
			return o.Addrs[0] == "[::1]:7000" && o.Username == "u" && o.Password == "p@ss" && o.DB == 3
		}},
		{"rediss://:secret@host:1?skip_verify=true&server_name=other", func(o *redis.UniversalOptions) bool {
			return o.TLSConfig.InsecureSkipVerify && o.TLSConfig.ServerName == "other" && o.Password == "secret"
		}},
		{"unix://u:p@/run/redis.sock?db=2", func(o *redis.UniversalOptions) bool {
			return o.Addrs[0] == "/run/redis.sock" && o.DB == 2 && o.Password == "p"
		}},
		{"redis-sentinel://:p@s1/1?master=m&addr=s2:1&addr=s3:2&sentinel_password=sp", func(o *redis.UniversalOptions) bool {
			return slices.Equal(o.Addrs, []string{"s1:26379", "s2:1", "s3:2"}) && o.MasterName == "m" &&
				o.Password == "p" && o.SentinelPassword == "sp" && o.DB == 1
		}},
		{"rediss-sentinel://s1?master=m", func(o *redis.UniversalOptions) bool { return o.TLSConfig != nil && o.MasterName == "m" }},
		{"redis+cluster://n1?addr=n2:1", func(o *redis.UniversalOptions) bool {
			return o.IsClusterMode && slices.Equal(o.Addrs, []string{"n1:6379", "n2:1"})
		}},
		{"rediss+cluster://n1", func(o *redis.UniversalOptions) bool { return o.IsClusterMode && o.TLSConfig != nil }},
		{"redis://h?dial_timeout=1s&read_timeout=50ms&write_timeout=3s&pool_size=7", func(o *redis.UniversalOptions) bool {
			return o.DialTimeout == time.Second && o.ReadTimeout == 50*time.Millisecond && o.WriteTimeout == 3*time.Second && o.PoolSize == 7
		}},
	} {
		o, err := parseURL(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if !c.want(o) {
			t.Errorf("%s gave %+v", c.url, o)
		}
		if !o.ContextTimeoutEnabled {
			t.Errorf("%s: go-redis would ignore context deadlines", c.url)
		}
		client, err := NewClient(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		client.Close()
	}
}

func TestBadURLsNameThePartAndNoPassword(t *testing.T) {
	noPEM := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(noPEM, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, part := range map[string]string{
		"":                                                "scheme",
		"127.0.0.1:6379":                                  "want one such as redis://host:6379",
		"http://u:hunter2@host":                           "scheme",
		"redis://u:hunter2@":                              "host",
		"redis://u:hunter2@host:port":                     "parse",
		"redis://u:hun%zzter2@host":                       "parse",
		"redis://u:hunter2@host/x":                        "path",
		"redis://u:hunter2@host/-1":                       "path",
		"redis://u:hunter2@host?%zz":                      "query",
		"redis://u:hunter2@host?addr=h:1":                 "addr",
		"redis://u:hunter2@host?nonsense=1":               "nonsense",
		"redis://u:hunter2@host?read_timeout=5":           "read_timeout",
		"redis://u:hunter2@host?dial_timeout=-1s":         "dial_timeout",
		"redis://u:hunter2@host?pool_size=many":           "pool_size",
		"redis://u:hunter2@host?pool_size=1&pool_size=2":  "pool_size",
		"redis://u:hunter2@host?ca=x":                     "ca",
		"rediss://u:hunter2@host?ca=/nonexistent":         "ca",
		"rediss://u:hunter2@host?ca=" + noPEM:             "ca",
		"rediss://u:hunter2@host?cert=/nonexistent":       "cert",
		"rediss://u:hunter2@host?skip_verify=perhaps":     "skip_verify",
		"unix://u:hunter2@host/path":                      "unix",
		"unix://":                                         "unix",
		"redis-sentinel://u:hunter2@host":                 "master",
		"redis-sentinel://u:hunter2@host?master=m&addr=h": "addr",
		"redis+cluster://u:hunter2@host/1":                "path",
	} {
		_, err := NewClient(url)
		if !errors.Is(err, errURL) {
			t.Errorf("%s: got %v, want ErrURL", url, err)
			continue
		}
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %q does not name %q", url, err, part)
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "hun") {
			t.Errorf("%s: %q shows the password", url, err)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("redis://u:p@h:1/2?pool_size=3")
	f.Add("redis-sentinel://h?master=m&addr=h:1")
	f.Add("unix:///s")
	f.Fuzz(func(t *testing.T, url string) {
		if o, err := parseURL(url); (o == nil) != (err != nil) {
			t.Errorf("%q gave %v, %v", url, o, err)
		}
	})
}

func TestLogRedis(t *testing.T) {
	var out bytes.Buffer
	l := redisLog{slog.New(slog.NewTextHandler(&out, nil)), slog.LevelInfo}
	l.Printf(context.Background(), "lost %s", "it")
	if !strings.Contains(out.String(), "redis: lost it") {
		t.Errorf("got %q", out.String())
	}
}

// A program that has not said where go-redis' log goes finds nothing of it on stderr.
func TestNothingOnStderr(t *testing.T) {
	const child = "KEYWAY_TEST_CHILD"
	if os.Getenv(child) != "" {
		c, err := NewClient("redis://127.0.0.1:1")
		if err != nil || c.Ping(t.Context()).Err() == nil {
			t.Errorf("%v, or an answer", err)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNothingOnStderr$")
	cmd.Env = append(os.Environ(), child+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if out, err := cmd.Output(); err != nil || stderr.Len() > 0 {
		t.Errorf("%v: %s; on stderr: %s", err, out, &stderr)
	}
}

// A client's certificate may be renewed while the client is in use: its next connection shows the new one.
func TestRenewedCertificate(t *testing.T) {
	dir := t.TempDir()
	ca := kit.Must(certs.NewCA(dir, "ca"))
	cert, key, err := ca.Issue(dir, "server", certs.Loopback)
	if err != nil {
		t.Fatal(err)
	}
	shown := make(chan string)
	l := kit.Must(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{kit.Must(tls.LoadX509KeyPair(cert, key))}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(),
	}))
	defer l.Close()
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			if conn.(*tls.Conn).Handshake() == nil {
				shown <- conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName
			}
			conn.Close()
		}
	}()
	path := func(name string) string { return filepath.Join(dir, name) }
	var client redis.UniversalClient
	for _, name := range []string{"old", "new"} {
		cert, key, err := ca.Issue(dir, name, nil)
		if err != nil || os.Rename(cert, path("cert")) != nil || os.Rename(key, path("key")) != nil {
			t.Fatal(err)
		}
		if client == nil {
			client = kit.Must(NewClient("rediss://" + l.Addr().String() + "?ca=" + ca.File + "&cert=" + path("cert") + "&key=" + path("key")))
			defer client.Close()
		}
		got := ""
		for tries := 0; tries < 6 && got != name; tries++ { // the server has answered none, so connections to it may be under way
			go client.Ping(t.Context())
			got = <-shown
		}
		if got != name {
			t.Errorf("the certificate %q was shown, want %q", got, name)
		}
	}
}
