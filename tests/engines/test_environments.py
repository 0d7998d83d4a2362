"""Environments of engines are made whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from inferlab.cli.engines import command
from inferlab.engines import environments, specs
from inferlab.engines.specs import EnvironmentSpec
from inferlab.errors import BadInput
from inferlab.records import Event

OURS = f"{sys.version_info.major}.{sys.version_info.minor}"
ENGINE = "class Tiny:\n    packages = ('six',)\n    kinds = ('onnx',)\n"


def tiny(
    folder: Path,
    requirements: tuple[str, ...] = ("six==1.17.0",),
    python_versions: tuple[str, ...] = (OURS,),
    proof: tuple[str, str] = ("six", "PY3"),
    size_bytes: int = 0,
) -> EnvironmentSpec:
    """A small engine whose one package is pure Python."""
    engine = folder / "tiny_engine.py"
    engine.write_text(ENGINE)
    reference = {"file": str(engine), "class": "Tiny"}
    return EnvironmentSpec(
        "tiny",
        "1.0",
        requirements,
        reference,
        proof,
        python_versions,
        size_bytes=size_bytes,
        licence="Tiny Licence",
    )


@pytest.fixture(scope="module")
def quick_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Our interpreter, but that it makes environments by copying one: making them takes seconds each."""
    # Not at the top: this file is run as a program, too.
    from tests.helpers.releases import quick_python

    return quick_python(tmp_path_factory.mktemp("quick"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "environments"


def use(monkeypatch: pytest.MonkeyPatch, spec: EnvironmentSpec) -> None:
    monkeypatch.setitem(specs.SPECS, "tiny", spec)


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def start_install(folder: Path, python: str) -> subprocess.Popen[str]:
    """Install the tiny engine in a process of its own, which prints its progress."""
    return subprocess.Popen([sys.executable, __file__, str(folder), python], stdout=subprocess.PIPE, text=True)


def shim(folder: Path, name: str, script: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return str(folder / name)


def wait_for(process: subprocess.Popen[str], step: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == step:
            return
    raise AssertionError(f"the installation ended without '{step}'")


def test_an_installed_environment_has_its_packages_and_none_of_ours(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tiny(tmp_path))
    events: list[Event] = []
    assert environments.interpreter_of("tiny") is None
    python = environments.install("tiny", listener=events.append)
    assert python == cache / "tiny-1.0" / "bin" / "python" == environments.interpreter_of("tiny")
    assert left_in(cache) == [".tiny.lock", "tiny-1.0"]
    code = "import six, importlib.util as u; print(six.__version__, u.find_spec('numpy'))"
    assert subprocess.check_output([python, "-I", "-c", code], text=True) == "1.17.0 None\n"
    steps = [event.data["step"] for event in events]
    assert steps[:2] == ["making the environment", "collecting"]
    assert steps[-3:] == ["installing", "checking", "done"]
    assert {"name": "tiny", "step": "installing", "detail": "six"} in [event.data for event in events]

    stamp = (cache / "tiny-1.0" / "pyvenv.cfg").stat().st_mtime_ns
    events.clear()
    assert environments.install("tiny", listener=events.append) == python
    assert (events, (cache / "tiny-1.0" / "pyvenv.cfg").stat().st_mtime_ns) == ([], stamp)

    use(monkeypatch, tiny(tmp_path, requirements=("six==1.16.0", "no-such-package-of-inferlab==9")))
    assert environments.interpreter_of("tiny") is None, "made of other packages than those wanted now"
    use(monkeypatch, tiny(tmp_path))

    (cache / "tiny-10.2").mkdir()
    (cache / "tiny-cousin-1.0").mkdir()
    assert environments.remove("tiny") == [cache / "tiny-1.0", cache / "tiny-10.2"]
    assert left_in(cache) == [".tiny.lock", "tiny-cousin-1.0"]
    with pytest.raises(BadInput, match=r"^Engine 'tiny' is not installed, so there is nothing to remove\.$"):
        environments.remove("tiny")


def test_a_reinstallation_that_fails_leaves_the_old_environment_working(
    cache: Path, quick_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tiny(tmp_path))
    python = environments.install("tiny", quick_python)
    use(monkeypatch, tiny(tmp_path, proof=("six", "no_such_name")))
    with pytest.raises(BadInput) as caught:
        environments.install("tiny", quick_python, reinstall=True)
    assert str(caught.value) == (
        "Engine 'tiny' was installed, but does not start here: Engine 'tiny': six has no class no_such_name."
    )
    assert environments.interpreter_of("tiny") == python
    assert left_in(cache) == [".tiny.lock", "tiny-1.0"]


def test_a_package_can_be_installed_without_what_it_asks_for(
    cache: Path, quick_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lonely = replace(
        tiny(tmp_path), without_dependencies=("python-dateutil==2.9.0.post0",), requirements=("six==1.16.0",)
    )
    use(monkeypatch, lonely)
    python = environments.install("tiny", quick_python)
    code = "import dateutil, six; print(dateutil.__version__, six.__version__)"
    assert subprocess.check_output([python, "-I", "-c", code], text=True) == "2.9.0.post0 1.16.0\n"
    use(monkeypatch, replace(lonely, without_dependencies=()))
    assert environments.interpreter_of("tiny") is None, "made of other packages than those wanted now"


def test_a_requirement_that_does_not_exist_is_told_in_the_words_of_pip(
    cache: Path, quick_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tiny(tmp_path, requirements=("no-such-package-of-inferlab==9",)))
    with pytest.raises(BadInput) as caught:
        environments.install("tiny", quick_python)
    assert str(caught.value).startswith("Engine 'tiny' could not be installed: pip said: ERROR: ")
    assert "No matching distribution found for no-such-package-of-inferlab==9" in str(caught.value)
    assert left_in(cache) == [".tiny.lock"]


def test_an_interrupted_installation_leaves_nothing_behind(
    cache: Path, quick_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start_install(tmp_path, quick_python)
    wait_for(process, "collecting")
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    assert left_in(cache) == [".tiny.lock"]


def test_a_killed_installation_does_not_count_and_the_next_one_works(
    cache: Path, quick_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tiny(tmp_path))
    process = start_install(tmp_path, quick_python)
    wait_for(process, "collecting")
    process.kill()
    process.communicate()
    assert left_in(cache) == [".tiny-1.0.part", ".tiny.lock"]
    assert environments.interpreter_of("tiny") is None
    assert environments.install("tiny", quick_python) == cache / "tiny-1.0" / "bin" / "python"
    assert left_in(cache) == [".tiny.lock", "tiny-1.0"]


def test_of_two_installations_at_once_the_second_waits_and_uses_the_first(
    cache: Path, quick_python: str, tmp_path: Path
) -> None:
    both = [start_install(tmp_path, quick_python), start_install(tmp_path, quick_python)]
    told = [process.communicate()[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(lines[0] for lines in told) == ["making the environment", "waiting for another installation"]
    assert sorted(len(lines) for lines in told)[0] == 1
    assert left_in(cache) == [".tiny.lock", "tiny-1.0"]


def test_an_environment_that_does_not_fit_on_the_disk_is_not_begun(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tiny(tmp_path, size_bytes=10**18))
    with pytest.raises(
        BadInput, match=r"^Engine 'tiny' needs about 1000000000000 MB in .*, and \d+ MB are free\.$"
    ):
        environments.install("tiny")
    assert left_in(cache) == [".tiny.lock"]


def test_a_full_disk_is_told_as_such() -> None:
    lines = ["Collecting six", "ERROR: Could not install packages: [Errno 28] No space left on device", ""]
    assert environments._complaint(lines, 1) == "the disk is full."


def test_a_cache_that_cannot_be_written_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "file"))
    use(monkeypatch, tiny(tmp_path))
    with pytest.raises(BadInput, match=r"^Engine 'tiny' could not be installed in .*: .*Not a directory"):
        environments.install("tiny")


def test_an_engine_for_other_machines_is_refused(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tiny(tmp_path))
    monkeypatch.setattr("platform.system", lambda: "Plan9")
    monkeypatch.setattr("platform.machine", lambda: "mips")
    with pytest.raises(BadInput) as caught:
        environments.install("tiny")
    assert str(caught.value) == (
        "Engine 'tiny' cannot be installed: it runs only on Linux (x86_64, aarch64), and this is Plan9 (mips)."
    )


def test_an_interpreter_on_the_path_is_run_before_it_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim(tmp_path / "bin", "python3.7", "echo not in this version >&2; exit 127")
    shim(tmp_path / "bin", "python3.6", "echo 3.6; echo No module named ensurepip >&2; exit 1")
    shim(tmp_path / "bin", "python3.5", "echo 3.5")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    found = environments.find_python(tiny(tmp_path, python_versions=("3.7", "3.6", "3.5")))
    assert found == "python3.5"
    with pytest.raises(BadInput) as caught:
        environments.find_python(tiny(tmp_path, python_versions=("3.7", "3.6")))
    assert str(caught.value) == (
        "Engine 'tiny' needs Python 3.6 to 3.7, and none was found (python3.6 was found, but it lacks venv or "
        "ensurepip (on Debian and Ubuntu: the package python3-venv)). "
        "Give one with: inferlab engines install tiny --python PATH"
    )


def test_an_interpreter_given_by_hand_must_run_and_fit(tmp_path: Path) -> None:
    spec = tiny(tmp_path, python_versions=("3.7",))
    old = shim(tmp_path / "bin", "old", "echo 3.5")
    for given, problem in {
        "/none/python": "/none/python cannot make an environment: it does not run (No such file or directory).",
        old: f"{old} is Python 3.5, but tiny needs Python 3.7.",
        "/bin/false": "/bin/false cannot make an environment: it does not run (exit code 1).",
    }.items():
        with pytest.raises(BadInput) as caught:
            environments.find_python(spec, given)
        assert str(caught.value) == problem


def test_our_own_interpreter_is_taken_where_it_fits(tmp_path: Path) -> None:
    assert environments.find_python(tiny(tmp_path)) == sys.executable


def test_the_command_installs_only_what_was_agreed_to(
    cache: Path, quick_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tiny(tmp_path))
    runner = CliRunner()
    refused = runner.invoke(command, ["install", "tiny"])
    assert isinstance(refused.exception, BadInput)
    assert str(refused.exception) == (
        "Installing 'tiny' needs your agreement to its licence, and there is no terminal to ask on. "
        "Agree to it with: --yes"
    )
    assert "tiny 1.0: Tiny Licence\n" in refused.stderr
    assert not cache.exists()

    done = runner.invoke(command, ["install", "tiny", "--yes", "--python", quick_python])
    assert done.exception is None
    assert done.stdout == f"Engine 'tiny' 1.0 is installed in {cache / 'tiny-1.0'}.\n"
    assert "tiny: installing six\n" in done.stderr
    again = runner.invoke(command, ["install", "tiny"])
    assert again.output == f"Engine 'tiny' 1.0 is already installed in {cache / 'tiny-1.0'}.\n"
    assert runner.invoke(command, ["remove", "tiny"]).output == f"Removed {cache / 'tiny-1.0'}.\n"


def test_an_engine_without_an_environment_of_its_own_cannot_be_installed_or_removed(cache: Path) -> None:
    for job in ("install", "remove"):
        result = CliRunner().invoke(command, [job, "onnxruntime"])
        assert isinstance(result.exception, BadInput)
        assert str(result.exception) == (
            "Engine 'onnxruntime' has no environment of its own to install or remove. "
            "Those that have: deepsparse, executor, and releases such as onnxruntime==1.22.1. "
            "See: inferlab engines"
        )


if __name__ == "__main__":

    def show(event: Event) -> None:
        os.write(1, f"{event.data['step']}\n".encode())

    specs.SPECS["tiny"] = tiny(Path(sys.argv[1]))
    try:
        environments.install("tiny", sys.argv[2], listener=show)
    except KeyboardInterrupt:
        sys.exit(130)
