from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from inferlab.errors import BadInput
from inferlab.model import reading
from inferlab.records import Event

Arrays = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERLAB_CACHE", str(cache))


def _inputs(model: onnx.ModelProto, seed: int, batch: int, sequence: int) -> Arrays:
    random = np.random.default_rng(seed)
    made: Arrays = {}
    for one in model.graph.input:
        named = {"batch": batch, "sequence": sequence}
        shape = [named.get(dim.dim_param, dim.dim_value) for dim in one.type.tensor_type.shape.dim]
        if one.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            made[one.name] = random.random(shape, dtype=np.float32)
        elif one.name == "input_ids":
            made[one.name] = random.integers(0, 30522, shape)
        else:
            made[one.name] = np.full(shape, int(one.name == "attention_mask"))
    return made


# In a process of its own, as everywhere: importing onnxruntime starts threads.
_RUNNER = """
import sys
import numpy as np
import onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
names = [one.name for one in session.get_outputs()]
for path in sys.argv[2:]:
    np.savez(path + ".out.npz", **dict(zip(names, session.run(names, dict(np.load(path))))))
"""


def _run(path: Path, sets: list[Arrays], folder: Path) -> list[Arrays]:
    """What ONNX Runtime makes of each set of inputs."""
    files = [str(folder / f"{index}.npz") for index in range(len(sets))]
    for file, inputs in zip(files, sets, strict=True):
        np.savez(file, **inputs)  # type: ignore[arg-type]
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
    subprocess.run([sys.executable, "-c", _RUNNER, str(path), *files], check=True, env=environment)
    return [dict(np.load(f"{file}.out.npz")) for file in files]


def _parameters(model: onnx.ModelProto) -> int:
    floats = (one for one in model.graph.initializer if one.data_type == onnx.TensorProto.FLOAT)
    return sum(int(np.prod(one.dims)) for one in floats)


# BatchNormalization, two parameters a channel, is folded into one bias a channel.
@pytest.mark.parametrize(
    ("name", "published", "here"),
    [
        ("mobilenet_v1", 4_231_976, 4_221_032),
        ("mobilenet_v2", 3_504_872, 3_487_818),
        ("resnet50", 25_557_032, 25_530_472),
        ("bert_3layer", 17_389_824, 17_389_831),
        ("bert_base", 109_482_240, 109_482_247),
    ],
)
def test_a_published_architecture_has_its_parameters(name: str, published: int, here: int) -> None:
    counted = _parameters(onnx.load(str(reading.build_demo(name))))
    assert counted == here
    assert abs(counted / published - 1) < 0.01


@pytest.mark.parametrize("name", reading.DEMOS)
def test_a_demo_model_is_valid_onnx_that_deepsparse_can_load(name: str) -> None:
    path = reading.build_demo(name)
    onnx.checker.check_model(str(path), full_check=True)
    model = onnx.load(str(path))
    assert model.ir_version == 8
    assert [(one.domain, one.version) for one in model.opset_import] == [("", 13)]


@pytest.mark.parametrize("name", reading.DEMOS)
def test_outputs_are_of_order_one_and_vary_with_the_input(name: str, tmp_path: Path) -> None:
    path = reading.build_demo(name)
    model = onnx.load(str(path))
    sizes = [(1, 384), (4, 16)]
    runs = iter(_run(path, [_inputs(model, seed, *size) for size in sizes for seed in (1, 2)], tmp_path))
    for (batch, _), first, second in zip(sizes, runs, runs, strict=True):
        for output, values in first.items():
            assert values.shape[0] == batch
            assert np.isfinite(values).all()
            size = float(values.std())
            assert 0.1 < size < 10
            assert np.sqrt(np.mean((values - second[output]) ** 2)) > 0.03 * size


def test_a_masked_token_does_not_reach_the_others(tmp_path: Path) -> None:
    path = reading.build_demo("bert_3layer")
    inputs = _inputs(onnx.load(str(path)), 1, 1, 16)
    inputs["attention_mask"][:, 8:] = 0
    other = {**inputs, "input_ids": inputs["input_ids"].copy()}
    other["input_ids"][:, 8:] = 5
    first, second = _run(path, [inputs, other], tmp_path)
    np.testing.assert_allclose(
        first["last_hidden_state"][:, :8], second["last_hidden_state"][:, :8], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    "name", [name for name in reading.DEMOS if name not in ("bert_base", "resnet50", "digits")]
)
def test_two_builds_give_the_same_bytes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = hashlib.sha256(reading.build_demo(name).read_bytes()).hexdigest()
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    assert hashlib.sha256(reading.build_demo(name).read_bytes()).hexdigest() == here


def test_a_model_is_built_once_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    events: list[Event] = []
    path = reading.build_demo("mlp", events.append)
    assert path == tmp_path / "demo" / "mlp-v1.onnx"
    assert [(event.code, event.fraction) for event in events] == [("build", 0.0), ("build", 1.0)]
    assert reading.build_demo("mlp", events.append) == path
    assert len(events) == 2
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_builds_at_the_same_time_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    threads = [threading.Thread(target=reading.build_demo, args=("mobilenet_v2",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.name for one in (tmp_path / "demo").iterdir()] == ["mobilenet_v2-v1.onnx"]


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(BadInput, match=r"^demo:mlp cannot be stored in .*: No space left on device\.$"):
        reading.build_demo("mlp")
    assert list((tmp_path / "demo").iterdir()) == []


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"no built-in model 'mlpp'\. There are: mlp, mlp_medium, mobilenet_v1"):
        reading.build_demo("mlpp")


def test_the_trained_digits_model_recognises_what_it_never_saw() -> None:
    data = np.load(reading.digits_data())
    assert data["image"].shape == (540, 1, 8, 8)
    assert data["image"].dtype == np.float32
    assert (float(data["image"].min()), float(data["image"].max())) == (0.0, 1.0)
    model = ReferenceEvaluator(str(reading.build_demo("digits")))
    (logits,) = model.run(None, {"image": data["image"]})
    assert np.mean(np.asarray(logits).argmax(1) == data["labels"]) >= 0.98
