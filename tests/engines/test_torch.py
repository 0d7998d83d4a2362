"""PyTorch in a child: programs, TorchScript, what is refused, and that nothing in a file is run."""

from __future__ import annotations

import json
import os
import pickle
import signal
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferlab.child import protocol
from inferlab.child.loop import MOST_SAMPLES
from inferlab.errors import BadInput, EngineFailed
from inferlab.model import reading
from inferlab.model.reading import inspect_foreign
from inferlab.records import TensorSpec
from inferlab.worker import Launch, Worker

torch = pytest.importorskip("torch")

TORCH = Launch("torch", {"builtin": "torch", "class": "Torch"})
IDS, MASK = np.arange(12).reshape(2, 6), np.array([[1, 1, 1, 1, 0, 0], [1] * 6])


def make() -> Any:
    """A small text model with two named outputs."""

    class Small(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(20, 8)
            self.layer = torch.nn.Linear(8, 4)
            torch.nn.init.zeros_(self.layer.weight)

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            hidden = self.layer(self.table(input_ids)) + self.table(input_ids)[..., :4]
            return {"hidden": hidden * attention_mask.unsqueeze(-1), "pooled": hidden.mean(1)}

    torch.manual_seed(0)
    return Small().eval()


@pytest.fixture(scope="module")
def child() -> Iterator[Worker]:
    """One child for all that is only read or refused; it never runs a model, for that would change its torch."""
    root = tempfile.gettempdir()
    with Worker(replace(TORCH, reads=(root,), writes=(root,))) as worker:
        yield worker


@pytest.fixture(autouse=True)
def _inspected_in_one_child(child: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "Worker", lambda *_, **__: nullcontext(child))


@pytest.fixture(scope="module")
def module() -> Any:
    return make()


@pytest.fixture(scope="module")
def program(module: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("torch") / "small.pt2"
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    inputs = {"input_ids": torch.tensor(IDS), "attention_mask": torch.tensor(MASK)}
    exported = torch.export.export(module, (), inputs, dynamic_shapes=dict.fromkeys(inputs, axes))
    torch.export.save(exported, path)
    return path


@pytest.fixture(scope="module")
def script(module: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("torch") / "small.pt"
    torch.jit.trace(module, (torch.tensor(IDS), torch.tensor(MASK)), strict=False).save(path)
    return path


def load(worker: Worker, path: Path, kind: str, shape: Any, **changes: Any) -> dict[str, Any]:
    request: dict[str, Any] = {
        "groups": [[]], "layout": "each", "threads": 1, "cores": 1, "scheduler": "single_stream",
        "pinning": "none", "batch_size": 1, "options": {}, "outputs": [],
        "shapes": {"input_ids": list(shape), "attention_mask": list(shape)},
    }  # fmt: skip
    answer: dict[str, Any] = worker.ask("load", model=str(path), kind=kind, **{**request, **changes}).data
    return answer["settings"]  # type: ignore[no-any-return]


def eager(module: Any, ids: Any, mask: Any) -> dict[str, Any]:
    with torch.no_grad():
        return {name: one.numpy() for name, one in module(torch.tensor(ids), torch.tensor(mask)).items()}


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


OTHER_IDS, OTHER_MASK = np.full((3, 9), 7), np.ones((3, 9), np.int64)
#: What is loaded, with which options, for which of the two sets of inputs.
COMPUTED: dict[str, tuple[str, dict[str, str], int]] = {
    "program": ("torch-export", {}, 0),
    "program, plain call": ("torch-export", {"plain_call": "1"}, 0),
    "program, another batch and length": ("torch-export", {}, 1),
    "script": ("torchscript", {}, 0),
    "script, frozen": ("torchscript", {"freeze": "1"}, 0),
}


@pytest.fixture(scope="module")
def computed(program: Path, script: Path) -> dict[str, dict[str, Any]]:
    """What each of them makes of its inputs; all are loaded before any of them runs."""
    sets = ((IDS, MASK), (OTHER_IDS, OTHER_MASK))
    root = tempfile.gettempdir()
    with Worker(replace(TORCH, reads=(root,), writes=(root,))) as worker:
        for kind, options, number in COMPUTED.values():
            path = program if kind == "torch-export" else script
            load(worker, path, kind, sets[number][0].shape, options=options)
        for ids, mask in sets:
            heads, blocks = protocol.pack_arrays({"input_ids": ids, "attention_mask": mask})
            worker.ask("inputs", blocks, arrays=heads)
        return {
            name: worker.ask("infer", stream=stream, set=number).arrays()
            for stream, (name, (_, _, number)) in enumerate(COMPUTED.items())
        }


@pytest.mark.parametrize("name", ["program", "program, plain call", "script", "script, frozen"])
def test_it_computes_what_the_module_computes(module: Any, computed: dict[str, dict[str, Any]], name: str) -> None:
    assert_equal(computed[name], eager(module, IDS, MASK))


def test_a_program_takes_another_batch_and_length(module: Any, computed: dict[str, dict[str, Any]]) -> None:
    assert_equal(computed["program, another batch and length"], eager(module, OTHER_IDS, OTHER_MASK))


def test_streams_share_one_module(program: Path) -> None:
    with Worker(TORCH) as worker:
        settings = load(
            worker, program, "torch-export", IDS.shape, groups=[[], []], layout="one", scheduler="elastic"
        )
        heads, blocks = protocol.pack_arrays({"input_ids": IDS, "attention_mask": MASK})
        worker.ask("inputs", blocks, arrays=heads)
        taken = worker.ask("slice", start_ns=0, seconds=0.05, expected=None, most=MOST_SAMPLES, watch=[]).blocks
    assert settings == {
        "mode": "eager", "freeze": 0, "plain_call": 0, "intra_op_num_threads": 1, "inter_op_num_threads": 1,
        "mkldnn": 1,
    }  # fmt: skip
    assert len(taken) == 4
    assert all(taken)


def test_a_buffer_that_the_program_changes_is_changed(tmp_path: Path) -> None:
    class Counter(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, input_ids: Any) -> Any:
            self.count.add_(1)
            return input_ids + self.count

    path = tmp_path / "counter.pt2"
    torch.export.save(torch.export.export(Counter(), (torch.zeros(1),)), path)
    with Worker(TORCH) as worker:
        load(worker, path, "torch-export", [1], shapes={"input_ids": [1]})
        heads, blocks = protocol.pack_arrays({"input_ids": np.zeros(1, np.float32)})
        worker.ask("inputs", blocks, arrays=heads)
        found = [worker.ask("infer", stream=0, set=0).arrays()["0"].tolist() for _ in range(3)]
    assert found == [[1.0], [2.0], [3.0]]


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        ("torchscript", {"mode": "compile"}, "mode=compile is for torch.export programs"),
        ("torch-export", {"freeze": "1"}, "freeze is for TorchScript"),
        ("torch-export", {"mode": "fast"}, "mode=fast is not possible; mode takes eager, compile"),
    ],
)
def test_an_option_that_does_not_fit_is_refused(
    child: Worker, program: Path, script: Path, kind: str, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        load(child, program if kind == "torch-export" else script, kind, [2, 6], options=options)


def test_compiling_without_a_compiler_is_refused(program: Path, tmp_path: Path) -> None:
    bare = Launch("torch", TORCH.reference, environment={"PATH": str(tmp_path), "CXX": ""})
    with Worker(bare) as worker, pytest.raises(BadInput, match="needs a C\\+\\+ compiler"):
        load(worker, program, "torch-export", [2, 6], options={"mode": "compile"})


def test_a_shape_that_the_program_fixes_is_refused(child: Worker, tmp_path: Path) -> None:
    path = tmp_path / "fixed.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),)), path)
    with pytest.raises(BadInput, match="exported with 2 in dimension 0 of 'input', so 5"):
        load(child, path, "torch-export", [], shapes={"input": [5, 4]})


def test_a_program_is_inspected(program: Path) -> None:
    model = inspect_foreign(program, "torch-export", "small.pt2")
    assert model.inputs == (
        TensorSpec("input_ids", "int64", ("batch", "sequence"), below=20),
        TensorSpec("attention_mask", "int64", ("batch", "sequence")),
    )
    assert model.outputs == (
        TensorSpec("hidden", "float32", ("batch", "sequence", 4)),
        TensorSpec("pooled", "float32", ("batch", 4)),
    )
    assert (model.parameters, model.zero_fraction, model.precision) == (196, 32 / 192, "FP32")
    assert model.size_bytes == program.stat().st_size


def test_torchscript_is_inspected_as_far_as_it_tells(script: Path) -> None:
    model = inspect_foreign(script, "torchscript", "small.pt")
    assert model.inputs == (
        TensorSpec("input_ids", "int64", None, below=20),
        TensorSpec("attention_mask", "int64", None, below=20),
    )
    assert (model.parameters, model.precision) == (196, "FP32")


def test_weights_alone_are_no_torchscript(module: Any, tmp_path: Path) -> None:
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    with pytest.raises(BadInput, match="is not a TorchScript file but weights or a pickled module"):
        inspect_foreign(tmp_path / "weights.pt", "torchscript", "weights.pt")


@pytest.mark.parametrize("kind", ["torch-export", "torchscript"])
def test_a_file_that_torch_did_not_save_is_bad_input(kind: Any, tmp_path: Path) -> None:
    (tmp_path / "model.pt2").write_bytes(b"something else")
    with pytest.raises(BadInput, match="is not a file that torch saved"):
        inspect_foreign(tmp_path / "model.pt2", kind, "model.pt2")


class _Harmful:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.trace),)


def _pickled_sample(name: str, data: bytes, trace: Path) -> bytes:
    return pickle.dumps(_Harmful(trace)) if name.endswith("sample_inputs/model.pt") else data


def _pickled_constant(name: str, data: bytes, trace: Path) -> bytes:
    if not name.endswith("constants_config.json"):
        return data
    payload = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    return json.dumps({"config": {"harm": payload}}).encode()


def _expression(name: str, data: bytes, trace: Path) -> bytes:
    if not name.endswith("models/model.json"):
        return data
    program = json.loads(data)
    program["guards_code"] = [f"__import__('os').mkdir({str(trace)!r}) is None"]
    return json.dumps(program).encode()


@pytest.mark.parametrize("harm", [_pickled_sample, _pickled_constant, _expression])
def test_code_in_a_program_is_not_run(
    child: Worker, harm: Callable[[str, bytes, Path], bytes], program: Path, tmp_path: Path
) -> None:
    trace, harmful = tmp_path / "trace", tmp_path / "harmful.pt2"
    with zipfile.ZipFile(program) as old, zipfile.ZipFile(harmful, "w") as new:
        for name in old.namelist():
            new.writestr(name, harm(name, old.read(name), trace))
        new.writestr("small/data/constants/opaque_obj_0", pickle.dumps(_Harmful(trace)))
    with pytest.raises(BadInput, match=r"which is not read|nothing that torch.export writes"):
        inspect_foreign(harmful, "torch-export", "harmful.pt2")
    with pytest.raises(BadInput):
        load(child, harmful, "torch-export", [2, 6])
    assert not trace.exists()


@pytest.mark.new_processes
def test_an_abort_is_told_by_its_signal(script: Path) -> None:
    with Worker(TORCH) as worker:
        load(worker, script, "torchscript", [2, 6])
        os.kill(worker._process.pid, signal.SIGABRT)
        with pytest.raises(EngineFailed, match=r"Engine 'torch' died .* SIGABRT"):
            worker.ask("infer", stream=0, set=0)
