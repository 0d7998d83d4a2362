"""The installed command, run as a user runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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


@pytest.fixture(scope="session")
def inferlab_here(environment: dict[str, str]) -> Run:
    """The same in this process, which spares a second's start where only what is printed or saved matters."""

    def run(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
        command = ["inferlab", *map(str, arguments)]
        handler = signal.getsignal(signal.SIGTERM)
        with _printed() as printed, pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
            patch.setattr(sys, "argv", command)
            for name, value in {**environment, **more}.items():
                patch.setenv(name, value)
            try:
                main()
            finally:
                signal.signal(signal.SIGTERM, handler)
        return subprocess.CompletedProcess(command, int(ended.value.code or 0), *printed)

    return run


@contextmanager
def _printed() -> Iterator[list[str]]:
    """What this process and those that it starts print meanwhile, on stdout and on stderr, once it is over."""
    printed: list[str] = []
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
        for number, (name, file) in enumerate(zip(("stdout", "stderr"), files, strict=True), 1):
            before, stream = os.dup(number), getattr(sys, name)
            stack.callback(os.close, before)
            stack.callback(setattr, sys, name, stream)
            stack.callback(os.dup2, before, number)
            os.dup2(file.fileno(), number)
            ours = os.fdopen(number, "w", encoding="utf-8", closefd=False)
            stack.callback(ours.flush)
            setattr(sys, name, ours)
        yield printed
        for name in ("stdout", "stderr"):
            getattr(sys, name).flush()
        for file in files:
            file.seek(0)
            printed.append(file.read().decode())
