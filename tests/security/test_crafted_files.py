"""Files that would run code, leave their folder or fill the memory: refused in one sentence, and nothing ran."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inferlab.child.engines import torch_files
from inferlab.child.engines.base import BadOption
from tests.security import torch_attacks
from tests.security.torch_attacks import Files

torch = pytest.importorskip("torch")
Module: Any = torch.nn.Module


class Small(Module):  # type: ignore[misc]
    """A convolution, a constant and a function, with a dynamic batch."""

    def __init__(self) -> None:
        super().__init__()
        self.c = torch.nn.Conv2d(3, 4, 3)
        self.k = torch.ones(4, 1, 1)

    def forward(self, x: Any) -> Any:
        return {"y": torch.relu(self.c(x) + self.k)}


class Tiny(Module):  # type: ignore[misc]
    """What a TorchScript file is made of."""

    def forward(self, x: Any) -> Any:
        return x + 1


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("genuine") / "n.pt2"
    batch = torch.export.Dim("batch", min=2, max=64)
    shapes = {"x": {0: batch}}
    exported = torch.export.export(Small().eval(), (torch.ones(2, 3, 8, 8),), dynamic_shapes=shapes)
    torch.export.save(exported, path)
    return path


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("genuine") / "n.pt"
    torch.jit.trace(Tiny(), torch.ones(4)).save(str(path))
    return path


@pytest.fixture(scope="module")
def program_files(program: Path) -> Files:
    return torch_attacks.unzipped(program)


@pytest.fixture(scope="module")
def script_files(script: Path) -> Files:
    return torch_attacks.unzipped(script)


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What a harmful file would make, also by a module that it imports; it must not be there at the end."""
    path = tmp_path / "marker"
    (tmp_path / "harmful_module.py").write_text(f"open({str(path)!r}, 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield path
    sys.modules.pop("harmful_module", None)
    assert not path.exists()


def run_program(path: Path) -> None:
    """Load a program and call it in both ways, as the engine and the exporter do."""
    program = torch_files.read_exported(str(path))
    with contextlib.suppress(TypeError, AssertionError):
        program.module()(torch.ones(2, 3, 8, 8))


def run_script(path: Path) -> None:
    torch_files.read_torchscript(str(path))(torch.ones(4))


def refused(run: Callable[[Path], None], path: Path, data: bytes) -> None:
    """What is written is refused in one sentence that names the file."""
    path.write_bytes(data)
    with pytest.raises(BadOption) as problem:
        run(path)
    said = str(problem.value)
    assert said == torch_files._PICKLED or (str(path) in said and "\n" not in said and len(said) < 700), said


def test_what_torch_saved_is_read(program: Path, script: Path, program_files: Files, script_files: Files) -> None:
    run_program(program)
    run_script(script)


def test_what_is_zipped_again_without_a_change_is_read(
    program_files: Files, script_files: Files, tmp_path: Path
) -> None:
    (tmp_path / "again.pt2").write_bytes(torch_attacks.zipped(program_files))
    run_program(tmp_path / "again.pt2")
    (tmp_path / "again.pt").write_bytes(torch_attacks.zipped(script_files))
    run_script(tmp_path / "again.pt")


@pytest.mark.parametrize("attack", [*torch_attacks.ARCHIVES, *torch_attacks.PROGRAMS])
def test_a_crafted_program_runs_nothing(attack: str, program_files: Files, marker: Path, tmp_path: Path) -> None:
    make = {**torch_attacks.ARCHIVES, **torch_attacks.PROGRAMS}[attack]
    refused(run_program, tmp_path / "n.pt2", make(program_files, marker))


@pytest.mark.parametrize("attack", torch_attacks.SCRIPTS)
def test_a_crafted_script_runs_nothing(attack: str, script_files: Files, marker: Path, tmp_path: Path) -> None:
    refused(run_script, tmp_path / "n.pt", torch_attacks.SCRIPTS[attack](script_files, marker))


@pytest.mark.parametrize("attack", torch_attacks.ARCHIVES)
def test_a_crafted_archive_is_no_script(attack: str, script_files: Files, marker: Path, tmp_path: Path) -> None:
    files = {**script_files, torch_attacks.PROGRAM: b'{"guards_code": []}'}
    if attack in ("program of the older format", "second program"):
        return
    refused(run_script, tmp_path / "n.pt", torch_attacks.ARCHIVES[attack](files, marker))
