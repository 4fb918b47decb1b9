"""Orders and their like as Flask reads them: each answer says what it worked on."""
from urllib.parse import quote

from flask import Flask, Response, request

app = Flask(__name__)
ALL = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def tell(kind, value):
    resource = "" if value is None or value == "" else f"{kind}:{value}"
    return Response(headers={"X-App": "1", "X-Key": request.headers.get("Keyway-Key", ""), "X-Resource": quote(resource, safe="", errors="surrogatepass")})


@app.route("/orders/<order>", methods=ALL)
@app.route("/orders/<order>/", methods=ALL)
@app.route("/orders/<order>/<path:rest>", methods=ALL)
def orders(order, rest=None):
    return tell("order", order)


@app.route("/nums/<int:n>", methods=ALL)
def nums(n):
    return tell("num", n)


@app.route("/room", methods=ALL)
def room():
    return tell("room", request.args.get("room"))


@app.route("/cart", methods=ALL)
def cart():
    return tell("cart", request.cookies.get("cart"))


@app.route("/owner", methods=ALL)
def owner():
    return tell("owner", request.headers.get("X-Owner"))


@app.route("/account", methods=ALL)
def account():
    body = request.get_json(silent=True)
    inner = body.get("account") if isinstance(body, dict) else None
    return tell("account", inner.get("id") if isinstance(inner, dict) else None)


@app.route("/pay/<p>", methods=["POST"])
def pay(p):
    return tell("pay", p)


@app.errorhandler(Exception)
def none(e):
    return tell("none", None)
