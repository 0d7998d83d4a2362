"""The installed command, run as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def environment(cache: Path) -> dict[str, str]:
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
