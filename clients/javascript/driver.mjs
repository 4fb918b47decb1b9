// Does what clients/conformance says, in lines of JSON: its comment has the protocol.

import { createInterface } from "node:readline";
import { Keyway } from "./keyway.mjs";

const { urls, token, label, timeout } = JSON.parse(process.argv[2]);
const service = new Keyway(urls, { token, label, timeout: 1000 * timeout });
const locks = new Map();
const cancels = new Map();
const say = (line) => console.log(JSON.stringify(line));

const ms = (seconds) => seconds === null ? undefined : 1000 * seconds;

const actions = {
  async lock({ id, keys, ttl, wait, read }) {
    cancels.set(id, new AbortController());
    const lock = await service.lock(keys, { ttl: ms(ttl), wait: ms(wait), read, signal: cancels.get(id).signal });
    locks.set(id, lock);
    const lost = () => say({ lost: id });
    if (lock.signal.aborted) lost(); // its answer came too late
    else lock.signal.addEventListener("abort", lost);
    return { tokens: lock.tokens };
  },
  cancel: ({ of }) => cancels.get(of).abort(Object.assign(new Error("cancelled"), { name: "CancelledError" })),
  left: ({ of }) => ({ left: locks.get(of).left() / 1000 }),
  check: ({ of }) => locks.get(of).check(),
  unlock: ({ of }) => locks.get(of)[Symbol.asyncDispose ?? "unlock"](), // what await using calls
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  (async () => actions[request.do](request))().then(
    (answer) => say({ id: request.id, ...answer }),
    (error) => say({ id: request.id, error: error.name.replace("Error", ""), text: error.message }),
  );
}
