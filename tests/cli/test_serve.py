"""`inferlab serve`, started and stopped as a user does."""

from __future__ import annotations

import json
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
            env={
                **environment,
                "INFERLAB_STORE": str(tmp_path / "lab.db"),
                "XDG_DATA_HOME": str(tmp_path / "data"),
                **more,
            },
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
    with httpx.Client(follow_redirects=True) as browser:
        assert browser.get(url).status_code == 200
        described = browser.get(f"{url.split('?')[0]}api/v1/openapi.json")
    assert described.json()["info"]["title"] == "inferlab"
    assert httpx.get(url, headers={"Host": "evil.example"}).status_code == 421
    process.send_signal(stop)
    assert process.communicate() == ("", "")
    assert process.returncode == 0
    assert list((tmp_path / "here").iterdir()) == []


def test_it_stops_although_a_page_is_open(start: Start) -> None:
    url, process = start("--port", 0, "--no-browser", "--no-token")
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
    ports = [int(url.split("/?token=")[0].rsplit(":")[-1]) for url in (first, second)]
    assert 8765 <= ports[0] < ports[1]


def _browser(tmp_path: Path) -> tuple[Path, str]:
    """A program to be started as the browser; the file has its command line and what it was led to."""
    opened, script = tmp_path / "opened", tmp_path / "browser"
    script.write_text(
        f"#!{sys.executable}\nimport json, os, sys\nfrom pathlib import Path\n"
        "path = sys.argv[1].removeprefix('file://')\n"
        "there = os.path.exists(path)\n"
        "told = [sys.argv[1], Path(path).read_text() if there else '', "
        "oct(os.stat(os.path.dirname(path)).st_mode)[-3:] if there else '']\n"
        f"Path({str(opened)!r} + '.part').write_text(json.dumps(told))\n"
        f"os.rename({str(opened)!r} + '.part', {str(opened)!r})\n"
    )
    script.chmod(0o755)
    return opened, f"{script} %s"


def test_the_browser_is_led_to_the_address_by_a_file_of_which_others_see_only_the_name(
    start: Start, tmp_path: Path
) -> None:
    opened, browser = _browser(tmp_path)
    url, process = start("--port", 0, BROWSER=browser)
    while not opened.exists():
        assert process.poll() is None
    address, page, mode = json.loads(opened.read_text())
    token = url.split("?token=")[1]
    # Its command line could be read by every user of the machine.
    assert address.startswith("file:///") and token not in address
    assert f'content="0;url={url}"' in page
    assert mode == "700"
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert not Path(address.removeprefix("file://")).exists()


def test_without_a_token_the_browser_is_opened_at_the_address(start: Start, tmp_path: Path) -> None:
    opened, browser = _browser(tmp_path)
    url, process = start("--port", 0, "--no-token", BROWSER=browser)
    while not opened.exists():
        assert process.poll() is None
    assert json.loads(opened.read_text())[0] == url
    assert httpx.get(f"{url}api/v1/openapi.json").status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_who_does_not_have_the_token_that_is_printed_is_not_let_in(start: Start, host: str) -> None:
    url, _ = start("--host", host, "--port", 0, "--no-browser")
    address, token = url.split("/?token=")
    here = f"http://127.0.0.1:{address.rsplit(':')[-1]}"
    assert len(token) >= 43
    for path in ("/", "/new", "/static/favicon.svg", "/api/v1/openapi.json", "/_nicegui_ws/socket.io/?EIO=4"):
        assert httpx.get(here + path).status_code == 401
    assert "with the whole address that it printed" in httpx.get(here).text
    told = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{here}/api/v1/openapi.json", headers=told).status_code == 200
    assert httpx.get(f"{here}/?token={token}").status_code == 303


def test_the_token_stays_the_same_and_only_its_owner_can_read_it(start: Start, tmp_path: Path) -> None:
    first, second = (start("--port", 0, "--no-browser")[0].split("?token=")[1] for _ in range(2))
    file = tmp_path / "data" / "inferlab" / "token"
    assert first == second == file.read_text().strip()
    assert file.stat().st_mode & 0o777 == 0o600
    # What others may have read is useless now.
    file.chmod(0o644)
    third = start("--port", 0, "--no-browser")[0].split("?token=")[1]
    assert third != first
    assert (file.read_text().strip(), file.stat().st_mode & 0o777) == (third, 0o600)


def test_at_an_address_for_other_machines_every_start_has_a_token_of_its_own(start: Start) -> None:
    urls = [start("--host", "0.0.0.0", "--port", 0, "--no-browser")[0] for _ in range(2)]
    first, second = (url.split("?token=")[1] for url in urls)
    assert first != second


def test_a_token_of_ones_own_comes_from_the_environment_and_is_handed_to_no_other_process(start: Start) -> None:
    url, process = start("--port", 0, "--no-browser", INFERLAB_TOKEN="my-own-token-of-26-letters")
    assert url.endswith("/?token=my-own-token-of-26-letters")
    while not (runner := _runner(process.pid)):
        assert process.poll() is None
    assert b"INFERLAB_STORE=" in runner and b"INFERLAB_TOKEN=" not in runner


def _runner(server: int) -> bytes:
    """The environment of the process that measures for a server, as soon as it is one."""
    for task in Path(f"/proc/{server}/task").iterdir():
        for child in (task / "children").read_text().split():
            folder = Path(f"/proc/{child}")
            if b"inferlab.web.runner" in (folder / "cmdline").read_bytes():
                return (folder / "environ").read_bytes()
    return b""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "no.such.host.invalid"), "cannot listen on no.such.host.invalid"),
        (("--host", "192.0.2.1", "--port", "0"), "cannot listen on 192.0.2.1"),
        (("--port", "70000"), "70000 is not in the range"),
        (("--folder", "/no/such/folder"), "does not exist"),
        (("--max-upload", "much"), "'much' is not a size such as 500M or 4G."),
        (("--max-upload", "0"), "'0' is not a size such as 500M or 4G."),
        (("--no-token", "--host", "0.0.0.0", "--port", "0"), "--no-token is refused: 0.0.0.0 can be reached from"),
    ],
)
def test_what_cannot_be_served_is_refused(inferlab: Run, arguments: tuple[str, ...], words: str) -> None:
    done = inferlab("serve", "--no-browser", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
