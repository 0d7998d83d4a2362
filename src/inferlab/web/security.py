"""Who may speak with the server, and how large a request may be."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
import re
import secrets
import stat
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inferlab.errors import BadInput
from inferlab.settings import token_file
from inferlab.units import size
from inferlab.web.connections import MOST_HEAD_BYTES
from inferlab.web.faults import answer, is_api

DEFAULT_PORT = 8765
DEFAULT_UPLOAD_BYTES = 4 * 2**30


@dataclass(frozen=True, slots=True)
class Settings:
    """One server: where it listens, whom it lets in, what it may read."""

    host: str = "127.0.0.1"
    #: None: the default, or the next one that is free.
    port: int | None = None
    open_browser: bool = True
    store_url: str | None = None
    #: Models may be opened by their path only below these.
    folders: tuple[Path, ...] = ()
    most_upload_bytes: int = DEFAULT_UPLOAD_BYTES
    #: Models may be downloaded from this machine and from private networks.
    private_downloads: bool = False
    needs_token: bool = True
    #: Whoever does not have it is not let in; None: everybody is, which is refused where the host is not loopback.
    token: str | None = field(default=None, repr=False)
    #: What pages and the HTTP API are made with; it belongs to the whole process.
    desk: Any = None


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach an address; of other names nobody knows."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


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


#: Names a token of the user's own choice; it is taken out of the environment, which child processes inherit.
VARIABLE = "INFERLAB_TOKEN"
_FORM = re.compile(r"[A-Za-z0-9._~-]{16,256}")

# The first wrong tokens of a client cost nothing (an old tab), each further one twice as much as the one before.
_FREE_FAILURES = 3
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.25, 8.0
_FORGET_AFTER_S = 300.0
_MOST_CLIENTS = 1024
# Answers that are being delayed hold a connection each.
_MOST_WAITING = 32


def own_token() -> str | None:
    """The token that the user put into the environment; from then on it is not there any more."""
    token = os.environ.pop(VARIABLE, "")
    if token and not _FORM.fullmatch(token):
        raise BadInput(
            f"{VARIABLE} cannot be used: a token has 16 to 256 letters, digits, or any of '-', '.', '_' and '~'."
        )
    return token or None


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(32)


def stored_token() -> str:
    """The token of this user on this machine, made at the first call; nobody else can read its file."""
    path = token_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(2):
            if token := _read_private(path):
                return token
            _write_private(path, new_token())
        token = _read_private(path)
    except OSError as error:
        raise BadInput(
            f"The token cannot be stored in {path}: {error.strerror or error}. Name one in {VARIABLE}, or "
            "start with --no-token."
        ) from error
    if not token:
        raise BadInput(f"{path} must be a file that only you can read. Remove it, or start with --no-token.")
    return token


def _read_private(path: Path) -> str:
    """The token in a file, or nothing where there is none that others cannot have read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(file.fileno())
        private = about.st_uid == os.getuid() and not about.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        if not private or not stat.S_ISREG(about.st_mode):
            return ""
        text = file.read(1024).decode("ascii", "replace").strip()
    return text if _FORM.fullmatch(text) else ""


def _write_private(path: Path, token: str) -> None:
    """Write the token whole or not at all; mkstemp's files are readable by their owner only."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".token-")
    unfinished = Path(name)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(f"{token}\n")
        if path.exists() or path.is_symlink():
            unfinished.replace(path)
        else:
            # Two servers that start at once end up with the same token.
            path.hardlink_to(unfinished)
    except FileExistsError:
        pass
    finally:
        unfinished.unlink(missing_ok=True)


class WrongTokens:
    """How long the answer to a wrong token is held back; who has the right one never waits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._waiting = 0

    def delay_s(self, client: str) -> float | None:
        """Count one more failure of a client; None: too many answers are held back already, refuse at once."""
        key, now_s = _network(client), self._clock()
        count, last_s = self._failures.pop(key, (0, now_s))
        count = 1 if now_s - last_s > _FORGET_AFTER_S else count + 1
        self._failures[key] = (count, now_s)
        while len(self._failures) > _MOST_CLIENTS:
            self._failures.popitem(last=False)
        if count <= _FREE_FAILURES:
            return 0.0
        if self._waiting >= _MOST_WAITING:
            return None
        return float(min(_FIRST_DELAY_S * 2 ** min(count - _FREE_FAILURES - 1, 30), _LONGEST_DELAY_S))

    async def hold(self, client: str) -> bool:
        """Wait as long as this client's failure costs; False where it must be refused without waiting."""
        seconds = self.delay_s(client)
        if seconds is None:
            return False
        if seconds:
            self._waiting += 1
            try:
                await asyncio.sleep(seconds)
            finally:
                self._waiting -= 1
        return True


def _network(client: str) -> str:
    """A client's address; one IPv6 client has a whole /64 of them."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    return client if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))
