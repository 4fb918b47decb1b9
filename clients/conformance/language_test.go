package conformance

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/keyway-go/keyway/internal/test/kit"
)

// runPython runs a program with a client k, and sees that it prints what is wanted.
func runPython(t *testing.T, want, program string) {
	t.Helper()
	p := newPage(t, clients[0], "../python/keyway.py")
	p.write("main.py", "import os, threading, time\nimport keyway\nk = keyway.Keyway("+`"`+p.url+`"`+")\n"+program)
	if got := p.run("python3", "main.py"); got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
}

// TestPythonFork: the child of a fork does not hold its parent's lock, and cannot unlock it.
func TestPythonFork(t *testing.T) {
	runPython(t, "not held\nLost\nheld\n", `
with k.lock("forked") as lock:
    child = os.fork()
    if child == 0:
        print("held" if lock.left() else "not held", flush=True)
        try:
            lock.unlock()
        except keyway.Lost:
            print("Lost", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
print("held")
`)
}

// TestPythonForkBetweenThreads: the child of a fork can lock, whatever its parent's threads were about to do.
func TestPythonForkBetweenThreads(t *testing.T) {
	runPython(t, "locked 20\n", `
import signal
def spin():
    for _ in iter(int, 1):
        k._sleep(0, None, None)
for _ in range(4):
    threading.Thread(target=spin, daemon=True).start()
locked = 0
for n in range(20):
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        k.lock(f"child {n}", ttl=1, wait=5).unlock()
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        break
    locked += 1
print("locked", locked)
`)
}

// TestPythonSlept: after a sleep of the machine, in which its monotonic clock stood still, a holder learns soon that its
// lease is over.
func TestPythonSlept(t *testing.T) {
	runPython(t, "lost\n", `
import types
with k.lock("slept", ttl=60) as lock:
    clock = time.time
    keyway.time = types.SimpleNamespace(monotonic=time.monotonic, sleep=time.sleep, time=lambda: clock() + 3600)
    print("lost" if lock.lost.wait(10) else "not lost")
`)
}

// TestPythonUnreachable: a host that does not take connections is soon left for another one, and does not hold up an end of
// the wait.
func TestPythonUnreachable(t *testing.T) {
	runPython(t, "locked\ncancelled\n", `
import socket
full, others = socket.socket(), []
full.bind(("127.0.0.1", 0))
full.listen(0)
while True:
    others.append(socket.socket())
    others[-1].settimeout(0.5)
    try:
        others[-1].connect(full.getsockname())
    except TimeoutError:
        break
keyway.random.randrange = lambda n: 0
url, began = "http://127.0.0.1:%d" % full.getsockname()[1], time.monotonic()
keyway.Keyway(url, k.urls[0].geturl()).lock("unreachable").unlock()
print("locked" if time.monotonic() - began < 8 else time.monotonic() - began, flush=True)
cancel, began = threading.Event(), time.monotonic()
threading.Timer(0.5, cancel.set).start()
try:
    keyway.Keyway(url).lock("unreachable", cancel=cancel)
except keyway.Cancelled:
    print("cancelled" if time.monotonic() - began < 8 else time.monotonic() - began)
`)
}

// TestPythonSignal: what the handler of a signal raises ends the wait, also if it is an error that a connection can have.
func TestPythonSignal(t *testing.T) {
	runPython(t, "enough\nfree\n", `
import signal
def enough(*_):
    raise TimeoutError("enough")
signal.signal(signal.SIGALRM, enough)
with k.lock("signalled"):
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        k.lock("signalled", wait=20)
    except (TimeoutError, keyway.KeywayError) as error:
        print(error)
k.lock("signalled", wait=20).unlock()
print("free")
`)
}

// TestPythonThreads: a lock that cannot be renewed, for want of threads, is not kept.
func TestPythonThreads(t *testing.T) {
	runPython(t, "can't start new thread\nfree\n", `
start = threading.Thread.start
def few(thread):
    if thread._target.__name__ in ("_watch", "_give_back"):
        raise RuntimeError("can't start new thread")
    start(thread)
threading.Thread.start = few
try:
    k.lock("threads", ttl=1)
except RuntimeError as error:
    print(error)
threading.Thread.start = start
k.lock("threads", wait=30).unlock()
print("free")
`)
}

// TestJavaScriptInput: what cannot be sent, or counted, is refused at once.
func TestJavaScriptInput(t *testing.T) {
	p := newPage(t, clients[1], "../javascript/keyway.mjs")
	p.write("main.mjs", "import { Keyway } from './keyway.mjs';\nconst url = '"+p.url+"';\n"+`
setTimeout(() => process.exit(), 60_000).unref();
for (const call of [
  () => new Keyway(url).lock("\ud800"),
  () => new Keyway(url).lock("odd", { wait: NaN }),
  () => new Keyway(url).lock("odd", { wait: "5s" }),
  () => new Keyway("http://127.0.0.1:1", { timeout: NaN }).lock("odd", { wait: 0 }),
  () => new Keyway([]).lock("odd", { wait: 0 }),
  () => new Keyway("http://user:secret@127.0.0.1:1").lock("odd", { wait: 0 }),
  () => new Keyway(url, { token: "\u017eluna" }).lock("odd", { wait: 0 }),
]) {
  await (async () => call())().then(() => console.log("locked"), (error) => console.log(error.name));
}
const lock = await new Keyway(url).lock("\u{1f600}");
await lock.unlock();
`)
	if got := p.run("node", "main.mjs"); got != strings.Repeat("TypeError\n", 7) {
		t.Errorf("it prints %q, want a TypeError each time", got)
	}
}

// TestJavaScriptSlept: see TestPythonSlept.
func TestJavaScriptSlept(t *testing.T) {
	p := newPage(t, clients[1], "../javascript/keyway.mjs")
	p.write("main.mjs", "import { Keyway } from './keyway.mjs';\nconst url = '"+p.url+"';\n"+`
const lock = await new Keyway(url).lock("slept", { ttl: 60_000 });
const clock = Date.now;
Date.now = () => clock() + 3_600_000;
setTimeout(() => process.exit(), 10_000);
lock.signal.addEventListener("abort", async () => {
  console.log("lost");
  await lock.unlock();
  process.exit();
});
`)
	if got := p.run("node", "main.mjs"); got != "lost\n" {
		t.Errorf("it prints %q, want that the lock is lost", got)
	}
}

// TestJavaSlept: see TestPythonSlept.
func TestJavaSlept(t *testing.T) {
	p := newPage(t, clients[2], "../java/Keyway.java")
	text := string(kit.Must(os.ReadFile("../java/Keyway.java")))
	p.write("Keyway.java", strings.ReplaceAll(text, "System.currentTimeMillis()", "(System.currentTimeMillis() + Long.getLong(\"slept\", 0))"))
	p.write("Main.java", `
import io.keyway.Keyway;
import java.time.Duration;
import java.util.concurrent.TimeUnit;

class Main {
    public static void main(String[] args) throws Exception {
        try (Keyway.Lock lock = new Keyway("`+p.url+`").withTtl(Duration.ofMinutes(1)).lock("slept")) {
            System.setProperty("slept", "3600000");
            lock.lost().toCompletableFuture().get(10, TimeUnit.SECONDS);
            System.out.println("lost");
        }
    }
}
`)
	p.run("javac", "-d", ".", "Keyway.java", "Main.java")
	if got := p.run(java[0], slices.Concat(java[1:], []string{"-cp", ".", "Main"})...); got != "lost\n" {
		t.Errorf("it prints %q, want that the lock is lost", got)
	}
}

// TestPythonInput: what cannot be sent is refused at once.
func TestPythonInput(t *testing.T) {
	runPython(t, "UnicodeEncodeError\nUnicodeEncodeError\nValueError\nValueError\n::1 80\n", `
nowhere = keyway.Keyway("http://[::1]")
def connect(connection):
    print(connection.host, connection.port, flush=True)
    os._exit(0)
for call in (
    lambda: k.lock("\ud800"),
    lambda: k.lock("odd", label="\ud800"),
    lambda: k.lock("odd", wait=float("nan")),
    lambda: keyway.Keyway(token="s3cret\n"),
):
    try:
        call()
    except ValueError as error:
        print(type(error).__name__)
keyway.http.client.HTTPConnection.connect = connect
nowhere.lock("odd", wait=0)
`)
}
