package conformance

import "testing"

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
]) {
  await (async () => call())().then(() => console.log("locked"), (error) => console.log(error.name));
}
const lock = await new Keyway(url).lock("\u{1f600}");
await lock.unlock();
`)
	if got := p.run("node", "main.mjs"); got != "TypeError\nTypeError\nTypeError\nTypeError\n" {
		t.Errorf("it prints %q, want a TypeError each time", got)
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
