"""A shell completes commands, options and their values by the script that `inferlab completion` prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

_ASK = """
eval "$(inferlab completion bash)"
ask() {
    COMPREPLY=(); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
    _inferlab_completion inferlab; echo "${COMPREPLY[@]}"
}
ask inferlab bench
ask inferlab benchmark --num_c
ask inferlab compare --thread_pinning ''
"""


def test_bash_completes_commands_options_and_values(environment: dict[str, str]) -> None:
    folder = str(Path(sys.executable).parent)
    path = {**environment, "PATH": f"{folder}:{environment['PATH']}"}
    done = subprocess.run(["bash", "-c", _ASK], env=path, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["benchmark", "--num_cores", "none core numa"]
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("shell", "first"), [("zsh", "#compdef inferlab"), ("fish", "function _inferlab_completion;")]
)
def test_other_shells_get_their_own_script(shell: str, first: str, inferlab_here: Run) -> None:
    done = inferlab_here("completion", shell)
    assert (done.stdout.splitlines()[0], done.returncode) == (first, 0)


def test_an_unknown_shell_is_refused_in_a_sentence(inferlab_here: Run) -> None:
    done = inferlab_here("completion", "tcsh")
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'." in done.stderr
    assert done.returncode == 2
