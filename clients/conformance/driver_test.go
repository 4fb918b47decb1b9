package conformance

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"
)

// client is an implementation to try.
type client struct {
	name   string
	needs  string // a program
	debian string // its package
	driver []string
}

var clients = []client{
	{"python", "python3", "python3", []string{"python3", "../python/driver.py"}},
	{"javascript", "node", "nodejs", []string{"node", "../javascript/driver.mjs"}},
	{"java", "javac", "openjdk-17-jdk-headless", slices.Concat(java, []string{"io.keyway.Driver"})},
}

// java starts a program of compiled classes, at little cost.
var java = []string{"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"}

// need skips the test if the client's language is not installed.
func (c client) need(t *testing.T) {
	t.Helper()
	if !c.installed() {
		t.Skipf("%s is not installed (Debian: apt-get install %s)", c.needs, c.debian)
	}
}

func (c client) installed() bool {
	_, err := exec.LookPath(c.needs)
	return err == nil
}

// line is what a driver says.
type line struct {
	ID     int
	Lost   int
	Tokens map[string]int64
	Left   float64
	Error  string
	Text   string
}

// driver is a running one.
type driver struct {
	t  *testing.T
	in *json.Encoder

	mu      sync.Mutex
	last    int               // id of a request
	answers map[int]chan line // to requests
	lost    map[int]chan struct{}
}

// settings are those of a client.
type settings struct {
	URLs    []string `json:"urls"`
	Token   string   `json:"token"`
	Label   string   `json:"label"`
	Timeout float64  `json:"timeout"`
}

// start starts a driver, which asks those proxies.
func (c client) start(t *testing.T, timeout float64, proxies ...*proxy) *driver {
	t.Helper()
	s := settings{Token: token, Label: "one of " + c.name, Timeout: timeout}
	for _, p := range proxies {
		s.URLs = append(s.URLs, p.url)
	}
	return c.startWith(t, s)
}

func (c client) startWith(t *testing.T, s settings) *driver {
	t.Helper()
	argument, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(c.driver[0], slices.Concat(c.driver[1:], []string{string(argument)})...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "CLASSPATH="+classes)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &driver{t: t, in: json.NewEncoder(in), answers: make(map[int]chan line), lost: make(map[int]chan struct{})}
	read := make(chan struct{})
	go func() {
		defer close(read)
		d.read(out)
	}()
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill() // it may still renew locks
		<-read
		_ = cmd.Wait() // killed
	})
	return d
}

func (d *driver) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			d.t.Errorf("a driver says %q: %v", lines.Text(), err)
			continue
		}
		d.mu.Lock()
		if l.Lost != 0 {
			close(d.lost[l.Lost])
		} else {
			d.answers[l.ID] <- l
		}
		d.mu.Unlock()
	}
}

// begin makes a request.
func (d *driver) begin(do string, with map[string]any) int {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	d.answers[d.last], d.lost[d.last] = make(chan line, 1), make(chan struct{})
	full := map[string]any{"id": d.last, "do": do}
	maps.Copy(full, with)
	if err := d.in.Encode(full); err != nil {
		d.t.Errorf("a driver does not read: %v", err)
	}
	return d.last
}

// end returns the answer to a request.
func (d *driver) end(id int) line {
	d.t.Helper()
	d.mu.Lock()
	answer := d.answers[id]
	d.mu.Unlock()
	select {
	case l := <-answer:
		return l
	case <-time.After(settled):
		d.t.Errorf("request %d has no answer", id)
		return line{Error: "none"}
	}
}

// of does something with a lock.
func (d *driver) of(id int, do string) line {
	d.t.Helper()
	return d.end(d.begin(do, map[string]any{"of": id}))
}

// wish is how a lock is asked for. Times are in seconds.
type wish struct {
	ttl  float64 // 0 for the client's default
	wait float64 // forever for the client's default
	read bool
	keys []string
}

const forever = -1

// beginLock asks for a lock.
func (d *driver) beginLock(w wish) int {
	d.t.Helper()
	with := map[string]any{"keys": w.keys, "ttl": w.ttl, "wait": w.wait, "read": w.read}
	if w.ttl == 0 {
		with["ttl"] = nil
	}
	if w.wait == forever {
		with["wait"] = nil
	}
	return d.begin("lock", with)
}

// lock asks for a lock, and wants that result: "" for the lock, or an error.
func (d *driver) lock(want string, w wish) (id int, l line) {
	d.t.Helper()
	id = d.beginLock(w)
	if l = d.end(id); l.Error != want {
		d.t.Fatalf("locking %v: %q %s, want %q", w.keys, l.Error, l.Text, want)
	}
	return id, l
}

// must does something with a lock, and wants that result.
func (d *driver) must(want string, id int, do string) {
	d.t.Helper()
	if l := d.of(id, do); l.Error != want {
		d.t.Fatalf("%s: %q %s, want %q", do, l.Error, l.Text, want)
	}
}

// awaitLost waits until the driver says that a lock is being lost.
func (d *driver) awaitLost(id int) {
	d.t.Helper()
	select {
	case <-d.lostOf(id):
	case <-time.After(settled):
		d.t.Fatal("nothing says that the lock is lost")
	}
}

func (d *driver) lostOf(id int) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost[id]
}
