"""Who may speak with the server, and how large a request may be."""

from __future__ import annotations

import hmac
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inferlab.units import size
from inferlab.web.connections import MOST_HEAD_BYTES
from inferlab.web.faults import answer, is_api
from inferlab.web.settings import is_loopback
from inferlab.web.tokens import WrongTokens

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Vue compiles templates and NiceGUI sends scripts to evaluate; Plotly and Quasar write styles and make pictures.
# 'self' includes the WebSocket of the same host and port.
_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' data: blob:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": _POLICY,
}
# Around an upload: the form's other fields and its boundaries.
_FORM_BYTES = 2**20

_LONG_HEAD = f"The headers of this request have more than {size(MOST_HEAD_BYTES)}."
_WRONG_HOST = "inferlab answers only to the address that it printed when it was started."
_WRONG_ORIGIN = "This request comes from another web site, so it was refused."
_UNKNOWN = (
    "Open inferlab with the whole address that it printed when it was started, with its token. "
    "Programs send the token in the header: Authorization: Bearer TOKEN"
)
_TOO_MANY = (
    "Too many wrong tokens were sent. Wait a minute, then open inferlab with the whole address that it printed."
)


class Guard:
    """ASGI middleware around the whole app: Host, Origin, token, size of requests, and headers of answers."""

    def __init__(self, app: ASGIApp, host: str, port: int, token: str | None, most_upload_bytes: int) -> None:
        if token is None and not is_loopback(host):
            raise ValueError(f"{host} can be reached from other machines, so it needs a token.")
        self._app = app
        self._hosts = _own_hosts(host, port) if is_loopback(host) else None
        self._token = token
        # Cookies do not know ports: two servers on one machine must not take each other's.
        self._cookie = f"inferlab-{port}"
        self._wrong_tokens = WrongTokens()
        self._most_bytes = most_upload_bytes + _FORM_BYTES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or let the app answer it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refused = self._refused(scope)
        if refused is not None and refused.status_code == 401 and self._token_given(scope):
            client = scope.get("client") or ("",)
            if not await self._wrong_tokens.hold(str(client[0])):
                refused = answer(scope["path"], 429, _TOO_MANY)
        if scope["type"] == "websocket":
            if refused is None:
                await self._app(scope, receive, send)
            else:
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": "refused"})
            return
        guarded = _with_headers(send)
        if refused is not None:
            await refused(scope, receive, guarded)
            return
        body = _Body(scope, receive, guarded, self._most_bytes)
        await self._app(scope, body.receive, body.send)

    def _refused(self, scope: Scope) -> Response | None:
        """The answer to a request that the app must not see, or None."""
        headers, path = Headers(scope=scope), scope["path"]
        if (
            len(scope["query_string"]) + sum(len(name) + len(value) for name, value in headers.raw)
            > MOST_HEAD_BYTES
        ):
            return answer(path, 431, _LONG_HEAD)
        hosts = headers.getlist("host")
        if self._hosts is not None and not (len(hosts) == 1 and hosts[0].lower() in self._hosts):
            return answer(path, 421, _WRONG_HOST)
        if not _same_origin(headers) or not _own_page(scope, headers):
            return answer(path, 403, _WRONG_ORIGIN)
        if self._token is not None and (refused := self._without_token(scope, headers)):
            return refused
        if _content_length(headers) > self._most_bytes:
            return _too_large(path, self._most_bytes)
        return None

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to who has no right token, or has it in the address, where it must not stay."""
        path = scope["path"]
        token = None if is_api(path) or scope.get("method") not in ("GET", "HEAD") else _query(scope).get("token")
        right = self._right(token)
        if right or (token is not None and self._has_token(headers)):
            return self._let_in(scope)
        return None if self._has_token(headers) else answer(path, 401, _UNKNOWN)

    def _has_token(self, headers: Headers) -> bool:
        return self._right(_bearer(headers) or cookie_parser(headers.get("cookie", "")).get(self._cookie))

    def _right(self, token: str | None) -> bool:
        # Compared in constant time: how long it takes must not tell how much of it is right.
        return token is not None and hmac.compare_digest(token.encode(), (self._token or "").encode())

    def _token_given(self, scope: Scope) -> bool:
        """Whether a request that was refused had a wrong token, rather than none."""
        headers = Headers(scope=scope)
        cookies = cookie_parser(headers.get("cookie", ""))
        return bool(_bearer(headers) or self._cookie in cookies or "token" in _query(scope))

    def _let_in(self, scope: Scope) -> Response:
        """Exchange the token in an address for a cookie, so that it does not stay in the address."""
        query = _query(scope)
        query.pop("token")
        # A second slash at the beginning would name another host.
        clean = "/" + quote(scope["path"].lstrip("/")) + (f"?{urlencode(query)}" if query else "")
        response: Response = RedirectResponse(clean, 303)
        if Headers(scope=scope).get("sec-fetch-site", "none") not in ("none", "same-origin"):
            # After a click on a page elsewhere a strict cookie is kept back until a page of ours asks.
            response = Response(headers={"Refresh": f"0;url={clean}"})
        response.set_cookie(self._cookie, self._token or "", httponly=True, samesite="strict", path="/")
        response.headers["Cache-Control"] = "no-store"
        return response


def _query(scope: Scope) -> dict[str, str]:
    try:
        return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    except ValueError:
        # More fields than Python reads.
        return {}


def _bearer(headers: Headers) -> str:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _own_hosts(host: str, port: int) -> frozenset[str]:
    """What browsers on this machine send as Host; a page elsewhere whose name points here sends its own name."""
    literal = f"[{host.strip('[]')}]" if ":" in host else host.lower()
    names = {"127.0.0.1", "localhost", "[::1]", literal}
    return frozenset({f"{name}:{port}" for name in names} | (names if port == 80 else set()))


def _same_origin(headers: Headers) -> bool:
    """Whether the Origin, where there is one, is the page that this server itself served."""
    origins, hosts = headers.getlist("origin"), headers.getlist("host")
    if not origins:
        return True
    scheme, _, place = origins[0].lower().partition("://")
    return len(origins) == 1 and scheme in ("http", "https") and [place] == [host.lower() for host in hosts]


def _own_page(scope: Scope, headers: Headers) -> bool:
    """Whether a request that changes something, or asks the API, comes from no other web site."""
    if scope["type"] != "http" or (scope["method"] in _SAFE_METHODS and not is_api(scope["path"])):
        return True
    return headers.get("sec-fetch-site", "none") in ("none", "same-origin")


def _content_length(headers: Headers) -> int:
    length_text = headers.get("content-length", "")
    # Python reads no number of more than some thousand digits.
    return int(length_text[:30]) if length_text.isascii() and length_text.isdigit() else 0


def _too_large(path: str, most_bytes: int) -> Response:
    most = size(most_bytes - _FORM_BYTES)
    return answer(
        path, 413, f"This is more than {most}. Start inferlab with a larger --max-upload, or name a path."
    )


def _with_headers(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return guarded


class _Body:
    """Counts a request's body as it comes, for its length need not be told before; too large ends the request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, most_bytes: int) -> None:
        self._scope, self._receive, self._send, self._most_bytes = scope, receive, send, most_bytes
        self._got_bytes = 0
        self._answered = self._refused = False

    async def receive(self) -> Message:
        """The next part, or the end."""
        message = await self._receive()
        self._got_bytes += len(message.get("body", b""))
        if self._got_bytes <= self._most_bytes:
            return message
        if not self._answered and not self._refused:
            self._refused = True
            response = _too_large(self._scope["path"], self._most_bytes)
            await response(self._scope, self._receive, self._send)
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Pass an answer on, unless the request was refused meanwhile."""
        if not self._refused:
            self._answered = True
            await self._send(message)
