"""The app of the examples in deploy/: it counts the requests of each key. Standard library only.

    python3 app.py 127.0.0.1:3000
    python3 app.py unix:///run/keyway/app.sock

It ends as an app behind a sidecar should, so that no request fails. From SIGTERM on GET /healthz, which the
sidecar probes (--upstream-health), says 503: the sidecar leaves the ring, and its keys go to others. Requests are
answered until none has come for QUIET seconds. Then the process ends.
"""

import collections
import json
import os
import signal
import socket
import socketserver
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler

QUIET = 3.0  # seconds without a request after which an app that shall end does
MAX_HOLD = 10.0  # seconds

leaving = threading.Event()
lock = threading.Lock()
counts = collections.Counter()  # of each key; guarded by lock
running = 0  # requests; guarded by lock
latest = time.monotonic()  # when a request came or ended; guarded by lock


def enter():
    global running, latest
    with lock:
        running += 1
        latest = time.monotonic()


def leave():
    global running, latest
    with lock:
        running -= 1
        latest = time.monotonic()


class App(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # so that the sidecar's connections are used again
    wbufsize = -1  # an answer in one piece

    def setup(self):
        if self.request.family != socket.AF_UNIX:
            self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        super().setup()

    def do_GET(self):
        if self.path == "/healthz":
            return self.answer(503 if leaving.is_set() else 200, {"leaving": leaving.is_set()})
        enter()
        try:
            self.count()
        finally:
            leave()

    do_POST = do_PUT = do_GET

    def count(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        # The sidecar sets both; what a client has sent under these names is dropped.
        key, token = self.headers.get("Keyway-Key"), self.headers.get("Keyway-Token")
        if key is None:
            return self.answer(400, {"error": "no Keyway-Key: this app belongs behind a sidecar"})
        _, _, hold = self.path.partition("?hold_ms=")
        if hold.isdecimal():
            time.sleep(min(int(hold) / 1000, MAX_HOLD))
        with lock:
            counts[key] += 1
            count = counts[key]
        self.answer(200, {"key": key, "app": os.environ.get("APP_NAME", socket.gethostname()), "count": count, "token": int(token)})

    def answer(self, status, value):
        body = json.dumps(value).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass  # no line for each request


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024


class UnixServer(Server):
    address_family = socket.AF_UNIX
    allow_reuse_address = False


def listen(address):
    if address.startswith("unix://"):
        path = address.removeprefix("unix://")
        if os.path.exists(path):  # of one that was killed
            os.unlink(path)
        return UnixServer(path, App)
    host, _, port = address.rpartition(":")
    return Server((host, int(port)), App)


def wait_until_quiet():
    while True:
        with lock:
            quiet = time.monotonic() - latest
            if running == 0 and quiet >= QUIET:
                return
        time.sleep(0.05)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: app.py HOST:PORT or app.py unix:///PATH")
    server = listen(sys.argv[1])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # in all threads; it waits for sigwait
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"listening on {sys.argv[1]}", flush=True)
    signal.sigwait({signal.SIGTERM})
    leaving.set()
    with lock:
        latest = time.monotonic()
    wait_until_quiet()
