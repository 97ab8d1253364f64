"""Who may see the page and who may act: a middleware in front of every answer.

On loopback without a token, anybody on this machine may look; a name in `Host` that is not loopback's own is refused, or a page on
the web could point its name at this machine and read along (DNS rebinding). Anywhere else a token is demanded: as ``?token=`` once,
which becomes a cookie and leaves the address, or as ``Authorization: Bearer``. What changes something is a POST from this page:
its origin is checked, and a header that no other page can know.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from streams.errors import UsageError

COOKIE = "docdelta_board"
CSRF_HEADER = "X-Docdelta-Csrf"
LEAST_TOKEN = 16
SESSION_SECONDS = 12 * 3600
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
    "Server": "docdelta",
}


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a server that listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def token_for(host: str, given: str) -> str:
    """Return the token that a server on `host` demands; empty: none. Off loopback one is made where none is given.

    UsageError for one that could be guessed.
    """
    if given and len(given) < LEAST_TOKEN:
        raise UsageError(f"--token: give at least {LEAST_TOKEN} characters, or leave it out and one is made")
    return given or ("" if is_loopback(host) else secrets.token_urlsafe(32))


@dataclass(frozen=True, slots=True)
class Guard:
    """The rules of one server. `token` empty: on loopback, nobody is asked."""

    token: str = ""
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    """What the cookie holds: good as long as this process runs."""
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def middleware(self) -> Middleware:
        """The middleware of an application."""

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            answer: web.StreamResponse | None = self._refusal(request) or self._entry(request)
            if answer is None:
                try:
                    answer = await handler(request)
                except web.HTTPException as error:
                    answer = _plain(error.status, error.reason)
            if not answer.prepared:
                self.dress(answer)
            return answer

        return guarded

    def dress(self, answer: web.StreamResponse) -> None:
        """Set the headers that every answer has."""
        answer.headers.update(HEADERS)

    def _refusal(self, request: web.Request) -> web.Response | None:
        if not self.token and not is_loopback(_name(request.host)):
            return _plain(421, "this page answers to 127.0.0.1 and localhost alone; start it with --token to use other names")
        if request.method not in ("GET", "HEAD", "POST"):
            return _plain(405, "only GET and POST")
        if request.method == "POST" and not self._same_origin(request):
            return _plain(403, "an action must come from the page itself")
        if request.path.startswith("/api/") and request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
            return _plain(403, "another page can't read this")
        return None

    def _same_origin(self, request: web.Request) -> bool:
        """Return whether a browser vouches that our own page asks, and the page knows what only it can know."""
        origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
        if origin is None and site is None:
            return False
        if origin is not None and urlsplit(origin).netloc.lower() != request.host.lower():
            return False
        if site is not None and site != "same-origin":
            return False
        return request.content_type == "application/json" and _equal(request.headers.get(CSRF_HEADER, ""), self.csrf)

    def _entry(self, request: web.Request) -> web.Response | None:
        """Return what is answered to whoever is not let in, or is let in just now; None where the request goes on."""
        if not self.token:
            return None
        if (given := request.query.get("token")) is not None and request.method == "GET":
            if not _equal(given, self.token):
                return _plain(403, "this is not the token; the terminal that started the dashboard shows it")
            answer = web.Response(status=303, headers={"Location": request.path})
            secure = request.secure or request.headers.get("X-Forwarded-Proto") == "https"
            answer.set_cookie(
                COOKIE, self.session, max_age=SESSION_SECONDS, httponly=True, samesite="Strict", secure=secure, path="/"
            )
            return answer
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if _equal(request.cookies.get(COOKIE, ""), self.session) or _equal(bearer, self.token):
            return None
        return _plain(401, "a token is needed: open the address that the terminal showed, with ?token=… at its end")


def _equal(given: str, wanted: str) -> bool:
    """Compare in a time that tells nothing of where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode())


def _name(host: str) -> str:
    """Return the name in a Host header, without the port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()


def _plain(status: int, words: str) -> web.Response:
    return web.Response(status=status, text=words + "\n")
