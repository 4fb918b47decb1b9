"""A shop's stock, as an app behind Keyway's sidecar. Standard library only.

POST /stock/SKU {"buy": 2} takes pieces out of the stock. It reads, decides and
writes, without a lock: the sidecar in front of it sends one request of a SKU
at a time, and no other app gets any of that SKU meanwhile.

With --batch /batch it sends those that wait for a SKU together: POST /batch with
an array of them, which takes one write for all.
"""

import json
import os
import sqlite3
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def connect():
    db = sqlite3.connect(os.environ["STOCK_DB"], isolation_level=None)  # each statement commits
    db.execute("CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, pieces INTEGER, token INTEGER)")
    return db


def buy(db, sku, orders, token):
    """Returns an answer for each of the orders: {"status": …, "body": …}."""
    db.execute("INSERT OR IGNORE INTO stock VALUES (?, 40, 0)", (sku,))  # a new SKU has 40 pieces
    (left,) = db.execute("SELECT pieces FROM stock WHERE sku = ?", (sku,)).fetchone()
    time.sleep(0.002)  # for the work in between: a price to look up, a rule to check
    answers = []
    for order in orders:
        if left < order["buy"]:
            answers.append({"status": 409, "body": {"error": "sold out", "left": left}})
        else:
            left -= order["buy"]
            answers.append({"status": 200, "body": {"left": left, "together": len(orders)}})
    # The token goes up with each request or batch of a SKU. The condition keeps a
    # write out that comes too late: from an app that was stopped in the middle of
    # a request, and goes on when another one has long taken the SKU over.
    done = db.execute(
        "UPDATE stock SET pieces = ?, token = ? WHERE sku = ? AND token < ?",
        (left, token, sku, token),
    )
    if done.rowcount == 0:
        late = {"error": "too late: a later request of this SKU has written"}
        return [{"status": 503, "body": late} for _ in orders]
    return answers


class App(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # so that the sidecar's connections are used again

    def setup(self):
        super().setup()
        self.db = connect()  # one per connection, which has a thread

    def finish(self):
        self.db.close()
        super().finish()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        # The sidecar sets both; what a client has sent under these names is dropped.
        # The SKU is not read from the request again: the key is what the sidecar holds.
        sku, token = self.headers["Keyway-Key"], int(self.headers["Keyway-Token"])
        if self.path == "/batch":  # not from a client: the router finds no SKU in it
            self.answer(200, buy(self.db, sku, [request["body"] for request in body], token))
        else:
            (answer,) = buy(self.db, sku, [body], token)
            self.answer(answer["status"], answer["body"])

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Keyway-Key", self.headers["Keyway-Key"])  # what this worked on: the sidecar compares it
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass  # no line for each request


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", 0))), App)
    print(f"listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
