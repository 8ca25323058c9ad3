"""Who may talk to the review server: the page that it served, opened with its token, in this machine's browser.

Other sites can make a browser send requests here, and can have their own name point here. So every request must name
this server as its Host (a rebound name is another one), and bring the token; one that changes something must also come
from the page itself (Origin). A page of another run, left open since that one was served here, has the new token too,
for the browser's pages share it: so pages name their run.
"""

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
LARGEST = 4_000_000
"""bytes of a request's body"""


class Guard:
    """Lets requests through to an app, or answers them with a refusal; every answer has the headers above."""

    def __init__(self, app: App, *, token: str, port: int, run: str):
        self._app, self._token, self._run = app, token.encode(), run
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}
        # Cookies know no ports: two reviews at once must not take each other's.
        self._cookie = f"stepe-review-{port}"

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return  # nothing else is served here
        headers = {name.decode("latin1").lower(): value.decode("latin1") for name, value in scope["headers"]}
        asked = parse_qs(scope["query_string"].decode("latin1")).get("token", [""])[0]
        invited = scope["path"] == "/" and self._is_token(asked)
        refusal = self._refusal(scope["method"], headers, invited=invited)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
                if invited and refusal is None:
                    value = f"{self._cookie}={asked}; Path=/; HttpOnly; SameSite=Strict"
                    message["headers"].append((b"set-cookie", value.encode()))
            await send(message)

        if refusal is None:
            await self._app(scope, receive, answer)
            return
        status, text = refusal
        start = {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]}
        await answer(start)
        await answer({"type": "http.response.body", "body": f"{text}\n".encode()})

    def _refusal(self, method: str, headers: dict[str, str], *, invited: bool) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if host not in self._hosts:
            return 421, "This server is only reached by the address that `stepe review` prints."
        if not invited and not self._is_token(self._cookie_of(headers)):
            return 403, "Open the whole address that `stepe review` prints: its token is missing, or of another start."
        if headers.get("stepe-run", self._run) != self._run:
            return 409, "This page is of another run than the one reviewed here now; close it, or serve that run again."
        if method in ("GET", "HEAD"):
            return None
        if headers.get("origin") != f"http://{host}":
            return 403, "Only the page of this review may change something."
        size = headers.get("content-length", "")
        if not size.isdecimal():
            return 411, "Say how long the request is."
        return (413, "The request is too large.") if int(size) > LARGEST else None

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token)

    def _cookie_of(self, headers: dict[str, str]) -> str:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value
