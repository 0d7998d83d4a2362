"""Fetch a model by its URL, once, whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import re
import socket
import ssl
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from email.message import Message
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import quote, unquote, urljoin, urlsplit

from inferlab.errors import BadInput, TooLarge
from inferlab.model.confined import confined
from inferlab.records import Event, Listener, ignore
from inferlab.settings import DownloadLimits, cache_folder, download_limits
from inferlab.units import size

_CHUNK_BYTES = 1 << 20
_SILENCE_S = 30.0
_LOOK_S = 0.25
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_stop: ContextVar[threading.Event | None] = ContextVar("_stop", default=None)


def fetch(url: str, listener: Listener = ignore, trusted: bool = False) -> Path:
    """Download a model and the files that belong to it, unless they are in the cache already.

    An address that is `trusted`, as the user's own mirror is, may be on a private network whatever the limits say.
    """
    _refuse_unsafe(url)
    limits = download_limits()
    if trusted:
        limits = replace(limits, public_only=False)
    budget = Budget(limits)
    folder = cache_folder() / "downloads" / hashlib.sha256(url.encode()).hexdigest()[:16]
    name = _file_name(url)
    if (folder / name).is_file():
        return folder / name
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # All files arrive in a folder beside, which then takes its name: nobody ever sees half a model.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="part-") as part:
            new_folder = Path(part) / folder.name
            new_folder.mkdir()
            _download(url, new_folder / name, listener, budget)
            for companion in _companions(url, new_folder / name):
                target = new_folder / companion
                target.parent.mkdir(parents=True, exist_ok=True)
                _download(urljoin(url, quote(companion)), target, listener, budget)
            _move(new_folder, folder)
    except OSError as error:
        raise BadInput(f"{url} cannot be stored in {folder.parent}: {error.strerror or error}.") from error
    return folder / name


def inside(name: str) -> bool:
    """Whether a relative file name, from a file or a server that is not trusted, stays within its folder."""
    path = PurePosixPath(name)
    plain = bool(path.parts) and not re.search(r"[\x00-\x1f\\]", name)
    return plain and not path.is_absolute() and ".." not in path.parts and ":" not in path.parts[0]


def external_files(path: Path) -> list[str]:
    """The names of the files in which an ONNX file keeps its tensors; BadInput if it is not ONNX."""
    names = _external_names(path)
    for name in names:
        if not inside(name) or PurePosixPath(name) == PurePosixPath(path.name):
            raise BadInput(f"{path.name} keeps data in '{name}', which is not a file beside it: it is refused.")
    return names


@confined(reads=["path"])
def _external_names(path: Path) -> list[str]:
    import onnx

    from inferlab.model.onnx_graph import all_tensors

    try:
        model = onnx.load_model(str(path), load_external_data=False)
    except OSError:
        raise
    except Exception:  # protobuf's DecodeError, of which onnx has no name
        model = onnx.ModelProto()
    if not model.graph.node and not model.graph.initializer:
        raise BadInput(f"{path.name} is not an ONNX model.")
    names = dict.fromkeys(
        entry.value
        for tensor in all_tensors(model)
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    )
    if not all(isinstance(name, str) for name in names):  # bytes are text that is none
        raise BadInput(f"{path.name} is not an ONNX model.")
    return list(names)


def _companions(url: str, path: Path) -> list[str]:
    """What must be fetched from beside a model that has just arrived."""
    suffix = path.suffix.lower()
    if suffix == ".xml":
        return [path.with_suffix(".bin").name]
    with path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":  # a zip: a program of PyTorch's, whole in itself
            return []
    try:
        return external_files(path)
    except BadInput as error:
        raise BadInput(f"What {url} gave cannot be used: {error}") from None


def _move(source: Path, folder: Path) -> None:
    """Give a finished folder its name; another process that came first keeps it, with the same files."""
    try:
        source.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        # Ours is newer than what stands there: a folder without the model, or the same files.
        for file in source.rglob("*"):
            if file.is_file():
                target = folder / file.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                file.replace(target)


def _file_name(url: str) -> str:
    """The last part of a URL's path, made harmless."""
    name = re.sub(r"[^\w.+-]", "_", PurePosixPath(unquote(urlsplit(url).path)).name)
    return name if name.strip(".") else "model.onnx"


def _refuse_unsafe(url: str) -> None:
    """Let pass https, and plain http within this machine."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadInput(f"{url} is not a URL: {error}.") from error
    if not host or re.search(r"[\x00-\x20\x7f]", url):
        raise BadInput(f"{url!r} is not a URL: it must read https://host/path.")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(host)):
        raise BadInput(f"{url} is refused: models come over https:// only (http:// only from this machine).")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect unless it leads away from encryption."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        """Refuse what the user could not have asked for, and any step from https to http."""
        _refuse_unsafe(newurl)
        if req.type == "https" and not newurl.lower().startswith("https:"):
            raise BadInput(f"{req.full_url} is refused: it redirects to {newurl}, which is not encrypted.")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


class Budget:
    """What is left of the limits of one download, all its files together."""

    def __init__(self, limits: DownloadLimits) -> None:
        self.limits = limits
        self._end_s = None if limits.longest_s is None else time.monotonic() + limits.longest_s
        self._stop = _stop.get()
        self._left_bytes = limits.most_bytes

    @property
    def is_watched(self) -> bool:
        """Whether it may have to be cut off."""
        return self._stop is not None or self._end_s is not None

    def take(self, url: str, size_bytes: int) -> None:
        """Count bytes that came; refuses more than there may be."""
        if self._left_bytes is not None:
            self._left_bytes -= size_bytes
            if self._left_bytes < 0:
                raise self._too_large(url)

    def expect(self, url: str, size_bytes: int | None) -> None:
        """Refuse what is announced as larger than it may be."""
        if self._left_bytes is not None and (size_bytes or 0) > self._left_bytes:
            raise self._too_large(url)

    def check(self, url: str) -> None:
        """Refuse what takes longer than it may, or what nobody waits for any more."""
        if self._stop is not None and self._stop.is_set():
            raise BadInput(f"The download of {url} was cancelled.")
        if self._end_s is not None and time.monotonic() > self._end_s:
            raise BadInput(
                f"{url} cannot be downloaded: it took longer than {self.limits.longest_s:g} s, which is the limit."
            )

    @contextmanager
    def watch(self, url: str, opened: list[socket.socket]) -> Iterator[None]:
        """Cut off connections when the time is over or nobody waits any more: a silent server says nothing."""
        if not self.is_watched:
            yield
            return
        over = threading.Event()

        def look() -> None:
            while not over.wait(_LOOK_S):
                try:
                    self.check(url)
                except BadInput:
                    for connection in opened:
                        with suppress(OSError):
                            connection.shutdown(socket.SHUT_RDWR)

        watching = threading.Thread(target=look, daemon=True)
        watching.start()
        try:
            yield
        finally:
            over.set()
            watching.join()
            for connection in opened:
                connection.close()

    def _too_large(self, url: str) -> TooLarge:
        return TooLarge(
            f"{url} is too large: a model that is downloaded may have {size(self.limits.most_bytes or 0)}. "
            "Download it yourself and name its path, or start with: inferlab serve --max-upload 16G"
        )


@contextmanager
def stoppable(stop: threading.Event) -> Iterator[None]:
    """End downloads of this thread soon after an event is set."""
    before = _stop.set(stop)
    try:
        yield
    finally:
        _stop.reset(before)


def _connect(host: str, port: int, timeout_s: float, public_only: bool) -> socket.socket:
    """Connect to an address that was checked: a name might lead elsewhere if it were looked up again."""
    places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if public_only and not all(_is_public(str(place[4][0])) for place in places):
        raise _private(host)
    problem: OSError | None = None
    for family, kind, protocol, _, place in places:
        opened = socket.socket(family, kind, protocol)
        try:
            opened.settimeout(timeout_s)
            opened.connect(place)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return opened
        except OSError as error:
            opened.close()
            problem = error
    raise problem or OSError("no address was found")


def _is_public(text: str) -> bool:
    """Whether an address is one of the public internet, also where it is written within another."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64 or (inner is None and int(address) >> 32 == 0):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(str(inner))
    return address.is_global and not address.is_multicast and not address.is_reserved


def _private(host: str) -> BadInput:
    return BadInput(
        f"{host} is refused: it is not an address of the public internet. Upload the file, name its path, or "
        "start with: inferlab serve --allow-private-downloads"
    )


def _opener(budget: Budget, opened: list[socket.socket]) -> urllib.request.OpenerDirector:
    """What asks servers, over connections that were checked."""
    public_only = budget.limits.public_only

    class Checked(http.client.HTTPConnection):
        def __init__(self, *positional: Any, **named: Any) -> None:
            super().__init__(*positional, **named)
            self._create_connection = self._connect_checked  # what it opens its socket with

        def _connect_checked(
            self, place: tuple[str, int], timeout_s: float, source: object = None
        ) -> socket.socket:
            target = getattr(self, "_tunnel_host", None)
            if target and public_only and _is_special_literal(target):
                raise _private(target)
            # A proxy is the user's own choice, and it alone knows where a name leads.
            opened_socket = _connect(*place, timeout_s, public_only and not target)
            if budget.is_watched:
                # Encryption takes the socket itself away.
                opened.append(opened_socket.dup())
            return opened_socket

    class Encrypted(Checked, http.client.HTTPSConnection):
        pass

    class Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
        def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Checked, req)

        def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Encrypted, req)

    return urllib.request.build_opener(_Redirects, Handler)


def _is_special_literal(host: str) -> bool:
    try:
        return not _is_public(host.strip("[]"))
    except ValueError:
        return host.lower() == "localhost"


def _download(url: str, path: Path, listener: Listener, budget: Budget) -> None:
    """Stream one file to `path`; what went wrong on the way becomes one sentence."""
    request = urllib.request.Request(  # noqa: S310 - the scheme was checked
        quote(url, safe="%/:=&?~#+!$,;'@()*[]"),
        headers={"User-Agent": "inferlab", "Accept-Encoding": "identity"},
    )
    opened: list[socket.socket] = []
    try:
        with budget.watch(url, opened), _opener(budget, opened).open(request, timeout=_SILENCE_S) as answer:
            _receive(url, answer, path, listener, budget)
    except urllib.error.HTTPError as error:
        raise BadInput(f"{url} cannot be downloaded: the server answered {error.code} {error.reason}.") from error
    except urllib.error.URLError as error:
        budget.check(url)
        raise BadInput(f"{url} cannot be downloaded: {_cause(error.reason)}.") from error
    except (http.client.InvalidURL, UnicodeError) as error:
        raise BadInput(f"{url} is not a URL that can be requested: {error}.") from error
    except (http.client.HTTPException, ssl.SSLError, TimeoutError, ConnectionError) as error:
        budget.check(url)
        raise BadInput(
            f"{url} cannot be downloaded: the connection was lost ({_cause(error)}). Try again."
        ) from error


def _receive(url: str, answer: http.client.HTTPResponse, path: Path, listener: Listener, budget: Budget) -> None:
    stated = answer.headers.get("Content-Length", "")
    expected = int(stated) if stated.isdigit() and not answer.headers.get("Transfer-Encoding") else None
    budget.expect(url, expected)
    received = 0

    def report() -> None:
        data = {"url": url, "received_bytes": received, "total_bytes": expected}
        listener(Event("download", data, received / expected if expected else None))

    report()
    with path.open("wb") as file:
        while chunk := answer.read(_CHUNK_BYTES):
            budget.take(url, len(chunk))
            budget.check(url)
            file.write(chunk)
            received += len(chunk)
            report()
    budget.check(url)
    if expected is not None and received != expected:
        raise BadInput(
            f"{url} cannot be downloaded: it broke off after {received} of {expected} bytes. Try again."
        )


def _cause(reason: object) -> str:
    """The cause of a network error, in words that help."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted ({reason.verify_message}); SSL_CERT_FILE can name more"
    if isinstance(reason, ssl.SSLError):
        return f"no encrypted connection could be made ({reason.reason or reason})"
    if isinstance(reason, TimeoutError):
        return f"no answer in {_SILENCE_S:.0f} s"
    if isinstance(reason, OSError):
        return f"the server cannot be reached ({reason.strerror or reason}); check the address and the network"
    return str(reason)
