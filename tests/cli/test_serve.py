"""`inferlab serve`, started and stopped as a user does."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import Run

Started = tuple[str, subprocess.Popen[str]]
Start = Callable[..., Started]


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Start `inferlab serve …` in an empty folder; returns the address that it printed, once it answers."""
    running: list[subprocess.Popen[str]] = []
    here = tmp_path / "here"
    here.mkdir()

    def begin(*arguments: object, **more: str) -> Started:
        command = [str(Path(sys.executable).parent / "inferlab"), "serve", *map(str, arguments)]
        process = subprocess.Popen(
            command,
            cwd=here,
            env={**environment, "INFERLAB_STORE": str(tmp_path / "lab.db"), **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        assert process.stdout and process.stderr
        first, second = process.stdout.readline(), process.stdout.readline()
        assert second == "Press Ctrl-C to stop.\n", process.stderr.read()
        assert first.startswith("inferlab is at http://")
        return first.removeprefix("inferlab is at ").strip(), process

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextmanager
def taken(port: int) -> Iterator[int]:
    """A port that a program listens at."""
    with socket.create_server(("127.0.0.1", port)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_answers_where_it_says_until_it_is_stopped_and_leaves_nothing_behind(
    start: Start, tmp_path: Path, stop: signal.Signals
) -> None:
    url, process = start("--port", 0, "--no-browser")
    assert httpx.get(f"{url}api/v1/openapi.json").json()["info"]["title"] == "inferlab"
    assert httpx.get(url, headers={"Host": "evil.example"}).status_code == 421
    process.send_signal(stop)
    assert process.communicate() == ("", "")
    assert process.returncode == 0
    assert list((tmp_path / "here").iterdir()) == []


def test_it_stops_although_a_page_is_open(start: Start) -> None:
    url, process = start("--port", 0, "--no-browser")
    host, port = url.removeprefix("http://").strip("/").split(":")
    with socket.create_connection((host, int(port))) as page:
        page.sendall(
            f"GET /_nicegui_ws/socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: {host}:{port}\r\n"
            f"Origin: http://{host}:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        assert page.recv(100).startswith(b"HTTP/1.1 101 ")
        process.send_signal(signal.SIGINT)
        assert process.communicate() == ("", "")
    assert process.returncode == 0


def test_a_port_that_was_asked_for_and_is_taken_is_refused(inferlab: Run) -> None:
    with taken(0) as port:
        done = inferlab("serve", "--port", port, "--no-browser")
    assert (done.returncode, done.stdout) == (2, "")
    said = f"inferlab: Port {port} is taken by another program. "
    assert done.stderr == f"{said}Name another with --port, or none for the next free.\n"


def test_without_a_port_the_next_free_one_is_used(start: Start) -> None:
    first, _ = start("--no-browser")
    second, _ = start("--no-browser")
    ports = [int(url.rsplit(":")[-1].strip("/")) for url in (first, second)]
    assert 8765 <= ports[0] < ports[1]


def test_the_browser_is_opened_at_the_address_when_it_answers(start: Start, tmp_path: Path) -> None:
    opened, answer = tmp_path / "opened", tmp_path / "answer"
    script = tmp_path / "browser"
    script.write_text(
        f"#!{sys.executable}\nimport sys, urllib.request\nfrom pathlib import Path\n"
        f"urllib.request.urlopen(sys.argv[1] + 'api/v1/openapi.json')\n"
        f"Path({str(opened)!r}).open('a').write(sys.argv[1])\nPath({str(answer)!r}).touch()\n"
    )
    script.chmod(0o755)
    url, process = start("--port", 0, BROWSER=f"{script} %s")
    while not answer.exists():
        assert process.poll() is None
    assert opened.read_text() == url


def test_another_address_needs_the_token_that_is_printed(start: Start, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    url, process = start("--host", "0.0.0.0", "--port", 0, BROWSER=f"touch {opened} %s")
    address, token = url.split("/?token=")
    here = f"http://127.0.0.1:{address.rsplit(':')[-1]}"
    assert len(token) >= 43
    assert httpx.get(f"{here}/api/v1/openapi.json").status_code == 401
    told = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{here}/api/v1/openapi.json", headers=told).status_code == 200
    assert httpx.get(f"{here}/?token={token}").status_code == 303
    process.send_signal(signal.SIGINT)
    process.communicate()
    # Its command line, and the token in it, could be read by every user of the machine.
    assert not opened.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "no.such.host.invalid"), "cannot listen at no.such.host.invalid"),
        (("--host", "192.0.2.1", "--port", "0"), "cannot listen at 192.0.2.1"),
        (("--port", "70000"), "70000 is not in the range"),
        (("--folder", "/no/such/folder"), "does not exist"),
        (("--max-upload", "much"), "'much' is not a size such as 500M or 4G."),
        (("--max-upload", "0"), "'0' is not a size such as 500M or 4G."),
    ],
)
def test_what_cannot_be_served_is_refused(inferlab: Run, arguments: tuple[str, ...], words: str) -> None:
    done = inferlab("serve", "--no-browser", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
