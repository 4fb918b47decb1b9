"""Orders and their like as Django reads them: each answer says what it worked on."""
import json
from urllib.parse import quote

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="tests", LOGGING_CONFIG=None, MIDDLEWARE=["django.middleware.common.CommonMiddleware"])


def tell(request, kind, value):
    resource = "" if value is None or value == "" else f"{kind}:{value}"
    res = HttpResponse()
    res["X-App"] = "1"
    res["X-Key"] = request.headers.get("Keyway-Key", "")
    res["X-Resource"] = quote(resource, safe="", errors="surrogatepass")
    return res


def account(request):
    try:
        body = json.loads(request.body)
        value = body["account"]["id"]
    except (ValueError, TypeError, KeyError):
        value = None
    return tell(request, "account", value)


def pay(request, p):
    return tell(request, "pay", p if request.method == "POST" else None)


def order(request, order, rest=None):
    return tell(request, "order", order)


urlpatterns = [
    path("orders/<order>", order),
    path("orders/<order>/", order),
    path("orders/<order>/<path:rest>", order),
    path("nums/<int:n>", lambda r, n: tell(r, "num", n)),
    path("room", lambda r: tell(r, "room", r.GET.get("room"))),
    path("cart", lambda r: tell(r, "cart", r.COOKIES.get("cart"))),
    path("owner", lambda r: tell(r, "owner", r.headers.get("X-Owner"))),
    path("account", account),
    path("pay/<p>", pay),
]


def none(request, exception=None):
    return tell(request, "none", None)


handler400 = handler404 = handler500 = none
app = get_wsgi_application()
