package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stack is a web framework, or a server, with an app that says in X-Resource what a
// request works on, such as order:42, and in X-Key which key it came with.
type stack struct {
	name  string
	needs string // program or file without which it cannot run
	start func(t *testing.T) (addr string)

	latin1         bool // the app takes the bytes of header fields for Latin-1
	cookiesDecoded bool // the app gets cookies' values without their percent-encoding
	raw            bool // X-Resource is not percent-encoded, and the query is as it was sent
}

// stacks are those of the differential test; make test tries the first two.
var stacks = []stack{
	{name: "Go", needs: "go", start: goStack},
	{name: "Flask", needs: "/usr/lib/python3/dist-packages/flask", start: gunicorn("flask_app"), latin1: true},
	{name: "Express", needs: "/usr/share/nodejs/express", start: express, latin1: true, cookiesDecoded: true},
	{name: "Django", needs: "/usr/lib/python3/dist-packages/django", start: gunicorn("django_app"), latin1: true},
	{name: "Sinatra", needs: "puma", start: sinatra, cookiesDecoded: true},
	{name: "Tomcat", needs: "/usr/share/tomcat10/bin/bootstrap.jar", start: tomcat, latin1: true},
	{name: "nginx", needs: "nginx", start: nginxStack, raw: true},
}

func (s *stack) installed() bool {
	if strings.HasPrefix(s.needs, "/") {
		_, err := os.Stat(s.needs)
		return err == nil
	}
	_, err := exec.LookPath(s.needs)
	return err == nil
}

// resource returns the key that an answer's app has worked under if it has read what the
// router has.
func (s *stack) resource(h http.Header) string {
	text := h.Get("X-Resource")
	if !s.raw {
		text = unescaped(text, url.PathUnescape)
	}
	switch kind, value, _ := strings.Cut(text, ":"); {
	case value == "":
		return ""
	case kind == "cart" && !s.cookiesDecoded:
		return kind + ":" + unescaped(value, url.PathUnescape)
	case kind == "owner":
		if s.latin1 {
			value = bytesOf(value)
		}
		return kind + ":" + unescaped(value, url.PathUnescape)
	case kind == "room" && s.raw:
		return kind + ":" + unescaped(value, url.QueryUnescape)
	}
	return text
}

// bytesOf returns the bytes that text is when each is taken for a character.
func bytesOf(text string) string {
	var b []byte
	for _, c := range text {
		b = append(b, byte(c))
	}
	return string(b)
}

func unescaped(text string, how func(string) (string, error)) string {
	if plain, err := how(text); err == nil {
		return plain
	}
	return text
}

// process starts a program that listens at addr, until the test ends.
func process(t *testing.T, addr, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(settled, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait()
		if text := said.String(); t.Failed() {
			t.Logf("%s says:\n%s", name, text[:min(len(text), 4<<10)])
		}
	})
	waitFor(t, addr)
	return addr
}

// sources returns the directory of the apps.
func sources(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("testdata/stacks")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func gunicorn(app string) func(t *testing.T) string {
	return func(t *testing.T) string {
		addr := freeAddr(t)
		return process(t, addr, sources(t), []string{"PYTHONDONTWRITEBYTECODE=1"}, "/usr/bin/python3", "-m", "gunicorn",
			"--worker-class", "gthread", "--threads", "8", "--keep-alive", "10", "--bind", addr, "--worker-tmp-dir", t.TempDir(), app+":app")
	}
}

func express(t *testing.T) string {
	addr := freeAddr(t)
	return process(t, addr, t.TempDir(), []string{"NODE_PATH=/usr/share/nodejs"}, "node", filepath.Join(sources(t), "express.js"), addr)
}

func sinatra(t *testing.T) string {
	addr := freeAddr(t)
	return process(t, addr, t.TempDir(), []string{"RACK_ENV=production", "APP_ENV=production"}, "puma", "--threads", "8:8", "--bind", "tcp://"+addr, filepath.Join(sources(t), "config.ru"))
}

func tomcat(t *testing.T) string {
	addr, base := freeAddr(t), t.TempDir()
	host, port := split(t, addr)
	for _, dir := range []string{"conf", "logs", "temp", "work", "webapps/ROOT/WEB-INF/classes"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{"server.xml": "conf/server.xml", "web.xml": "webapps/ROOT/WEB-INF/web.xml"} {
		text, err := os.ReadFile(filepath.Join(sources(t), from))
		if err == nil {
			err = os.WriteFile(filepath.Join(base, to), []byte(strings.NewReplacer("HOST", host, "PORT", port).Replace(string(text))), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const home = "/usr/share/tomcat10"
	if out, err := program(t, settled, "javac", "-cp", home+"/lib/servlet-api.jar", "-d", filepath.Join(base, "webapps/ROOT/WEB-INF/classes"), filepath.Join(sources(t), "Stacks.java")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return process(t, addr, base, nil, "java", "-cp", home+"/bin/bootstrap.jar:"+home+"/bin/tomcat-juli.jar",
		"-Dcatalina.home="+home, "-Dcatalina.base="+base, "-Djava.io.tmpdir="+filepath.Join(base, "temp"), "org.apache.catalina.startup.Bootstrap", "start")
}

// nginxStack reads no bodies.
func nginxStack(t *testing.T) string {
	return startNginx(t, `server {
		listen LISTEN; keepalive_requests 1000000;
		add_header X-App 1 always;
		location ~ ^/orders/(?<order>[^/]+) { add_header X-App 1 always; add_header X-Key $http_keyway_key always; add_header X-Resource "order:$order" always; return 204; }
		location ~ ^/nums/0*(?<num>[0-9]+)$ { add_header X-App 1 always; add_header X-Key $http_keyway_key always; add_header X-Resource "num:$num" always; return 204; }
		location = /room { add_header X-App 1 always; add_header X-Key $http_keyway_key always; add_header X-Resource "room:$arg_room" always; return 204; }
		location = /cart { add_header X-App 1 always; add_header X-Key $http_keyway_key always; add_header X-Resource "cart:$cookie_cart" always; return 204; }
		location = /owner { add_header X-App 1 always; add_header X-Key $http_keyway_key always; add_header X-Resource "owner:$http_x_owner" always; return 204; }
		location ~ ^/pay/(?<pay>[^/]+)$ { if ($request_method = POST) { add_header X-App 1 always; add_header X-Key $http_keyway_key always; add_header X-Resource "pay:$pay" always; return 204; } return 204; }
		location / { return 204; }
	}`)
}

// goStack is an app with Go's ServeMux.
func goStack(t *testing.T) string {
	mux := http.NewServeMux()
	handle := func(pattern, kind string, value func(r *http.Request) string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if v := value(r); v != "" {
				w.Header().Set("X-Resource", url.PathEscape(kind+":"+v))
			}
		})
	}
	handle("/orders/{order}", "order", func(r *http.Request) string { return r.PathValue("order") })
	handle("/orders/{order}/", "order", func(r *http.Request) string { return r.PathValue("order") })
	handle("/nums/{n}", "num", func(r *http.Request) string {
		n, err := strconv.Atoi(r.PathValue("n"))
		if err != nil {
			return ""
		}
		return strconv.Itoa(n)
	})
	handle("/room", "room", func(r *http.Request) string { return r.URL.Query().Get("room") })
	handle("/cart", "cart", func(r *http.Request) string {
		c, err := r.Cookie("cart")
		if err != nil {
			return ""
		}
		return c.Value
	})
	handle("/owner", "owner", func(r *http.Request) string { return r.Header.Get("X-Owner") })
	handle("/account", "account", func(r *http.Request) string {
		var body struct{ Account struct{ ID any } }
		d := json.NewDecoder(r.Body)
		d.UseNumber()
		if d.Decode(&body) != nil || body.Account.ID == nil {
			return ""
		}
		return fmt.Sprint(body.Account.ID)
	})
	handle("POST /pay/{p}", "pay", func(r *http.Request) string { return r.PathValue("p") })
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-App", "1")
		w.Header().Set("X-Key", r.Header.Get("Keyway-Key"))
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(app.Close)
	return strings.TrimPrefix(app.URL, "http://")
}
