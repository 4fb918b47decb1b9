"""Does what clients/conformance says, in lines of JSON: its comment has the protocol."""

import json
import sys
import threading

import keyway

locks, cancels, output = {}, {}, threading.Lock()


def say(**line):
    with output:
        print(json.dumps(line), flush=True)


def lock(id, keys, ttl, wait, read):
    cancels[id] = threading.Event()
    locks[id] = service.lock(*keys, ttl=ttl, wait=wait, read=read, cancel=cancels[id], on_lost=lambda: say(lost=id))
    return {"tokens": locks[id].tokens}


def run(id, do, of=None, **options):
    try:
        if do == "lock":
            say(id=id, **lock(id, **options))
        elif do == "cancel":
            cancels[of].set()
            say(id=id)
        elif do == "left":
            say(id=id, left=locks[of].left())
        else:
            getattr(locks[of], do)()
            say(id=id)
    except keyway.KeywayError as error:
        say(id=id, error=type(error).__name__.replace("Error", ""), text=str(error))


settings = json.loads(sys.argv[1])
service = keyway.Keyway(*settings["urls"], token=settings["token"], label=settings["label"], timeout=settings["timeout"])
for line in sys.stdin:
    threading.Thread(target=run, kwargs=json.loads(line), daemon=True).start()
