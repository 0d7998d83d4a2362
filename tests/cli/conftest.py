"""The installed command, run as a user runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from inferlab.cli import main

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def environment(cache: Path, own_store: str) -> dict[str, str]:
    return {**os.environ, "INFERLAB_CACHE": str(cache), "COLUMNS": "200"}


@pytest.fixture(scope="session")
def inferlab(environment: dict[str, str]) -> Run:
    """Run `inferlab …` and return what it printed and its exit code."""

    def run(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).parent / "inferlab"), *map(str, arguments)]
        return subprocess.run(
            command, env={**environment, **more}, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )

    return run


@pytest.fixture
def inferlab_here(
    environment: dict[str, str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """The same in this process, which spares a second's start where only what is printed or saved matters."""

    def run(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
        command = ["inferlab", *map(str, arguments)]
        handler = signal.getsignal(signal.SIGTERM)
        capfd.readouterr()
        try:
            with monkeypatch.context() as patch, pytest.raises(SystemExit) as ended:
                patch.setattr(sys, "argv", command)
                for name, value in {**environment, **more}.items():
                    patch.setenv(name, value)
                main()
        finally:
            signal.signal(signal.SIGTERM, handler)
        return subprocess.CompletedProcess(command, int(ended.value.code or 0), *capfd.readouterr())

    return run
