"""Foreign text cannot steer the terminal: names in models, plans, stores and options are shown, not obeyed."""

from __future__ import annotations

import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferlab.store import open_store
from inferlab.units import escape_controls, one_line
from tests.cli.conftest import Run

#: A title that is set, the screen cleared, a link, rich's markup, C1, bidirectional override, zero width, DEL, CR.
EVIL = (
    "\x1b]0;owned\x07\x1b[2J\x1b[31m[bold][link=http://x]l\x9b31m\u202eabc\u2066\u200b\u2028\x7f\r\x08"
    "\n| inferlab: verdict: faster\n"
)
QUICK = ("-t", "0.2", "--no-verify")


def controls(text: str) -> set[str]:
    """What a terminal would obey, or what changes unseen what is seen."""
    hidden = {one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    return hidden - {"\n", "\t"}


def without_styles(text: str) -> str:
    """The text of a terminal without the styles that are ours: a line that is rewritten, and colours."""
    return re.sub(r"\x1b\[(?:K|\d{1,2}m)|\r", "", text)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose names of inputs, outputs, nodes, weights and graph hold escapes."""
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), f"weight{EVIL}")
    node = helper.make_node("MatMul", [f"in{EVIL}", f"weight{EVIL}"], [f"out{EVIL}"], name=f"node{EVIL}")
    graph = helper.make_graph(
        [node],
        f"graph{EVIL}",
        [helper.make_tensor_value_info(f"in{EVIL}", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info(f"out{EVIL}", TensorProto.FLOAT, ["batch", 4])],
        [weight],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path_factory.mktemp("evil") / "evil\x1b[31m\u202e.onnx"
    onnx.save(made, path)
    return path


@pytest.fixture(scope="module")
def unknown_operator(model: Path) -> Path:
    """A model with an operator and a domain of such names, which no engine has."""
    made = onnx.load(model)
    made.graph.node[0].op_type, made.graph.node[0].domain = f"Op{EVIL}", f"domain{EVIL}"
    made.opset_import.append(helper.make_opsetid(f"domain{EVIL}", 1))
    path = model.with_name("unknown.onnx")
    onnx.save(made, path)
    return path


def test_control_characters_are_made_visible_and_all_else_is_left() -> None:
    assert escape_controls("\x1b[31m\x07\x9b\u202e\u200b\u2028\ud800\x7f\U000e0001") == (
        r"\x1b[31m\x07\x9b\u202e\u200b\u2028\ud800\x7f\U000e0001"
    )
    assert escape_controls("a\tb\nc é 漢 → … ×\xa0") == "a\tb\nc é 漢 → … ×\xa0"
    assert one_line("a\tb\nc\r") == r"a\tb\nc\r"


def _commands(model: Path, unknown: Path, tmp_path: Path) -> dict[str, tuple[object, ...]]:
    plan = tmp_path / "plan.yaml"
    plan.write_text('"batch\\e[31m\\u202e": 1\n')
    default = tmp_path / "default.yaml"
    default.write_text('engine: "\\e[31mx\\u202e"\n')
    return {
        "benchmark": ("benchmark", model, "-w", "0", "--processes", "1", *QUICK),
        "sweep": ("benchmark", model, "-w", "0", "--processes", "1", "-b", "1,2", *QUICK),
        "profile": ("profile", model, "-x", tmp_path / "profile.json", "-t", "0.2"),
        "compare": ("compare", model, "-s", "sync", "-t", "3", "--no-verify"),
        "optimize": (
            "optimize",
            model,
            "-o",
            tmp_path / "o.onnx",
            "--sparsity",
            "0.5",
            "--ends",
            "--measure",
            "none",
        ),
        "excluded": ("optimize", model, "-o", tmp_path / "p.onnx", "--sparsity", "0.5", "--layer", f"{EVIL}=0.5"),
        "unknown operator": ("benchmark", unknown, *QUICK),
        "profile of an unknown operator": ("profile", unknown, "-t", "0.2"),
        "engine": ("benchmark", model, "-e", f"e{EVIL}", *QUICK),
        "shapes": ("benchmark", model, "-i", f"{EVIL}=[1,4]", *QUICK),
        "option value": ("benchmark", model, "-b", f"1{EVIL}"),
        "choice": ("benchmark", model, "-pin", f"core{EVIL}"),
        "option": ("benchmark", model, f"--{EVIL}"),
        "command": (f"bench{EVIL}",),
        "missing model": ("benchmark", f"/missing{EVIL}.onnx"),
        "plan key": ("benchmark", model, "--plan", plan),
        "plan file": ("benchmark", model, "--plan", f"/missing{EVIL}.yaml"),
        "default": ("benchmark", "--plan", default, "--help"),
        "engine option": ("benchmark", model, "-e", "onnxruntime", "--engine-option", f"{EVIL}=1", *QUICK),
        "store": ("history", "--store", f"/missing{EVIL}/lab.db"),
        "id": ("show", f"abcd{EVIL}"),
    }


NAMES = (
    *("benchmark", "sweep", "profile", "compare", "optimize", "excluded", "unknown operator"),
    *("profile of an unknown operator", "engine", "shapes", "option value", "choice", "option", "command"),
    *("missing model", "plan key", "plan file", "default", "engine option", "store", "id"),
)


@pytest.mark.parametrize("name", NAMES)
def test_no_control_character_reaches_stdout_or_stderr(
    inferlab_here: Run, model: Path, unknown_operator: Path, tmp_path: Path, name: str
) -> None:
    commands = _commands(model, unknown_operator, tmp_path)
    assert tuple(commands) == NAMES
    done = inferlab_here(*commands[name])
    assert controls(done.stdout + done.stderr) == set()
    assert done.stdout + done.stderr
    assert done.returncode in (0, 2, 3, 4), done.stderr


def _on_terminal(environment: dict[str, str], *arguments: object) -> str:
    """What the command writes to a terminal."""
    process, screen = pty.fork()
    if process == 0:
        command = [sys.executable, "-m", "inferlab", *map(str, arguments)]
        os.execve(sys.executable, command, {**environment, "TERM": "xterm", "COLUMNS": "120"})
    parts = []
    try:
        while part := os.read(screen, 65536):
            parts.append(part)
    except OSError:
        pass  # the end, as Linux tells it
    os.close(screen)
    os.waitpid(process, 0)
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.mark.parametrize("name", ["sweep", "profile", "unknown operator", "engine", "option value", "default"])
def test_on_a_terminal_nothing_but_our_own_styles_is_written(
    environment: dict[str, str], model: Path, unknown_operator: Path, tmp_path: Path, name: str
) -> None:
    screen = _on_terminal(environment, *_commands(model, unknown_operator, tmp_path)[name])
    assert controls(without_styles(screen)) == set()
    assert "\x1b[31m" not in screen and screen.strip()


def test_what_a_store_holds_is_shown_not_obeyed(inferlab_here: Run, tmp_path: Path) -> None:
    path = tmp_path / "lab.db"
    content = {"format": f"odd{EVIL}", f"key{EVIL}": f"value{EVIL}", "model": {"digest": EVIL}}
    with open_store(str(path)) as store:
        entry = store.add_document(f"kind{EVIL}", f"title{EVIL}", content)
        store.note(entry, f"note{EVIL}")
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE entry SET node = ?, inferlab_version = ?", (EVIL, EVIL))
    for command in (("history",), ("show", entry), ("store", "check"), ("remove", entry), ("history", "--json")):
        done = inferlab_here(*command, "--store", path)
        assert controls(done.stdout + done.stderr) == set(), command
        assert "owned" in done.stdout + done.stderr or command[0] == "store"


def test_the_engines_table_is_styled_by_us_alone(environment: dict[str, str], tmp_path: Path) -> None:
    screen = _on_terminal({**environment, "INFERLAB_CACHE": str(tmp_path / "c\x1b[31m\u202e")}, "engines")
    assert "\x1b[32mready" in screen
    assert controls(without_styles(screen)) == set()


def test_markdown_holds_no_control_character_and_no_broken_table(
    inferlab_here: Run, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.md"
    arguments = ("-w", "0", "--processes", "1", "-b", "1,2", *QUICK, "-x", out)
    assert inferlab_here("benchmark", model, *arguments).returncode == 0
    shown = out.read_text().partition("<!-- inferlab results")[0]
    assert controls(shown) == set()
    head, _, table, rule, *_ = shown.splitlines()
    assert head.startswith("## ") and table.startswith("| ") and set(rule) <= set("|-: ")
    assert [row["batch_size"] for row in _rows(tmp_path / "out.md")] == [1, 2]


def _rows(path: Path) -> list[dict[str, object]]:
    from inferlab.views import benchmark_file

    return benchmark_file.read(path)


def test_a_stream_that_lacks_a_character_gets_its_escape(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "inferlab", "benchmark", "/missing→é.onnx"],
        env={**environment, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
    )
    assert done.returncode == 2 and rb"/missing\u2192\xe9.onnx" in done.stderr


_INTERRUPTED_AT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[-1]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
from inferlab.start import main
main()
"""


@pytest.mark.parametrize(
    "module",
    ["inferlab.cli", "click", "click.core", "inferlab.errors", "inferlab.cli.benchmark", "inferlab.records"],
)
def test_ctrl_c_while_the_command_is_imported_ends_it_without_a_word(
    environment: dict[str, str], module: str
) -> None:
    command = [sys.executable, "-c", _INTERRUPTED_AT, "benchmark", "--help", module]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("module", ["numpy", "sqlite3"])
def test_ctrl_c_while_a_library_is_imported_is_no_fault(environment: dict[str, str], module: str) -> None:
    command = [sys.executable, "-c", _INTERRUPTED_AT, "benchmark", module]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) in ((130, "", ""), (-signal.SIGINT, "", ""))


def test_ctrl_c_at_any_moment_after_the_start_ends_it_without_a_word(environment: dict[str, str]) -> None:
    answers = []
    for step in range(20):
        reading, writing = os.pipe()
        code = (
            "import os, signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "import inferlab.start\nhandler = inferlab.start._signal.signal\n"
            "def told(*what):\n    handler(*what)\n    inferlab.start._signal.signal = handler\n"
            f"    os.write({writing}, b'.')\n"
            "inferlab.start._signal.signal = told\nsys.argv[1:] = ['benchmark', '/missing.onnx']\n"
            "inferlab.start.main()"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=environment,
            pass_fds=[writing],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        os.close(writing)
        assert os.read(reading, 1) == b"."
        os.close(reading)
        try:
            process.wait(step * 0.02)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
        # It may have said all it had to say before; Python at its very end leaves the signal to the system.
        said = process.returncode in (2, 130, -signal.SIGINT) and error.endswith(b"'/missing.onnx'.\n")
        silent = process.returncode in (130, -signal.SIGINT) and error == b""
        answers.append(None if out == b"" and (said or silent) else (process.returncode, out, error))
    assert answers == [None] * 20
