package conformance

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/test/kit"
)

// page is a directory for the programs of docs/clients.md.
type page struct {
	t   *testing.T
	dir string
	url string // of the lock service, which wants no token
}

func newPage(t *testing.T, c client, file string) *page {
	c.need(t)
	s := newSite(t)
	proxy := s.newProxy(func(r *http.Request) fate {
		r.Header.Set("Authorization", "Bearer "+token)
		return fate{}
	})
	p := &page{t, t.TempDir(), proxy.url}
	p.write(filepath.Base(file), string(kit.Must(os.ReadFile(file))))
	return p
}

func (p *page) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// blocks returns the two blocks of a language: the fenced write, and that behind a sidecar.
func (p *page) blocks(language string) (fenced, behind string) {
	p.t.Helper()
	text := string(kit.Must(os.ReadFile("../../docs/clients.md")))
	found := regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1)
	if len(found) != 2 || !strings.Contains(found[0][1], "http://127.0.0.1:8090") {
		p.t.Fatalf("the page has %d blocks of %s, want one that locks, and one behind a sidecar", len(found), language)
	}
	return strings.ReplaceAll(found[0][1], "http://127.0.0.1:8090", p.url), found[1][1]
}

// run runs a program, and returns what it prints.
func (p *page) run(name string, args ...string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), name, args...)
	cmd.Dir = p.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

func TestPagePython(t *testing.T) {
	p := newPage(t, clients[0], "../python/keyway.py")
	fenced, behind := p.blocks("python")
	const open = "import sqlite3\nwith sqlite3.connect('orders.db') as db:\n    "
	p.run("python3", "-c", open+"db.execute('CREATE TABLE orders (id INTEGER, state, token)'); db.execute(\"INSERT INTO orders VALUES (42, 'new', 0)\")")
	p.write("ship.py", fenced)
	written := func() (token int64) {
		t.Helper()
		var state string
		if _, err := fmt.Sscan(p.run("python3", "-c", open+"print(*db.execute('SELECT state, token FROM orders').fetchone())"), &state, &token); err != nil || state != "shipped" {
			t.Fatal(state, err)
		}
		return token
	}
	p.run("python3", "ship.py")
	first := written()
	p.run("python3", "ship.py")
	if second := written(); second <= first {
		t.Errorf("it writes with token %d after %d", second, first)
	}
	p.write("behind.py", behind+open+"for token in 1, 1 << 62:\n        print(ship(db, {'Keyway-Token': str(token), 'Keyway-Key': '%34%32'}).rowcount)\n")
	if got := p.run("python3", "behind.py"); got != "0\n1\n" {
		t.Errorf("behind a sidecar a low and a high token write %q rows", got)
	}
}

func TestPageJavaScript(t *testing.T) {
	p := newPage(t, clients[1], "../javascript/keyway.mjs")
	fenced, behind := p.blocks("js")
	const db = "const db = { query: async (text, values) => (console.log(JSON.stringify(values)), { rowCount: 1 }) };\n"
	p.write("ship.mjs", fenced)
	p.write("main.mjs", "import { ship } from './ship.mjs';\n"+db+"await ship(db);\n")
	if got := p.run("node", "main.mjs"); !regexp.MustCompile(`^\[[1-9][0-9]+\]\n$`).MatchString(got) {
		t.Errorf("the database was given %q, want a token", got)
	}
	p.write("behind.mjs", behind)
	p.write("main.mjs", "import { ship } from './behind.mjs';\n"+db+"await ship(db, { headers: { 'keyway-token': '7', 'keyway-key': '%34%32' } });\n")
	if got := p.run("node", "main.mjs"); got != "[7,\"42\"]\n" {
		t.Errorf("behind a sidecar the database is given %q", got)
	}
}

func TestPageJava(t *testing.T) {
	p := newPage(t, clients[2], "../java/Keyway.java")
	fenced, behind := p.blocks("java")
	p.write("Shipping.java", fenced)
	p.write("Behind.java", behind)
	p.write("Main.java", `
import com.sun.net.httpserver.Headers;
import java.lang.reflect.Proxy;

class Main {
    // of returns something of a database that prints what it is given.
    static <T> T of(Class<T> type) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (self, method, given) -> {
            if (method.getName().startsWith("set")) {
                System.out.println(given[1]);
            }
            Class<?> result = method.getReturnType();
            return result == int.class ? (Object) 1 : result.isInterface() ? of(result) : null;
        }));
    }

    public static void main(String[] args) throws Exception {
        Shipping.ship(of(javax.sql.DataSource.class));
        Headers headers = new Headers();
        headers.set("Keyway-Token", "7");
        headers.set("Keyway-Key", "%34%32+");
        Behind.ship(of(java.sql.Connection.class), headers);
    }
}
`)
	p.run("javac", "-Xlint:all", "-Werror", "-d", ".", "Keyway.java", "Shipping.java", "Behind.java", "Main.java")
	got := p.run(java[0], slices.Concat(java[1:], []string{"-cp", ".", "Main"})...)
	if !regexp.MustCompile(`^[1-9][0-9]+\n[1-9][0-9]+\n7\n42\+\n7\n$`).MatchString(got) {
		t.Errorf("the database was given %q, want a token twice, and what came behind a sidecar", got)
	}
}
