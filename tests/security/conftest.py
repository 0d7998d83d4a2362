"""The command, run in this process as the tests of the command line run it; and what nothing may make."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import cache, environment, inferlab_here

__all__ = ["cache", "environment", "inferlab_here", "marker"]


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What a harmful file would make, also by a module that it imports; it must not be there at the end."""
    path = tmp_path / "marker"
    (tmp_path / "harmful_module.py").write_text(f"open({str(path)!r}, 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield path
    sys.modules.pop("harmful_module", None)
    assert not path.exists()
