"""Which engines exist, how they are started, and what is said of those that cannot run."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from inferlab import Lab, Plan
from inferlab.cli.engines import command
from inferlab.engines import environments, registry, specs
from inferlab.errors import BadInput
from inferlab.records import EngineInfo, Failure
from inferlab.worker import Launch, Worker
from tests.helpers.onnx_files import save_linear

Engine = Callable[[str], str]

VERSION = metadata.version("inferlab")

MODULES = {
    "good_plugin.py": "class Good:\n    kinds = ('onnx', 'openvino')\n    capabilities = ('shared_streams',)\n",
    "failing_plugin.py": "import no_such_module_of_inferlab\n",
    "crashing_plugin.py": "import os\nos.write(2, b'crashed, as ordered')\nos.abort()\n",
    "wanting_plugin.py": "class Wanting:\n    packages = ('no-such-package-of-inferlab',)\n",
}
ENTRY_POINTS = """[inferlab.engines]
good = good_plugin:Good
failing = failing_plugin:Engine
crashing = crashing_plugin:Engine
wanting = wanting_plugin:Wanting
classless = good_plugin
fake = good_plugin:Good
"""


@pytest.fixture
def no_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "environments"


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution with entry points, as an installer would have left it."""
    site = tmp_path / "site"
    info = site / "some_engines-1.2.3.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-engines\nVersion: 1.2.3\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    for name, text in MODULES.items():
        (site / name).write_text(text)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    return site


@pytest.fixture
def engine_file(tmp_path: Path) -> Engine:
    def write(text: str) -> str:
        (tmp_path / "own.py").write_text(text)
        return f"{tmp_path / 'own.py'}:Own"

    return write


def refusal(name: str) -> str:
    with pytest.raises(BadInput) as caught:
        registry.launch(name)
    return str(caught.value)


def test_an_engine_of_ours_runs_in_our_own_environment() -> None:
    assert registry.launch("onnxruntime") == Launch(
        "onnxruntime", {"builtin": "onnxruntime", "class": "OnnxRuntime"}, interpreter=sys.executable
    )


def test_an_unknown_engine_is_answered_with_the_known_ones(plugins: Path) -> None:
    assert refusal("onnxrutime") == (
        "There is no engine 'onnxrutime'. Did you mean 'onnxruntime'? Known engines: onnxruntime, openvino, "
        "torch, mnn, llamacpp, openvino-genai, onnxruntime-genai, deepsparse, executor, fake, classless, "
        "crashing, failing, good, wanting; one of your own is given as path/to/file.py:ClassName."
    )
    assert refusal("tensorrt").startswith("There is no engine 'tensorrt'. Known engines: onnxruntime, ")


def test_an_engine_whose_environment_is_missing_says_how_to_get_it(no_environments: Path) -> None:
    sentence = "Engine 'deepsparse' is not installed. Install it with: inferlab engines install deepsparse"
    assert refusal("deepsparse") == sentence
    assert registry.describe("deepsparse") == EngineInfo(
        "deepsparse",
        "missing",
        environment=str(no_environments / "deepsparse-1.8.0"),
        problem="not installed",
        remedy="inferlab engines install deepsparse",
    )


def test_a_half_made_environment_does_not_count(no_environments: Path) -> None:
    python = no_environments / "deepsparse-1.8.0" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    assert refusal("deepsparse").startswith("Engine 'deepsparse' is not installed.")


def test_an_engine_for_other_machines_is_missing_here(
    no_environments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.system", lambda: "Plan9")
    info = registry.describe("deepsparse")
    assert (info.state, info.remedy) == ("missing", "")
    assert info.problem.startswith("cannot run here: it runs only on Linux (x86_64, aarch64), and this is Plan9 ")


def test_a_missing_extra_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def find_no_torch(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "torch" else find(name, package)

    monkeypatch.setattr("importlib.util.find_spec", find_no_torch)
    assert refusal("torch") == "Engine 'torch' is not installed. Install it with: pip install 'inferlab[torch]'"


def test_an_engine_in_a_file_is_started_from_its_file(engine_file: Engine, tmp_path: Path) -> None:
    name = engine_file("class Own:\n    packages = ('numpy',)\n")
    assert registry.launch(name).reference == {"file": str(tmp_path / "own.py"), "class": "Own"}
    info = registry.describe(name)
    assert (info.state, info.kinds, info.capabilities) == ("ready", ("onnx",), ())
    assert info.version.count(".") == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import no_such_module_of_inferlab\n", "No module named 'no_such_module_of_inferlab'"),
        ("class Other: ...\n", "inferlab_user_engine has no class Own"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
    ],
)
def test_an_engine_in_a_file_that_fails_is_broken_and_says_why(
    engine_file: Engine, text: str, problem: str
) -> None:
    info = registry.describe(engine_file(text))
    assert (info.state, info.problem, info.remedy) == ("broken", problem, "")


def test_a_file_that_is_missing_or_names_no_class_is_bad_input(engine_file: Engine) -> None:
    assert refusal("no/such/file.py:Own") == "Engine 'no/such/file.py:Own': there is no file no/such/file.py."
    for name in ("own.py", "own.py:", "own.py:not a class", "own.py:1st"):
        assert refusal(name) == f"Engine '{name}' names no class. Write it as path/to/file.py:ClassName."
    with pytest.raises(BadInput, match="there is no file"):
        registry.describe("no/such/file.py:Own")


def test_every_engine_is_listed_and_none_can_spoil_the_list(plugins: Path, no_environments: Path) -> None:
    infos = {info.name: info for info in registry.list_engines()}
    assert list(infos) == [
        *("onnxruntime", "openvino", "torch", "mnn", "llamacpp", "openvino-genai", "onnxruntime-genai"),
        *("deepsparse", "executor", "fake"),
        *("classless", "crashing", "failing", "good", "wanting"),
    ]
    assert infos["onnxruntime"].state == "ready"
    assert infos["onnxruntime"].version.count(".") == 2
    assert (infos["deepsparse"].state, infos["executor"].state) == ("missing", "missing")
    assert infos["fake"] == EngineInfo(
        "fake",
        "ready",
        VERSION,
        kinds=("onnx", "openvino", "torch-export", "torchscript"),
        capabilities=("native_streams", "shared_streams"),
    )
    assert infos["good"] == EngineInfo("good", "ready", "1.2.3", ("onnx", "openvino"), ("shared_streams",))
    assert infos["failing"] == EngineInfo(
        "failing", "broken", problem="No module named 'no_such_module_of_inferlab'"
    )
    assert infos["crashing"] == EngineInfo(
        "crashing",
        "broken",
        problem="died during 'describe': its process was ended by SIGABRT. It said: crashed, as ordered",
    )
    assert infos["classless"] == EngineInfo(
        "classless", "broken", problem="its entry point is 'good_plugin', which is not package.module:ClassName"
    )
    assert infos["wanting"] == EngineInfo(
        "wanting",
        "missing",
        "1.2.3",
        kinds=("onnx",),
        problem="no-such-package-of-inferlab not installed",
        remedy="pip install no-such-package-of-inferlab",
    )


def test_the_command_prints_a_plain_table_and_what_to_do(
    no_environments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "BUILTIN", {"fake": "Fake"})
    monkeypatch.setattr(environments, "cpu_info", lambda: {"model name": "Old CPU", "flags": "avx2"})
    result = CliRunner().invoke(command, [])
    assert result.output.splitlines() == [
        "Engine      Version  State    Runs                                       Can                             "
        "Environment",
        f"fake        {VERSION:<7}  ready    onnx, openvino, torch-export, torchscript  "
        "native_streams, shared_streams  inferlab's own",
        "deepsparse  -        missing  -" + " " * 42 + "-" + " " * 31 + "-",
        "executor    -        missing  -" + " " * 42 + "-" + " " * 31 + "-",
        "",
        "deepsparse: not installed. To fix it: inferlab engines install deepsparse",
        "executor: cannot run here: it needs the CPU instructions avx512f, avx512bw, avx512vl, avx512dq, which "
        "this CPU (Old CPU) does not have.",
    ]


def test_the_command_prints_json_with_a_format_number(
    no_environments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "BUILTIN", {})
    monkeypatch.delitem(specs.SPECS, "executor")
    result = CliRunner().invoke(command, ["--json"])
    assert json.loads(result.output) == {
        "format": 1,
        "engines": [
            {
                "name": "deepsparse",
                "state": "missing",
                "version": "",
                "kinds": [],
                "capabilities": [],
                "environment": str(no_environments / "deepsparse-1.8.0"),
                "problem": "not installed",
                "remedy": "inferlab engines install deepsparse",
            }
        ],
    }


def test_the_command_draws_a_table_on_a_terminal(no_environments: Path) -> None:
    screen = _run_on_a_terminal()
    assert "deepsparse: not installed. To fix it: inferlab engines install deepsparse" in screen
    assert "\x1b[32mready" in screen


def _run_on_a_terminal() -> str:
    """What the command writes when its output is a terminal."""
    import pty

    process, screen = pty.fork()
    if process == 0:
        os.environ.update({"TERM": "xterm", "COLUMNS": "160"})
        code = "from inferlab.cli.engines import command; command()"
        os.execv(sys.executable, [sys.executable, "-c", code])
    parts = []
    try:
        while part := os.read(screen, 4096):
            parts.append(part)
    except OSError:
        pass  # how Linux says that the other side is closed
    os.waitpid(process, 0)
    return b"".join(parts).decode()


def test_the_scripted_engine_is_named_to_nobody_but_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INFERLAB_FAKE_ENGINE")
    assert "fake" not in [engine.name for engine in registry.list_engines()]
    with pytest.raises(BadInput) as caught:
        registry.launch("fakes")
    assert "fake," not in str(caught.value) and "Did you mean" not in str(caught.value)
    assert registry.launch("fake").name == "fake"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The engines of the children that were started so far, with nothing remembered."""
    names: list[str] = []

    class Noted(Worker):
        def __init__(self, launch: Launch, *arguments: Any, **options: Any) -> None:
            names.append(launch.name)
            super().__init__(launch, *arguments, **options)

    monkeypatch.setattr(registry, "Worker", Noted)
    monkeypatch.setattr(registry, "_abilities", {})
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "cache"))
    return names


def test_what_an_engine_can_do_is_asked_once_and_then_known_to_every_process(
    started: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = registry.Abilities(
        frozenset({"onnx", "openvino", "torch-export", "torchscript"}),
        frozenset({"native_streams", "shared_streams"}),
    )
    fake = registry.launch("fake")
    assert [registry.abilities(fake) for _ in range(3)] == [expected] * 3
    assert started == ["fake"]
    registry._abilities.clear()
    assert registry.abilities(fake) == expected
    assert started == ["fake"]
    (file,) = (tmp_path / "cache" / "engines").iterdir()
    for damaged in ("", "[]", '{"kinds": 1}'):
        file.write_text(damaged)
        registry._abilities.clear()
        assert registry.abilities(fake) == expected
    assert started == ["fake"] * 4
    monkeypatch.setattr(registry, "__version__", "0.0.0")
    assert registry.abilities(fake) == expected
    assert started == ["fake"] * 5


def test_an_engine_in_a_file_is_asked_again_when_the_file_changes(
    started: list[str], engine_file: Engine, tmp_path: Path
) -> None:
    name = engine_file("class Own:\n    kinds = ['onnx']\n")
    assert registry.abilities(registry.launch(name)).kinds == {"onnx"}
    assert registry.abilities(registry.launch(name)).kinds == {"onnx"}
    assert started == [name]
    engine_file("class Own:\n    kinds = ['openvino']\n    capabilities = ['layer_times']\n")
    found = registry.abilities(registry.launch(name))
    assert found == registry.Abilities(frozenset({"openvino"}), frozenset({"layer_times"}))
    assert not (tmp_path / "cache" / "engines").exists()


def test_an_engine_without_our_base_class_gets_its_defaults(engine_file: Engine, tmp_path: Path) -> None:
    name = engine_file(
        "import abc\n"
        "class Own(abc.ABC):\n"
        "    __slots__ = ('threads',)\n"
        "    def load(self, model, options):\n"
        "        self.threads = options.threads\n"
        "        return {'threads': self.threads}\n"
        "    def bind(self, inputs, stream=0):\n"
        "        return lambda: [2 * inputs['x']]\n"
    )
    model = save_linear(tmp_path / "linear.onnx", 1)
    plan = Plan(str(model), (name,), ("sync",), (1,), time_s=0.05, warmup_s=0.0, processes=1)
    (outcome,) = Lab().benchmark(plan).outcomes
    assert (outcome.status, outcome.failure) == ("done", None)
    assert outcome.runs[0].settings == {"threads": 1}
    assert outcome.runs[0].check.status == "match"
    assert outcome.runs[0].fraction_of_supported_ops is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("class Own: ...\n", "its class has no method load."),
        ("class Own:\n    def load(self, model, options): ...\n", "its class has no method bind."),
    ],
)
def test_an_engine_that_lacks_what_measuring_needs_says_what(
    engine_file: Engine, tmp_path: Path, text: str, reason: str
) -> None:
    name = engine_file(text)
    model = save_linear(tmp_path / "linear.onnx", 1)
    plan = Plan(str(model), (name,), ("sync",), (1,), time_s=0.05, verify=False)
    (outcome,) = Lab().benchmark(plan).outcomes
    assert outcome.failure == Failure("refused", f"Engine '{name}': {reason}")


def test_every_extra_that_an_engine_names_exists() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    named = {traits.extra for traits in registry.TRAITS.values() if traits.extra}
    assert named <= set(project["optional-dependencies"])
