package conformance

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fileTime is when the files of apps were changed.
var fileTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// startNginx starts nginx with a server block, in which LISTEN stands for its
// address, and returns that.
func startNginx(t *testing.T, server string) string {
	t.Helper()
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip("nginx is missing: install it, on Debian: apt-get install nginx")
	}
	dir, addr := t.TempDir(), freeAddr(t)
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;" // the directories of tests are their user's
	}
	conf := fmt.Sprintf(`%[3]s daemon off; worker_processes 1; pid %[1]s/pid; error_log %[1]s/error.log;
events { worker_connections 512; }
http {
	access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	client_max_body_size 100m;
	%[2]s
}`, dir, strings.ReplaceAll(server, "LISTEN", addr), user)
	if err := os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(nginx, "-p", dir, "-c", filepath.Join(dir, "nginx.conf"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGQUIT)
		_ = cmd.Wait()
	})
	waitFor(t, addr)
	return addr
}

// TestNginxInFront has nginx pass requests on to the router over connections that
// it keeps.
func TestNginxInFront(t *testing.T) {
	t.Parallel()
	app := tell(t)
	c := newCluster(t, app.URL)
	front := startNginx(t, `upstream keyway { server `+c.router+`; keepalive 8; }
	server { listen LISTEN; location / { proxy_pass http://keyway; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host; } }`)
	for _, size := range []int{0, 1, 64 << 10, 64<<10 + 1, 5 << 20} {
		body := bytes.Repeat([]byte("n"), size)
		for range 5 {
			res, err := http.Post("http://"+front+"/orders", "text/plain", bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(res.Body)
			res.Body.Close()
			if want := fmt.Sprintf("POST /orders %s %d", front, size); err != nil || !strings.HasPrefix(string(got), want) {
				t.Fatalf("%v %d %q, want %q", err, res.StatusCode, got, want)
			}
		}
	}
}

// TestNginxAsApp has the sidecar pass requests on to nginx, which serves files,
// parts of them, and errors.
func TestNginxAsApp(t *testing.T) {
	t.Parallel()
	files := t.TempDir()
	big := bytes.Repeat([]byte("0123456789"), 1<<19)
	if err := os.WriteFile(filepath.Join(files, "big"), big, 0o600); err != nil {
		t.Fatal(err)
	}
	app := startNginx(t, `server { listen LISTEN; root `+files+`; gzip on; gzip_types *; }`)
	c := newCluster(t, "http://"+app)
	get := func(path, name, value string) (*http.Response, []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+c.router+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if name != "" {
			req.Header.Set(name, value)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, body
	}
	for range 3 {
		if res, body := get("/big", "Accept-Encoding", "identity"); res.StatusCode != 200 || !bytes.Equal(body, big) {
			t.Errorf("the file: %d, %d bytes", res.StatusCode, len(body))
		}
		if res, body := get("/big", "", ""); res.StatusCode != 200 || !res.Uncompressed || !bytes.Equal(body, big) {
			t.Errorf("the file, compressed in chunks: %d, %d bytes", res.StatusCode, len(body))
		}
		if res, body := get("/big", "Range", "bytes=10-19"); res.StatusCode != 206 || string(body) != "0123456789" {
			t.Errorf("a part: %d %q", res.StatusCode, body)
		}
		if res, _ := get("/none", "", ""); res.StatusCode != 404 {
			t.Errorf("no file: %d", res.StatusCode)
		}
	}
	first, _ := get("/big", "", "")
	if res, body := get("/big", "If-Modified-Since", first.Header.Get("Last-Modified")); res.StatusCode != 304 || len(body) != 0 {
		t.Errorf("not modified: %d, %d bytes", res.StatusCode, len(body))
	}
}
