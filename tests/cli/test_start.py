"""Starting quickly: a command that only shows its help imports nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from inferlab.cli import _COMMANDS

HEAVY = {"numpy", "onnx", "scipy", "sqlalchemy", "onnxruntime", "openvino", "torch", "rich"}


@pytest.mark.parametrize("command", _COMMANDS)
def test_the_help_of_a_command_imports_nothing_heavy(command: str) -> None:
    code = (
        "import sys\nfrom inferlab.cli import group\n"
        f"group.main([{command!r}, '--help'], standalone_mode=False)\n"
        f"print('heavy:', sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy: []"
    assert "Usage: " in done.stdout
