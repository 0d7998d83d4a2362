"""Fetch a model by its URL, once, whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import re
import ssl
import tempfile
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import quote, unquote, urljoin, urlsplit

from inferlab.errors import BadInput
from inferlab.records import Event, Listener, ignore
from inferlab.settings import cache_folder

_CHUNK_BYTES = 1 << 20
_SILENCE_S = 30.0


def fetch(url: str, listener: Listener = ignore) -> Path:
    """Download a model and the files that belong to it, unless they are in the cache already."""
    _refuse_unsafe(url)
    folder = cache_folder() / "downloads" / hashlib.sha256(url.encode()).hexdigest()[:16]
    name = _file_name(url)
    if (folder / name).is_file():
        return folder / name
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # All files arrive in a folder beside, which then takes its name: nobody ever sees half a model.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="part-") as part:
            made = Path(part) / folder.name
            made.mkdir()
            _download(url, made / name, listener)
            for companion in _companions(url, made / name):
                target = made / companion
                target.parent.mkdir(parents=True, exist_ok=True)
                _download(urljoin(url, quote(companion)), target, listener)
            _move(made, folder)
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
    import onnx

    from inferlab.model.sparsity import tensors

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
        for tensor in tensors(model)
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    )
    for name in names:
        if not inside(name) or PurePosixPath(name) == PurePosixPath(path.name):
            raise BadInput(f"{path.name} keeps data in '{name}', which is not a file beside it: it is refused.")
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


def _move(made: Path, folder: Path) -> None:
    """Give a finished folder its name; another process that came first keeps it, with the same files."""
    try:
        made.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        # Ours is newer than what stands there: a folder without the model, or the same files.
        for file in made.rglob("*"):
            if file.is_file():
                target = folder / file.relative_to(made)
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


def _download(url: str, path: Path, listener: Listener) -> None:
    """Stream one file to `path`; what went wrong on the way becomes one sentence."""
    request = urllib.request.Request(  # noqa: S310 - the scheme was checked
        quote(url, safe="%/:=&?~#+!$,;'@()*[]"),
        headers={"User-Agent": "inferlab", "Accept-Encoding": "identity"},
    )
    try:
        with urllib.request.build_opener(_Redirects).open(request, timeout=_SILENCE_S) as answer:
            _receive(url, answer, path, listener)
    except urllib.error.HTTPError as error:
        raise BadInput(f"{url} cannot be downloaded: the server answered {error.code} {error.reason}.") from error
    except urllib.error.URLError as error:
        raise BadInput(f"{url} cannot be downloaded: {_cause(error.reason)}.") from error
    except (http.client.InvalidURL, UnicodeError) as error:
        raise BadInput(f"{url} is not a URL that can be asked for: {error}.") from error
    except (http.client.HTTPException, ssl.SSLError, TimeoutError, ConnectionError) as error:
        raise BadInput(
            f"{url} cannot be downloaded: the connection broke ({_cause(error)}). Try again."
        ) from error


def _receive(url: str, answer: http.client.HTTPResponse, path: Path, listener: Listener) -> None:
    stated = answer.headers.get("Content-Length", "")
    expected = int(stated) if stated.isdigit() and not answer.headers.get("Transfer-Encoding") else None
    received = 0

    def report() -> None:
        data = {"url": url, "received_bytes": received, "total_bytes": expected}
        listener(Event("download", data, received / expected if expected else None))

    report()
    with path.open("wb") as file:
        while chunk := answer.read(_CHUNK_BYTES):
            file.write(chunk)
            received += len(chunk)
            report()
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
