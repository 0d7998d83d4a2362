"""What downloads are held to that somebody asks for over HTTP: public addresses, a size, a time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inferlab.errors import BadInput, TooLarge
from inferlab.model import download
from inferlab.model.download import stoppable
from inferlab.model.reading import locate
from tests.helpers.downloads import Server, cache, certificate, mlp, plain, server

__all__ = ["cache", "certificate", "mlp", "plain", "server"]


@pytest.fixture
def public_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERLAB_PUBLIC_DOWNLOADS", "1")


SPECIAL = [
    "127.0.0.1", "127.8.9.10", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "224.0.0.1", "255.255.255.255", "192.0.2.1", "[::1]", "[::]", "[fe80::1]", "[fd00:ec2::254]",
    "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[::127.0.0.1]", "[2002:7f00:1::]", "[64:ff9b::a00:1]",
    "[64:ff9b::7f00:1]", "[ff02::1]", "2130706433", "0x7f.1", "127.1", "localhost",
]  # fmt: skip


@pytest.mark.parametrize("host", SPECIAL)
def test_addresses_that_are_not_public_are_refused_whatever_their_form(public_only: None, host: str) -> None:
    with pytest.raises(BadInput, match="is refused: it is not an address of the public internet"):
        locate(f"https://{host}/net.onnx")


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses_are_not(address: str) -> None:
    assert download._is_public(address)


def test_a_refusal_does_not_tell_an_open_port_from_a_closed_one(public_only: None, plain: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as once:
        closed = once.getsockname()[1]
    told = []
    for port in (int(plain.url.rsplit(":")[-1]), closed):
        with pytest.raises(BadInput) as refused:
            locate(f"http://127.0.0.1:{port}/net.onnx")
        told.append(str(refused.value))
    assert told[0] == told[1]
    assert plain.asked == []


def _names(monkeypatch: pytest.MonkeyPatch, look_up: Callable[[str], str]) -> None:
    """Let names lead where a test says; whatever is a number leads to itself."""
    real = socket.getaddrinfo

    def found(host: Any, *given: Any, **named: Any) -> Any:
        return real(host if str(host)[:1].isdigit() else look_up(host), *given, **named)

    monkeypatch.setattr(socket, "getaddrinfo", found)


def test_a_name_that_leads_to_a_private_address_is_refused(
    public_only: None, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    _names(monkeypatch, lambda _: "127.0.0.1")
    with pytest.raises(BadInput, match=r"models\.example is refused"):
        locate(server.url.replace("127.0.0.1", "models.example") + "/net.onnx")
    assert server.asked == []


def test_a_name_is_looked_up_once_so_it_cannot_lead_elsewhere_after_the_check(
    public_only: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, tried = [], []

    def rebound(host: str) -> str:
        asked.append(host)
        return "8.8.8.8" if len(asked) == 1 else "127.0.0.1"

    def connect(self: socket.socket, place: tuple[str, int]) -> None:
        tried.append(place[0])
        raise ConnectionRefusedError(111, "Connection refused")

    _names(monkeypatch, rebound)
    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(BadInput, match="cannot be reached"):
        locate("https://models.example/net.onnx")
    assert (asked, tried) == (["models.example"], ["8.8.8.8"])


def test_a_redirect_to_a_private_address_is_refused(
    public_only: None, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = server.url.rsplit(":")[-1]
    server.redirects["/net.onnx"] = f"https://127.0.0.1:{port}/inside.onnx"
    real = download._is_public
    # The first server stands for one of the public internet.
    monkeypatch.setattr(download, "_is_public", lambda text: not server.asked or real(text))
    with pytest.raises(BadInput, match=r"127\.0\.0\.1 is refused"):
        locate(f"{server.url}/net.onnx")
    assert server.asked == ["/net.onnx"]


def test_the_mirror_that_the_user_named_may_be_private(
    public_only: None, server: Server, mlp: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/zoo/net/model.onnx"] = mlp
    monkeypatch.setenv("INFERLAB_ZOO", f"{server.url}/zoo")
    monkeypatch.setenv("SPARSEZOO_MODELS_PATH", "/nowhere")
    assert locate("zoo:net").path.read_bytes() == mlp


@pytest.mark.parametrize("chunked", [False, True])
def test_what_is_larger_than_the_limit_is_cut_off_and_leaves_nothing(
    server: Server, mlp: bytes, cache: Path, monkeypatch: pytest.MonkeyPatch, chunked: bool
) -> None:
    server.files["/net.onnx"] = mlp
    server.chunked = {"/net.onnx"} if chunked else set()
    monkeypatch.setenv("INFERLAB_MAX_DOWNLOAD", str(len(mlp) - 1))
    with pytest.raises(TooLarge, match=r"net\.onnx is too large: a model that is downloaded may have"):
        locate(f"{server.url}/net.onnx")
    assert list(cache.iterdir()) == []
    monkeypatch.setenv("INFERLAB_MAX_DOWNLOAD", str(len(mlp)))
    assert locate(f"{server.url}/net.onnx").path.read_bytes() == mlp


@pytest.mark.parametrize("begun", [False, True])
def test_a_server_that_keeps_us_waiting_is_left_when_the_time_is_over(
    server: Server, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    over = threading.Event()
    monkeypatch.setattr(server, "answer", lambda request: _stall(request, begun, over))
    monkeypatch.setenv("INFERLAB_DOWNLOAD_TIMEOUT", "0.5")
    with pytest.raises(BadInput, match=r"it took longer than 0\.5 s, which is the limit"):
        locate(f"{server.url}/net.onnx")
    over.set()


@pytest.mark.parametrize("begun", [False, True])
def test_a_download_that_nobody_waits_for_ends(
    server: Server, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    over, stop = threading.Event(), threading.Event()

    def stall(request: Any) -> None:
        stop.set()
        _stall(request, begun, over)

    monkeypatch.setattr(server, "answer", stall)
    with stoppable(stop), pytest.raises(BadInput, match="was cancelled"):
        locate(f"{server.url}/net.onnx")
    over.set()


def _stall(request: Any, begun: bool, over: threading.Event) -> None:
    if begun:
        request.send_response(200)
        request.send_header("Content-Length", "1000000")
        request.end_headers()
        request.wfile.write(b"x")
        request.wfile.flush()
    over.wait(60)
    request.close_connection = True
