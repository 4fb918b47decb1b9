// Locks of a Keyway cluster, by the lock service of its routers (router --locks).
//
//   import { Keyway } from "./keyway.mjs";
//
//   const keyway = new Keyway("http://127.0.0.1:8090");
//   await keyway.run("order-42", async (lock) => {
//     await db.query("UPDATE orders SET state = 'shipped', token = $1 WHERE id = 42 AND token < $1", [lock.token]);
//   }, { wait: 5_000 });
//
// Times are in milliseconds. It needs fetch and nothing else: Node 18 or later. keyway.d.mts has the types, docs/clients.md
// is its guide.

const crypto = globalThis.crypto ?? (await import("node:crypto")).webcrypto; // Node 18 has no global one

const ROUND = 30_000; // longest wait of one request; a longer wait takes several
const WARN = 0.8, STOP = 0.95; // parts of a lease after which Lock.signal is aborted, and work must have ended

/** The lock service refuses a request. status is that of its answer, undefined if there is none. */
export class KeywayError extends Error {
  constructor(text, { status, problem = {}, cause } = {}) {
    super(`keyway: ${text}`, cause && { cause });
    Object.assign(this, { name: new.target.name, status, problem });
  }
}

/** Others hold a key. problem has the holder: key, kind, holder, ttl_ms and waiting. */
export class LockedError extends KeywayError {}

/** A key is not held any more, or not certainly, and others may hold it: stop, and do not write. */
export class LostError extends KeywayError {}

/** No router answered in time. A lock that it may have left ends by itself, at the end of its ttl. */
export class UnavailableError extends KeywayError {}

/** The lock service at the URLs of routers, with the token of --locks-token. */
export class Keyway {
  #urls; #headers; #at;

  constructor(urls = "http://127.0.0.1:8090", { token, label = "", timeout = 10_000 } = {}) {
    this.#headers = token ? { Authorization: `Bearer ${token}` } : {};
    this.#urls = [urls].flat().map((url) => {
      if (!/^https?:\/\//i.test(url)) throw new TypeError(`keyway: URL ${url}: want http://HOST:PORT or https://HOST:PORT of a router's --locks`);
      new Request(url, { headers: this.#headers }); // throws a TypeError for what cannot be sent
      return String(url).replace(/\/+$/, "");
    });
    if (this.#urls.length === 0) throw new TypeError("keyway: no URL of a router's --locks");
    this.#at = Math.floor(Math.random() * this.#urls.length); // the router to ask, modulo their number
    Object.assign(this, { label, timeout: milliseconds("timeout", timeout) });
  }

  /** Locks a key, calls fn with the Lock, and unlocks the key. */
  async run(keys, fn, options) {
    const lock = await this.lock(keys, options);
    let result;
    try {
      result = await fn(lock);
    } catch (error) {
      await lock.unlock().catch(() => {}); // fn's own error goes on
      throw error;
    }
    await lock.unlock();
    return result;
  }

  /** Locks a key, or all keys of an array, and returns a Lock. */
  async lock(keys, { ttl, wait = Infinity, read = false, label = this.label, signal } = {}) {
    for (const key of [keys].flat()) {
      if (typeof key !== "string" || /\p{Cs}/u.test(key)) throw new TypeError(`keyway: key ${key}: want a string without half of a surrogate pair`);
    }
    const until = now() + milliseconds("wait", wait);
    const claim = new Claim([keys].flat(), ttl === undefined ? {} : { ttl: ms(ttl) });
    const query = { label, mode: read ? "read" : "write", ...claim.ttl };
    const repeat = this.#repeat.bind(this);
    try {
      for (;;) {
        const limit = this.timeout + (wait === Infinity ? now() + ROUND : until);
        try {
          claim.take(await repeat("POST", claim, limit, query, until, signal));
          if (since(claim.sent) > claim.lease / 10) { // the answer does not say when its ttl_ms began
            claim.take(await repeat("PUT", claim, limit, claim.ttl));
          }
          return new Lock(claim, repeat, this.timeout);
        } catch (error) {
          const again = error instanceof LockedError ? until : error instanceof LostError ? limit : 0;
          if (now() >= again) throw error;
          if (error instanceof LostError) claim.id = crypto.randomUUID(); // a lock that has ended needs a new id
          await sleep(20 + 30 * Math.random(), signal);
        }
      }
    } catch (error) {
      if (claim.posts > 1 || claim.tokens || !(error instanceof KeywayError && error.status)) { // a router may have locked a key
        repeat("DELETE", claim, now() + this.timeout).catch(() => {});
      }
      throw error;
    }
  }

  /** Repeats a request until it is answered, or limit has passed. Returns when it was sent, and the answer. */
  async #repeat(method, claim, limit, query = {}, until = 0, signal = undefined) {
    let failure;
    for (let n = 0; ; n++) {
      signal?.throwIfAborted();
      const wait = Math.min(Math.max(until - now(), 0), ROUND);
      const time = limit - now() - wait;
      const patience = wait + Math.max(Math.min(time / 2, this.timeout), 100);
      const url = this.#urls[this.#at % this.#urls.length];
      const sent = moment();
      let pause = Math.min(50 * 2 ** n, 1000) * (0.5 + Math.random() / 2);
      claim.posts += method === "POST";
      try {
        const full = new URLSearchParams({ ...query, ...(wait && { wait: ms(wait) }) });
        claim.keys.forEach((key) => full.append("key", key));
        const { status, answer, after } = await this.#ask(`${url}/v1/locks?${full}`, method, claim.id, patience, signal);
        if (status === 204 && method === "DELETE") return {};
        if (status === 200 && answer.ttl_ms > 0 && answer.ttl_ms < 1e12 && claim.keys.every((key) => answer.tokens[key])) return { sent, answer };
        if (status === 200 || status === 204) throw new Error("a malformed answer");
        failure = refusal(url, claim, status, answer);
        pause = Math.max(pause, after);
      } catch (error) {
        failure = failure?.status ? failure : error; // an answer says more
      }
      signal?.throwIfAborted();
      if (!(failure instanceof LockedError || failure instanceof LostError)) this.#at++;
      if (failure.status && failure.status !== 429 && (failure.status < 500 || failure.status === 508)) throw failure;
      const rest = limit - now();
      if (rest <= 0) {
        const text = `${claim}: no answer to ${method} in time, at last from ${url}: ${failure.cause ?? failure}. Ask again later, or check the routers and their --locks`;
        throw new UnavailableError(text, { cause: failure });
      }
      await sleep(Math.max(Math.min(pause, rest / 4), 10), signal);
    }
  }

  async #ask(url, method, id, patience, signal) {
    const attempt = new AbortController();
    const stop = () => attempt.abort(new Error("no answer in time"));
    const timer = setTimeout(stop, patience);
    signal?.addEventListener("abort", stop);
    try {
      const headers = { "Idempotency-Key": id, ...this.#headers };
      const response = await fetch(url, { method, headers, redirect: "manual", signal: attempt.signal });
      const text = await response.text();
      const isJSON = response.ok || /json/.test(response.headers.get("Content-Type"));
      const answer = (isJSON ? JSON.parse(text || "{}") : { title: text.slice(0, 200) }) ?? {};
      return { status: response.status, answer, after: 1000 * (Number(response.headers.get("Retry-After")) || 0) };
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
    }
  }
}

/** What the keys are asked for with, and what the answers say. */
class Claim {
  id = crypto.randomUUID();
  posts = 0;

  constructor(keys, ttl) {
    Object.assign(this, { keys, ttl });
  }

  take({ sent, answer }) {
    Object.assign(this, { sent, lease: answer.ttl_ms, tokens: answer.tokens });
  }

  rest(part) {
    return this.lease * part - since(this.sent);
  }

  toString() {
    return this.keys.map((key) => JSON.stringify(key).slice(0, 80)).join(" and ");
  }
}

/** Keys that are held until unlock. */
class Lock {
  #claim; #repeat; #timeout;
  #lost = new AbortController();
  #done = new AbortController();

  constructor(claim, repeat, timeout) {
    [this.#claim, this.#repeat, this.#timeout] = [claim, repeat, timeout];
    this.#renew();
    this.#watch();
  }

  get keys() { return this.#claim.keys; }
  get tokens() { return this.#claim.tokens; }
  get token() { return this.tokens[this.keys[0]]; }
  get signal() { return this.#lost.signal; }

  left() {
    return this.#done.signal.aborted ? 0 : Math.max(this.#claim.rest(STOP), 0);
  }

  check() {
    if (this.signal.aborted || this.left() <= 0) throw lost(this.#claim);
  }

  async unlock() {
    if (this.#done.signal.aborted) return;
    const patience = Math.min(Math.max(this.left(), 1000), this.#timeout);
    this.#done.abort();
    await this.#repeat("DELETE", this.#claim, now() + patience);
  }

  async #renew() {
    while (await this.#pause(this.#claim.rest(1 / 3)) && !this.signal.aborted) {
      try {
        this.#claim.take(await this.#repeat("PUT", this.#claim, now() + this.#claim.rest(WARN), this.#claim.ttl, 0, this.#done.signal));
      } catch (error) {
        if (error instanceof LostError) {
          this.#claim.lease = 0;
          this.#lose(error);
        } else await this.#pause(this.#claim.lease / 20);
      }
    }
  }

  async #watch() {
    for (let rest; (rest = this.#claim.rest(WARN)) > 0;) {
      if (!await this.#pause(Math.min(rest, this.#claim.lease / 20))) return; // the wall clock may run on meanwhile
    }
    this.#lose(lost(this.#claim));
  }

  #lose(error) {
    if (!this.#done.signal.aborted) this.#lost.abort(error);
  }

  /** Returns true after a time, or false once the keys are unlocked. It keeps no process from ending. */
  #pause(time) {
    return sleep(Math.max(time, 0), this.#done.signal, true).then(() => true, () => false);
  }
}

if (Symbol.asyncDispose) Lock.prototype[Symbol.asyncDispose] = Lock.prototype.unlock; // for await using

/** Returns the error of an answer. */
function refusal(url, claim, status, problem) {
  if (status === 410) return lost(claim, { status, problem });
  if (status === 423) {
    const key = JSON.stringify(problem.key ?? `${claim}`).slice(0, 80);
    const by = `another ${(problem.ttl_ms / 1000).toFixed(1)}s by ${problem.holder || "another caller"}`;
    const text = problem.kind === "lock" ? `${key} is locked for ${by}` : `${key} is held by a request`;
    return new LockedError(`${text}: ask again later, or wait longer`, { status, problem });
  }
  return new KeywayError(`${claim}: ${url} answers ${[status, problem.title, problem.detail].filter(Boolean).join(" ")}`, { status, problem });
}

const lost = (claim, more) => new LostError(`${claim}: the lock has ended, and others may hold it: stop, and write only with a new lock`, more);

/** Waits for a time, or throws the reason of a signal that is aborted before. */
function sleep(time, signal, background = false) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, Math.min(time, 2 ** 31 - 1));
    if (background) timer.unref?.();
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop);
  });
}

const now = () => performance.now();
const moment = () => [performance.now(), Date.now()];

/** Returns the time since a moment, by the clock that counts more: one may stop while the machine sleeps. */
const since = ([steady, wall]) => Math.max(performance.now() - steady, Date.now() - wall);

/** Returns a time, or throws for what would make all others NaN. */
function milliseconds(name, time) {
  if (typeof time !== "number" || Number.isNaN(time)) throw new TypeError(`keyway: ${name} ${time}: want a number of milliseconds`);
  return time;
}

const ms = (time) => `${Math.max(Math.round(time), 0)}ms`;
