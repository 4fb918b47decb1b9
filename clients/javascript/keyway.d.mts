declare global {
  interface SymbolConstructor {
    readonly asyncDispose: unique symbol; // of TypeScript 5.2
  }
}

/** Times are in milliseconds. */
export interface Options {
  /** How long the keys stay locked after this process has died. Default: the session TTL of the cluster. */
  ttl?: number;
  /** How long to wait for other holders, 0 for not at all. Default: without end. */
  wait?: number;
  /** Shares the keys with other readers. */
  read?: boolean;
  /** Name of the caller, for people. Default: that of the Keyway. */
  label?: string;
  /** Ends the wait: lock throws its reason. */
  signal?: AbortSignal;
}

/** The lock service at the URLs of routers. */
export class Keyway {
  /**
   * token is that of --locks-token. label names this process for people. timeout is how long an unanswered call is
   * repeated, by default 10,000.
   */
  constructor(urls?: string | URL | (string | URL)[], settings?: { token?: string; label?: string; timeout?: number });
  label: string;
  timeout: number;

  /**
   * Locks a key, or all keys of an array. Until unlock they are renewed in the background. It throws a LockedError if
   * others hold a key until the end of the wait, and an UnavailableError if no router has answered for timeout after that.
   */
  lock(keys: string | string[], options?: Options): Promise<Lock>;

  /** Locks keys, calls fn, and unlocks them. It throws fn's error, or that of unlock. */
  run<T>(keys: string | string[], fn: (lock: Lock) => T | Promise<T>, options?: Options): Promise<T>;
}

/** Keys that are held until unlock. */
export interface Lock {
  readonly keys: string[];
  /** The fencing token, of several keys that of the first one. */
  readonly token: number;
  /** The fencing token of each key. */
  readonly tokens: Record<string, number>;
  /**
   * Is aborted when the keys are known not to be held, or when 0.8 of their lease has passed without a renewal: end the
   * work within left().
   */
  readonly signal: AbortSignal;
  /** Returns for how much longer the keys are held, 0 if they are not. */
  left(): number;
  /** Throws a LostError unless the keys are held. */
  check(): void;
  /** Unlocks the keys. It throws a LostError if they were not, or not certainly, held until now. A second call does nothing. */
  unlock(): Promise<void>;
  /** Is unlock, for await using, where the runtime has it. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** The lock service refuses a request. */
export class KeywayError extends Error {
  /** The status of the answer, undefined if there is none. */
  status?: number;
  /** The answer. */
  problem: { type?: string; title?: string; detail?: string; key?: string; kind?: string; holder?: string; ttl_ms?: number; waiting?: number };
}

/** Others hold a key; problem has the holder. */
export class LockedError extends KeywayError {}

/** A key is not held any more, or not certainly, and others may hold it: stop, and do not write. */
export class LostError extends KeywayError {}

/** No router answered in time. A lock that it may have left ends by itself, at the end of its ttl. */
export class UnavailableError extends KeywayError {}
