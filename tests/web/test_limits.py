"""What the server does with those who send too much, too little, or nonsense."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import httpx
import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from inferlab.web import connections
from inferlab.web.connections import MOST_HEAD_BYTES, Connection
from tests.helpers.web_server import PATIENCE_S, Server, until

# ---- connections -----------------------------------------------------------------------------------------------


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Says how long the body was; `/large` sends more than any buffer takes, `/slow` takes its time."""
    if scope["type"] != "http":
        return
    request = Request(scope, receive)
    if scope["path"] == "/large":
        await StreamingResponse(b"x" * 65536 for _ in range(1000))(scope, receive, send)
        return
    if scope["path"] == "/slow":
        await asyncio.sleep(0.5)
    await PlainTextResponse(str(len(await request.body())))(scope, receive, send)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where a server with the same connections listens, with short limits."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(connections, "_HEAD_S", 0.2)
        patched.setattr(connections, "_SILENCE_S", 0.3)
        patched.setattr(connections, "_MOST_CONNECTIONS", 20)
        config = uvicorn.Config(
            _answer,
            http=Connection,
            h11_max_incomplete_event_size=MOST_HEAD_BYTES,
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
            thread.start()
            until(lambda: server.started, "the server did not start")
            yield listening.getsockname()[1]
            server.should_exit = True
            thread.join()


def _opened(port: int, sent: bytes = b"") -> socket.socket:
    found = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    found.sendall(sent)
    return found


def _said(opened: socket.socket) -> bytes:
    """All that the server says until it closes the connection."""
    found = b""
    try:
        while more := opened.recv(65536):
            found += more
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-Half"])
def test_who_does_not_finish_a_request_is_cut_off(port: int, sent: bytes) -> None:
    with _opened(port, sent) as half:
        assert _said(half) == b""


def test_bytes_that_drip_in_do_not_prolong_the_wait(port: int) -> None:
    def drip() -> None:
        with pytest.raises(OSError):
            while True:
                half.sendall(b"X")
                stop.wait(0.02)

    stop = threading.Event()
    with _opened(port, b"GET / HTTP/1.1\r\nX-Drip: ") as half:
        dripping = threading.Thread(target=drip)
        dripping.start()
        assert _said(half) == b""
        dripping.join()


def test_who_announces_a_body_and_sends_none_is_cut_off(port: int) -> None:
    with _opened(port, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345") as half:
        assert _said(half) == b""


def test_who_does_not_take_the_answer_is_cut_off(port: int) -> None:
    with _opened(port, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n") as deaf:
        threading.Event().wait(1.0)
        assert len(_said(deaf)) < 1000 * 65536


def test_an_answer_that_takes_longer_than_any_limit_arrives(port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S, trust_env=False) as client:
        assert client.get("/slow").text == "0"
        assert client.post("/", content=b"x" * 100_000).text == "100000"


def test_idle_connections_make_room_for_others(port: int) -> None:
    with ExitStack() as opened:
        for _ in range(60):
            opened.enter_context(_opened(port))
        assert httpx.get(f"http://127.0.0.1:{port}/", timeout=PATIENCE_S, trust_env=False).text == "0"


def test_a_header_without_end_is_refused(port: int) -> None:
    with _opened(port) as long:
        with pytest.raises(OSError):
            for _ in range(1000):
                long.sendall(b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 65536)
        said = b""
        with pytest.raises(OSError):
            said = long.recv(100)
            raise OSError
        assert said[:12] in (b"", b"HTTP/1.1 400")


# ---- messages of pages -----------------------------------------------------------------------------------------

FRAMES: tuple[tuple[str | bytes, ...], ...] = (
    ("",),
    ("hello",),
    ("9",),
    ("4",),
    ("42",),
    ("42[",),
    ("40", "42[]"),
    ("40", "42{}"),
    ("40", '42"x"'),
    ("45-",),
    ('451-["x",{"_placeholder":true,"num":0}]', "\0"),
    ("40", '451-["x",{"_placeholder":true,"num":5}]', b"abc"),
    (b"\0\1",),
    ("40", "42" + "[" * 100_000),
    ("40", '42["event",' + "[" * 3000 + "]" * 3000 + "]"),
    ("40", "42[null]"),
    ("40", "42[{}]"),
    ("40", '42["handshake"]'),
    ("40", '42["handshake",5]'),
    ("40", '42["handshake",{}]'),
    ("40", '42["handshake",{"client_id":{}}]'),
    ("40", '42["event",5]'),
    ("40", '42["event",{}]'),
    ("40", '42["javascript_response",{}]'),
    ("40", '42["log",{}]'),
    ("40", '42["ack",{}]'),
    ("40", "42" + "9" * 5000 + '["x"]'),
    ("40/other,",),
    ('40{"a":',),
    ("44",),
    ("40", "45" + "9" * 30 + '-["x"]'),
    ("40", '42["\\ud800"]'),
    ("40", "42[NaN]"),
    ("b!!!",),
)


def test_messages_that_make_no_sense_print_no_traceback_and_the_server_goes_on(server: Server) -> None:
    before = len(server.log)
    asyncio.run(_send_all(server))
    address = f"{server.url}/_nicegui_ws/socket.io/?EIO=4&transport=polling"
    for body in (b"garbage", b"\xff\xfe", b"42[", b'40\x1e42["event",5]'):
        opened = httpx.get(address, headers=server.headers, timeout=PATIENCE_S).text
        sid = opened.split('"sid":"')[1].split('"')[0]
        httpx.post(f"{address}&sid={sid}", content=body, headers=server.headers, timeout=PATIENCE_S)
    said = server.log[before:].splitlines()
    start = "inferlab: a message on the page's connection was not valid and was ignored ("
    assert said and [line for line in said if not line.startswith(start)] == []
    assert httpx.get(f"{server.url}/", headers=server.headers, timeout=PATIENCE_S).status_code == 200


async def _send_all(server: Server) -> None:
    address = f"ws://127.0.0.1:{server.port}/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    for frames in FRAMES:
        async with connect(address, additional_headers=server.headers, proxy=None) as page:
            await page.recv()
            with suppress(ConnectionClosed):
                for frame in frames:
                    await page.send(frame)
