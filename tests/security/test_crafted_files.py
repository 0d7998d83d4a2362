"""Files that would run code, leave their folder or fill the memory: refused in one sentence, and nothing ran."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnxruntime import InferenceSession

from inferlab.child import protocol
from inferlab.child.engines.base import BadOption, Engine, LoadOptions
from inferlab.child.engines.deepsparse import DeepSparse
from inferlab.child.engines.mnn import Mnn
from inferlab.child.engines.onnxruntime import OnnxRuntime
from inferlab.child.engines.openvino import OpenVino
from inferlab.child.engines.torch import Torch
from inferlab.child.engines.torch import files as torch_files
from inferlab.errors import BadInput, EngineFailed
from inferlab.model import inputs, reading
from inferlab.model.onnx_file import read_onnx, rewrite
from inferlab.optimizing import recipes
from inferlab.records import TensorSpec
from inferlab.records.recommendation import Candidate, Deployment
from inferlab.views import command as views_deployment
from inferlab.worker import OPENVINO, Worker
from tests.cli.conftest import Run
from tests.helpers import torch_attacks
from tests.helpers.torch_attacks import Files
from tests.helpers.workers import load

torch = pytest.importorskip("torch")
Module: Any = torch.nn.Module


class Small(Module):  # type: ignore[misc]
    """A convolution, a constant and a function, with a dynamic batch."""

    def __init__(self) -> None:
        super().__init__()
        self.c = torch.nn.Conv2d(3, 4, 3, bias=False)
        torch.nn.init.constant_(self.c.weight, 0.5)
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


def run_program(path: Path) -> Any:
    """Load a program and call it."""
    program = torch_files.read_exported(str(path))
    with contextlib.suppress(TypeError, AssertionError):
        return program.module()(torch.ones(2, 3, 8, 8))


def run_script(path: Path) -> Any:
    return torch_files.read_torchscript(str(path))(torch.ones(4))


def are_right(program: Path, script: Path) -> bool:
    """Whether they compute what was saved: 27 ones times a half, and one more; one and one."""
    y = run_program(program)["y"]
    return y.shape == (2, 4, 6, 6) and bool((y == 14.5).all()) and run_script(script).tolist() == [2.0] * 4


def refused(run: Callable[[Path], Any], path: Path, data: bytes) -> None:
    """What is written is refused in one sentence that names the file."""
    path.write_bytes(data)
    with pytest.raises(BadOption) as problem:
        run(path)
    said = str(problem.value)
    assert said == torch_files._PICKLED or (str(path) in said and "\n" not in said and len(said) < 700), said


def test_what_torch_saved_is_read(program: Path, script: Path) -> None:
    assert are_right(program, script)


def test_what_is_zipped_again_without_a_change_is_read(
    program_files: Files, script_files: Files, tmp_path: Path
) -> None:
    (tmp_path / "again.pt2").write_bytes(torch_attacks.zipped(program_files))
    (tmp_path / "again.pt").write_bytes(torch_attacks.zipped(script_files))
    assert are_right(tmp_path / "again.pt2", tmp_path / "again.pt")


@pytest.mark.parametrize("attack", [*torch_attacks.ARCHIVES, *torch_attacks.PROGRAMS])
def test_a_crafted_program_runs_nothing(attack: str, program_files: Files, marker: Path, tmp_path: Path) -> None:
    make = {**torch_attacks.ARCHIVES, **torch_attacks.PROGRAMS}[attack]
    refused(run_program, tmp_path / "n.pt2", make(program_files, marker))


@pytest.mark.parametrize("attack", torch_attacks.SCRIPTS)
def test_a_crafted_script_runs_nothing(attack: str, script_files: Files, marker: Path, tmp_path: Path) -> None:
    refused(run_script, tmp_path / "n.pt", torch_attacks.SCRIPTS[attack](script_files, marker))


@pytest.mark.parametrize(
    "attack",
    [
        archive
        for archive in torch_attacks.ARCHIVES
        if archive not in ("program of the older format", "second program")
    ],
)
def test_a_crafted_archive_is_no_script(attack: str, script_files: Files, marker: Path, tmp_path: Path) -> None:
    files = {**script_files, torch_attacks.PROGRAM: b'{"guards_code": []}'}
    refused(run_script, tmp_path / "n.pt", torch_attacks.ARCHIVES[attack](files, marker))


# Pickles by themselves.


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("ending", [".pt", ".pth", ".onnx", ".bin", ".pt2"])
def test_a_pickle_by_itself_is_no_model(ending: str, protocol: int, marker: Path, tmp_path: Path) -> None:
    path = tmp_path / f"model{ending}"
    path.write_bytes(torch_attacks.harmful_pickle(marker, protocol))
    with pytest.raises(BadInput) as problem:
        found = reading.locate(str(path))
        read_onnx(found.path, str(path))
    assert str(path) in str(problem.value)


def test_a_checkpoint_with_code_is_no_script(marker: Path, tmp_path: Path) -> None:
    torch.save({"weights": torch_attacks.Harmful(marker)}, tmp_path / "checkpoint.pt")
    with pytest.raises(BadOption, match="weights or a pickled module"):
        run_script(tmp_path / "checkpoint.pt")


# OpenVINO's files.

_NET = """<?xml version="1.0"?>{before}<net name="n" version="11"><layers>
<layer id="0" name="x" type="Parameter" version="opset1"><data shape="1,4" element_type="f32"/>
<output><port id="0" precision="FP32" names="x"><dim>1</dim><dim>4</dim></port></output></layer>
<layer id="1" name="w" type="Const" version="opset1"><data element_type="f32" shape="1,4" offset="{offset}"
 size="{size}"/><output><port id="0" precision="FP32"><dim>1</dim><dim>4</dim></port></output></layer>
<layer id="2" name="y" type="{kind}" version="{version}"><data {more}/>
<input><port id="0"><dim>1</dim><dim>4</dim></port><port id="1"><dim>1</dim><dim>4</dim></port></input>
<output><port id="2" precision="FP32" names="z"><dim>1</dim><dim>4</dim></port></output></layer>
<layer id="3" name="z" type="Result" version="opset1">
<input><port id="0"><dim>1</dim><dim>4</dim></port></input></layer></layers>
<edges><edge from-layer="0" from-port="0" to-layer="2" to-port="0"/>
<edge from-layer="1" from-port="0" to-layer="2" to-port="1"/>
<edge from-layer="2" from-port="2" to-layer="3" to-port="0"/></edges></net>"""
_PLAIN = {"before": "", "offset": 0, "size": 16, "kind": "Add", "version": "opset1", "more": ""}
_LAUGHS = "<!DOCTYPE n [<!ENTITY a 'aaaaaaaaaa'>{}]>".format(
    "".join(f"<!ENTITY {new} '{('&' + old + ';') * 10}'>" for old, new in zip("abcdefgh", "bcdefghi", strict=True))
)
NETS: dict[str, dict[str, Any]] = {
    "weights beyond the file": {"offset": 1 << 40},
    "weights before the file": {"offset": -16},
    "weights of 4 TB": {"size": 1 << 42},
    "library of its own": {"kind": "Extension", "version": "libevil.so"},
    "operator of its own": {"kind": "Evil", "version": "extension", "more": 'library="/tmp/evil.so"'},
    "entities that multiply": {"before": _LAUGHS, "kind": "&i;"},
    "entity of a file": {"before": "<!DOCTYPE n [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>", "kind": "&a;"},
}


@pytest.fixture(scope="module")
def openvino() -> Iterator[Worker]:
    with Worker(OPENVINO) as worker:
        yield worker


def _net(folder: Path, **changes: Any) -> Path:
    (folder / "n.xml").write_text(_NET.format(**{**_PLAIN, **changes}))
    (folder / "n.bin").write_bytes(np.array([1, 2, 3, 4], np.float32).tobytes())
    return folder / "n.xml"


def test_a_genuine_net_is_read_and_computes_what_it_says(tmp_path: Path) -> None:
    with Worker(OPENVINO) as worker:
        described = worker.ask("inspect", model=str(_net(tmp_path)), kind="openvino").data["model"]
        assert [one["dims"] for one in described["inputs"]] == [[1, 4]]
        load(worker, {}, model=str(tmp_path / "n.xml"), kind="openvino", shapes={"x": [1, 4]}, outputs=["z"])
        heads, blocks = protocol.pack_arrays({"x": np.array([[10, 20, 30, 40]], np.float32)})
        worker.ask("inputs", blocks, arrays=heads)
        (y,) = worker.ask("infer", stream=0, set=0).arrays().values()
    assert y.tolist() == [[11, 22, 33, 44]]


@pytest.mark.parametrize("attack", NETS)
def test_a_crafted_net_is_refused(attack: str, openvino: Worker, marker: Path, tmp_path: Path) -> None:
    with pytest.raises((BadInput, EngineFailed)):
        openvino.ask("inspect", model=str(_net(tmp_path, **NETS[attack])), kind="openvino")


# ONNX files and what lies beside them.


def _with_data(folder: Path, location: str) -> Path:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [value], [], [weight])
    graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [4]))
    path = folder / "m.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    )
    return path


@pytest.mark.parametrize(
    "location",
    ["../secret", "inner/../../secret", "{}/secret", "link", "linked/secret", "", ".", "\\..\\secret", "a\0b"],
)
def test_weights_beyond_the_models_folder_are_not_read(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(16))
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path)
    with pytest.raises(BadInput) as problem:
        read_onnx(_with_data(folder, location.format(tmp_path)), "m")
    assert "\n" not in str(problem.value)


def test_weights_beside_the_model_are_read(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(np.array([0, 1, 2, 3], np.float32).tobytes())
    model = read_onnx(_with_data(tmp_path, "data"), "m")
    assert model.parameters == 4
    assert InferenceSession(model.path).run(None, {"x": np.ones(4, np.float32)})[0].tolist() == [1, 2, 3, 4]


def test_an_engine_that_writes_into_its_model_has_a_copy_that_no_link_leads_from(tmp_path: Path) -> None:
    folder, secret = tmp_path / "folder", tmp_path / "secret"
    folder.mkdir()
    secret.write_bytes(bytes(16))
    (folder / "data").hardlink_to(secret)
    model = read_onnx(_with_data(folder, "data"), "m")
    copy = rewrite(model, tmp_path / "copy", batch=None, newest_ir=8, copy_data=True)
    (copy.parent / "data").write_bytes(b"\1" * 16)
    copy.write_bytes(b"")
    assert secret.read_bytes() == (folder / "data").read_bytes() == bytes(16)
    assert read_onnx(folder / "m.onnx", "m").digest == model.digest


_NAMES = (
    "x'): __import__('harmful_module') #",
    'x"""\n\n\nimport harmful_module\n"""',
    "{cores}",
    "\\",
    "x\u2028y",
)


@pytest.mark.parametrize("engine", [DeepSparse, Mnn, OnnxRuntime, OpenVino, Torch])
def test_names_in_a_model_are_no_code_in_the_program_that_deploys_it(engine: type[Engine], marker: Path) -> None:
    shapes = {name: [1, 4] for name in _NAMES}
    options = LoadOptions("onnx", [0], 1, 1, 1, "single_stream", "core", 1, shapes, {})
    inputs = tuple((name, "float32", (1, 4)) for name in _NAMES)
    path = f"/models/it's {_NAMES[1]}.onnx"
    deployment = Deployment(path, (((0,),),), "single", inputs, engine.deployment(options), None)
    made: dict[str, Any] = {}
    exec(views_deployment.program(Candidate("engine", 1, 1, 1), deployment), made)
    assert made["MODEL"] == path
    assert list(made["example"]()) == list(_NAMES)


# Data, plans and recipes.


@pytest.mark.parametrize("name", ["data.npz", "data.npy"])
@pytest.mark.parametrize("inside", ["array of objects", "pickle"])
def test_pickled_data_is_not_read(name: str, inside: str, marker: Path, tmp_path: Path) -> None:
    path = tmp_path / name
    objects = np.array([torch_attacks.Harmful(marker)], object)
    if inside == "pickle":
        path.write_bytes(torch_attacks.harmful_pickle(marker))
    elif name.endswith("z"):
        np.savez(path, x=objects)
    else:
        np.save(path, objects)
    with pytest.raises(BadInput, match=name):
        inputs.load_inputs(path, [TensorSpec("x", "float32", (None, 4))], None)


HARMFUL_YAML = {
    "call": "!!python/object/apply:builtins.open ['{}', w]",
    "new object": "!!python/object/new:builtins.open ['{}', w]",
    "module": "!!python/module:harmful_module",
    "name": "!!python/name:harmful_module.x",
    "unknown tag": "!run {}",
}


@pytest.mark.parametrize("tag", HARMFUL_YAML)
def test_a_recipe_runs_nothing(tag: str, marker: Path) -> None:
    with pytest.raises(BadInput):
        recipes.loads(f"format: {HARMFUL_YAML[tag].format(marker)}\n", "recipe.yaml")


@pytest.mark.parametrize("tag", HARMFUL_YAML)
def test_a_plan_runs_nothing(tag: str, inferlab_here: Run, marker: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(f"model: {HARMFUL_YAML[tag].format(marker)}\n")
    said = inferlab_here("benchmark", "--plan", tmp_path / "plan.yaml")
    assert (said.returncode, said.stdout) == (2, "")
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04.",
        b'{"format": "inferlab", "version": 99}',
        b"\xff\xfe",
        b"",
        b"null",
        b'{"a": NaN}',
    ],
)
def test_an_import_runs_nothing(content: bytes, inferlab_here: Run, marker: Path, tmp_path: Path) -> None:
    (tmp_path / "export.jsonl").write_bytes(content)
    said = inferlab_here("import", tmp_path / "export.jsonl")
    assert said.returncode == 2
    assert "Traceback" not in said.stderr


def test_the_command_line_refuses_them_in_one_sentence(
    inferlab_here: Run,
    program_files: Files,
    marker: Path,
    tmp_path: Path,
) -> None:
    (tmp_path / "n.pt2").write_bytes(torch_attacks.ARCHIVES["ending in another case"](program_files, marker))
    said = inferlab_here("benchmark", tmp_path / "n.pt2", "-t", "0.1")
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.count("\n") == 1
    assert "Traceback" not in said.stderr
