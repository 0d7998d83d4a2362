"""A web server that hands out models, as fixtures."""

from __future__ import annotations

import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from inferlab.model import reading


class Server:
    """A web server on this machine whose answers a test writes down."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        #: Bytes after which the server hangs up, whatever it promised.
        self.cut: dict[str, int] = {}
        self.chunked: set[str] = set()
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, certificate.with_suffix(".key"))
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path
        self.asked.append(path)
        request.close_connection = True
        if path in self.redirects:
            request.send_response(302)
            request.send_header("Location", self.redirects[path])
            request.send_header("Content-Length", "0")
            request.end_headers()
        elif path not in self.files:
            request.send_error(404)
        elif path in self.chunked:
            request.send_response(200)
            request.send_header("Transfer-Encoding", "chunked")
            request.end_headers()
            body = self.files[path]
            end = b"" if path in self.cut else b"0\r\n\r\n"
            request.wfile.write(b"%x\r\n%s\r\n" % (len(body), body) + end)
        else:
            request.send_response(200)
            request.send_header("Content-Length", str(len(self.files[path])))
            request.end_headers()
            request.wfile.write(self.files[path][: self.cut.get(path)])

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", path.with_suffix(".key"), "-out", path],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return path


@pytest.fixture
def server(certificate: Path) -> Iterator[Server]:
    one = Server(certificate)
    yield one
    one.close()


@pytest.fixture
def plain() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {
        "INFERLAB_CACHE": tmp_path / "cache",
        "SSL_CERT_FILE": certificate,
        "no_proxy": "*",
    }.items():
        monkeypatch.setenv(name, str(value))
    return tmp_path / "cache" / "downloads"


@pytest.fixture
def mlp() -> bytes:
    return reading.build_demo("mlp").read_bytes()
