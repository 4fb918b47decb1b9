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
