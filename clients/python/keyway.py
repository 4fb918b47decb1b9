"""Locks of a Keyway cluster, by the lock service of its routers (router --locks).

    from keyway import Keyway

    keyway = Keyway("http://127.0.0.1:8090")
    with keyway.lock("order-42", wait=5) as lock:
        db.execute("UPDATE orders SET state = 'shipped', token = :t WHERE id = 42 AND token < :t", {"t": lock.token})

Times are in seconds. It needs Python 3.9 and the standard library. docs/clients.md is its guide.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import math
import os
import queue
import random
import socket
import threading
import time
import uuid
from urllib.parse import urlencode, urlsplit

__all__ = ["Keyway", "Lock", "KeywayError", "Locked", "Lost", "Unavailable", "Cancelled"]

_ROUND = 30.0  # longest wait of one request; a longer wait takes several
_WARN, _STOP = 0.8, 0.95  # parts of a lease after which Lock.lost is set, and work must have ended


class KeywayError(Exception):
    """The lock service refuses a request. status is that of its answer, None if there is none."""

    def __init__(self, text, status=None, problem=None):
        super().__init__(text)
        self.status, self.problem = status, problem or {}


class Locked(KeywayError):
    """Others hold a key. problem has the holder: key, kind, holder, ttl_ms and waiting."""


class Lost(KeywayError):
    """A key is not held any more, or not certainly, and others may hold it: stop, and do not write."""


class Unavailable(KeywayError):
    """No router answered in time. A lock that it may have left ends by itself, at the end of its ttl."""


class Cancelled(KeywayError):
    """The caller has set cancel."""


class Keyway:
    """The lock service at the URLs of routers, with the token of --locks-token. Threads may share it.

    timeout is how long an unanswered call is repeated. label names this process for people; by
    default it is the name of the host. ssl is an ssl.SSLContext for https.
    """

    def __init__(self, *urls, token=None, label=None, timeout=10.0, ssl=None):
        self.urls = [urlsplit(url) for url in urls or ["http://127.0.0.1:8090"]]
        for url in self.urls:
            if url.scheme not in ("http", "https") or not url.hostname or (url.port or 1) < 0:
                raise ValueError(f"keyway: URL {url.geturl()!r}: want http://HOST:PORT or https://HOST:PORT of a router's --locks")
        if token and not (token.isascii() and token.isprintable()):
            raise ValueError("keyway: token: want printable ASCII characters, and no end of a line")
        self.timeout, self.ssl = timeout, ssl
        self.label = label or socket.gethostname()[:64]
        self._headers = {"Authorization": "Bearer " + token} if token else {}
        self._at = random.randrange(len(self.urls))  # the router to ask, modulo their number

    def lock(self, *keys, ttl=None, wait=None, read=False, label=None, cancel=None, on_lost=None):
        """Locks a key, or all of several keys, and returns a Lock.

        It waits for other holders: without end, for wait seconds, or not at all (wait=0). Then it raises
        Locked. It raises Unavailable if no router has answered for timeout after that. If this process
        dies, the keys stay locked for ttl seconds (by default the cluster's session TTL); until then they
        are renewed in the background. read shares them with other readers. cancel is a threading.Event
        that ends the wait. on_lost is called, in another thread, when Lock.lost is set.
        """
        for key in keys:
            if not isinstance(key, str):
                raise TypeError(f"keyway: key {key!r}: want a str; give several keys as several arguments")
        "".join([*keys, label or self.label]).encode()  # raises UnicodeEncodeError, a ValueError, for half of a surrogate pair
        if wait != wait:
            raise ValueError("keyway: wait is not a number")
        until = math.inf if wait is None else time.monotonic() + wait
        lock = Lock(self, keys, {} if ttl is None else {"ttl": _ms(ttl)}, on_lost)
        query = {"label": label or self.label, "mode": "read" if read else "write", **lock._ttl}
        try:
            while True:
                limit = self.timeout + (time.monotonic() + _ROUND if wait is None else until)
                try:
                    lock._take(*self._repeat("POST", lock, limit, query, until, cancel))
                    sent, lease = lock._held
                    if _since(sent) > lease / 10:  # the answer does not say when its ttl_ms began
                        lock._take(*self._repeat("PUT", lock, limit, lock._ttl))
                    lock._start()
                    return lock
                except (Locked, Lost) as error:
                    if time.monotonic() >= (until if isinstance(error, Locked) else limit):
                        raise
                    if isinstance(error, Lost):
                        lock._id = str(uuid.uuid4())  # a lock that has ended needs a new id
                    self._sleep(random.uniform(0.02, 0.05), lock, cancel)
        except BaseException as error:
            lock._done.set()  # if it could not start all threads
            if lock._posts > 1 or lock.tokens or getattr(error, "status", None) is None:  # a router may have locked a key
                threading.Thread(target=self._give_back, args=(lock,)).start()
            raise

    def _give_back(self, lock):
        with contextlib.suppress(KeywayError):
            self._repeat("DELETE", lock, time.monotonic() + self.timeout)

    def _repeat(self, method, lock, limit, query=None, until=0.0, cancel=None):
        """Repeats a request until it is answered, or limit has passed. Returns when it was sent, and the answer."""
        failure = None
        for n in itertools.count():
            wait = min(max(until - time.monotonic(), 0), _ROUND)
            rest = limit - time.monotonic() - wait
            patience = wait + max(min(rest / 2, self.timeout), 0.1)
            url = self.urls[self._at % len(self.urls)]
            pause, sent = min(0.05 * 2 ** min(n, 9), 1) * random.uniform(0.5, 1), _now()
            self._sleep(0, lock, cancel)
            lock._posts += method == "POST"
            full = {"key": lock.keys, **(query or {}), **({"wait": _ms(wait)} if wait else {})}
            status, answer, after = self._ask(url, method, full, lock, patience, cancel if method == "POST" else None)
            if status in (200, 204):
                return sent, answer
            self._at += status not in (410, 423)
            if 0 < status < 500 and status != 429 or status == 508:
                raise answer
            if status or not isinstance(failure, KeywayError):  # an answer says more
                failure = answer
            pause = max(pause, after)
            rest = limit - time.monotonic()
            if rest <= 0:
                raise Unavailable(f"keyway: {lock}: no answer to {method} in time, at last from {url.geturl()}: {failure}. Ask again later, or check the routers and their --locks")
            self._sleep(max(min(pause, rest / 4), 0.01), lock, cancel)

    def _sleep(self, pause, lock, cancel):
        if cancel.wait(pause) if cancel else time.sleep(pause):
            raise Cancelled(f"keyway: {lock}: the wait was cancelled")

    def _ask(self, url, method, query, lock, patience, cancel):
        """Makes a request. Returns the status, the JSON of the answer or an error, and Retry-After. The status is 0 without an answer.

        The request has a thread of its own, so that no error of it is mistaken for what a signal's handler raises in this one.
        """
        if url.scheme == "https":
            connection = http.client.HTTPSConnection(url.hostname, url.port or 443, timeout=min(patience, 2), context=self.ssl)
        else:
            connection = http.client.HTTPConnection(url.hostname, url.port or 80, timeout=min(patience, 2))
        path = f"{url.path.rstrip('/')}/v1/locks?{urlencode(query, doseq=True)}"
        headers = {"Idempotency-Key": lock._id, **self._headers}
        result, done, until = queue.SimpleQueue(), threading.Event(), time.monotonic() + patience

        def exchange():
            try:
                connection.connect()
                connection.sock.settimeout(patience)
                if not done.is_set():
                    connection.request(method, path, headers=headers)
                    result.put(_answer(connection.getresponse(), url, method, lock))
            except Exception as error:
                result.put((0, error, 0))
            finally:
                connection.close()

        try:
            threading.Thread(target=exchange, daemon=True).start()
        except RuntimeError as error:  # there are too many
            return 0, error, 0
        try:
            while (rest := until - time.monotonic()) > 0 and not (cancel and cancel.is_set()):
                with contextlib.suppress(queue.Empty):
                    return result.get(timeout=min(rest, 0.05) if cancel else rest)
            return 0, TimeoutError("silence"), 0
        finally:
            done.set()
            with contextlib.suppress(OSError, AttributeError):  # it has ended, or not begun
                connection.sock.shutdown(socket.SHUT_RDWR)


class Lock:
    """Keys that are held until unlock, or until the end of a with block.

    tokens has the fencing token of each key. lost is a threading.Event. It is set when the keys are known
    not to be held, or when 0.8 of their lease has passed without a renewal: end the work within left().
    A child of os.fork does not hold them.
    """

    def __init__(self, keyway, keys, ttl, on_lost):
        self.keys, self.tokens, self.lost = keys, {}, threading.Event()
        self._keyway, self._ttl, self._on_lost = keyway, ttl, on_lost
        self._id, self._posts, self._process = str(uuid.uuid4()), 0, os.getpid()
        self._held = _now(), 0.0  # when the request was sent that was answered last, and the lease from then on
        self._done, self._first = threading.Event(), threading.Lock()

    @property
    def token(self):
        """The fencing token, of several keys that of the first one."""
        return self.tokens[self.keys[0]]

    def left(self):
        """Returns for how many more seconds the keys are held, 0 if they are not."""
        return 0.0 if self._done.is_set() or self._process != os.getpid() else max(self._rest(_STOP), 0.0)

    def check(self):
        """Raises Lost unless the keys are held."""
        if self.lost.is_set() or self.left() <= 0:
            raise _lost(self)

    def unlock(self):
        """Unlocks the keys. It raises Lost if they were not, or not certainly, held until now. A second call does nothing."""
        if self._process != os.getpid():
            raise _lost(self)
        patience = min(max(self.left(), 1), self._keyway.timeout)
        if not self._done.is_set():
            self._done.set()
            self._keyway._repeat("DELETE", self, time.monotonic() + patience)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        with contextlib.suppress(*[KeywayError] if kind else []):  # the block's own error goes on
            self.unlock()

    def __str__(self):
        return " and ".join(f"{key!r:.80}" for key in self.keys)

    def _rest(self, part):
        sent, lease = self._held
        return lease * part - _since(sent)

    def _take(self, sent, answer):
        self.tokens, self._held = answer["tokens"], (sent, answer["ttl_ms"] / 1000)

    def _start(self):
        for target in self._renew, self._watch:
            threading.Thread(target=target, daemon=True).start()

    def _renew(self):
        while not self._done.wait(max(self._rest(1 / 3), 0)) and not self.lost.is_set():
            try:
                self._take(*self._keyway._repeat("PUT", self, time.monotonic() + self._rest(_WARN), self._ttl, cancel=self._done))
            except Lost:
                self._held = self._held[0], 0.0
                self._lose()
            except KeywayError:
                self._done.wait(self._held[1] / 20)

    def _watch(self):
        while (rest := self._rest(_WARN)) > 0:
            if self._done.wait(min(rest, self._held[1] / 20)):  # the wall clock may run on while this wait stands still
                return
        self._lose()

    def _lose(self):
        if not self._done.is_set() and self._first.acquire(blocking=False):
            self.lost.set()
            if self._on_lost:
                self._on_lost()


def _answer(response, url, method, lock):
    """Reads an answer. Returns the status, the JSON or the error that it stands for, and Retry-After."""
    while response.status < 200:  # an informational answer, such as 103
        response.headers = None
        response.begin()
    status, text = response.status, response.read(1 << 20)
    try:
        answer = {**json.loads(text or b"{}")}
    except (ValueError, TypeError, RecursionError):
        answer = {"title": text[:200].decode(errors="replace")}
    if status in (200, 204):
        if status == 204 and method == "DELETE" or status == 200 and 0 < answer["ttl_ms"] / 1000 < threading.TIMEOUT_MAX and all(answer["tokens"][key] for key in lock.keys):
            return status, answer, 0
        raise ValueError("a malformed answer")
    after = response.headers.get("Retry-After", "")
    return status, _refusal(url, lock, status, answer), int(after) if after.isdecimal() else 0


def _refusal(url, lock, status, answer):
    """Returns the error of an answer."""
    if status == 410:
        return _lost(lock, status, answer)
    if status == 423:
        key = answer.get("key", str(lock))
        by = f"another {answer.get('ttl_ms', 0) / 1000:.1f}s by {answer.get('holder') or 'another caller'}"
        text = f"{key!r:.80} is locked for {by}" if answer.get("kind") == "lock" else f"{key!r:.80} is held by a request"
        return Locked(f"keyway: {text}: ask again later, or wait longer", status, answer)
    text = " ".join(filter(None, (answer.get("title"), answer.get("detail"))))
    return KeywayError(f"keyway: {lock}: {url.geturl()} answers {status} {text}", status, answer)


def _lost(lock, *answer):
    return Lost(f"keyway: {lock}: the lock has ended, and others may hold it: stop, and write only with a new lock", *answer)


def _now():
    return time.monotonic(), time.time()


def _since(moment):
    """Returns the seconds since a moment, by the clock that counts more: one may stop while the machine sleeps."""
    return max(time.monotonic() - moment[0], time.time() - moment[1])


def _ms(seconds):
    return f"{max(round(seconds * 1000), 0)}ms"
