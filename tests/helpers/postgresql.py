"""A PostgreSQL server that the tests start themselves, and databases on it."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """A folder with the socket of a running server, whose user is `inferlab`."""
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="inferlab-pg-"))
    who: dict[str, Any] = {}
    if os.getuid() == 0:
        # The server refuses to run as root.
        account = _account()
        os.chown(folder, account.pw_uid, account.pw_gid)
        who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    data = folder / "data"
    quiet: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, **who}
    server: subprocess.Popen[bytes] | None = None
    try:
        initdb: list[str | Path] = [
            programs / "initdb",
            "-D",
            data,
            "-U",
            "inferlab",
            "--auth=trust",
            "--no-sync",
            "-E",
            "UTF8",
        ]
        subprocess.run(initdb, check=True, stderr=subprocess.PIPE, **quiet)
        settings = ["listen_addresses=", f"unix_socket_directories={folder}", "fsync=off"]
        with (folder / "log").open("wb") as log:
            command: list[str | Path] = [
                programs / "postgres",
                "-D",
                data,
                *[part for setting in settings for part in ("-c", setting)],
            ]
            server = subprocess.Popen(command, stderr=log, **quiet)
        _await(server, folder)
        yield str(folder)
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)
            server.wait(30)
        shutil.rmtree(folder)


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    if on_path:
        found.append(Path(on_path))
    try:
        import psycopg  # noqa: F401
    except ImportError:
        _without("psycopg is not installed (pip install 'inferlab[postgres]')")
    if not found:
        _without("no PostgreSQL server is installed (apt-get install postgresql)")
    return found[-1].resolve().parent


def _account() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    _without("root cannot run PostgreSQL, and there is no other user")
    raise AssertionError


def _without(reason: str) -> None:
    """Skip, but never where all must be tested."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _await(server: subprocess.Popen[bytes], folder: Path) -> None:
    import psycopg

    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(f"host={folder} user=inferlab dbname=postgres").close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"PostgreSQL did not start: {(folder / 'log').read_text()}")
            time.sleep(0.05)


@pytest.fixture
def postgresql_url(postgresql: str) -> str:
    """The name of a new database on the server."""
    import psycopg

    name = f"t{secrets.token_hex(6)}"
    with psycopg.connect(f"host={postgresql} user=inferlab dbname=postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgresql://inferlab@/{name}?host={postgresql}"
