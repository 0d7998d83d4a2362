"""Starting quickly: a command that only shows its help imports nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from inferlab.cli import _COMMANDS

HEAVY = {"numpy", "onnx", "scipy", "sqlite3", "onnxruntime", "openvino", "torch", "rich"}


@pytest.fixture(scope="module")
def helped() -> dict[str, tuple[str, list[str]]]:
    """The help of every command, and what is imported by then; one process for all, for it never forgets."""
    code = (
        "import contextlib, io, json, sys\nfrom inferlab.cli import group\nfound = {}\n"
        f"for command in {list(_COMMANDS)!r}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as printed:\n"
        "        group.main([command, '--help'], standalone_mode=False)\n"
        f"    found[command] = printed.getvalue(), sorted({HEAVY!r} & set(sys.modules))\n"
        "print(json.dumps(found))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, tuple[str, list[str]]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("command", _COMMANDS)
def test_the_help_of_a_command_imports_nothing_heavy(
    helped: dict[str, tuple[str, list[str]]], command: str
) -> None:
    text, heavy = helped[command]
    assert heavy == []
    assert "Usage: " in text
