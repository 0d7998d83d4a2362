"""Real, trained models and every opset from 7 to 24: what is read is right, and what is made for them runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferlab.child import protocol
from inferlab.model.inputs import make_inputs
from inferlab.model.onnx_file import read_onnx, rewrite
from inferlab.model.shapes import ResolvedShapes, resolve
from inferlab.records import Model
from inferlab.worker import Launch, Worker
from tests.helpers.real_models import one

ONNXRUNTIME = Launch("onnxruntime", {"builtin": "onnxruntime", "class": "OnnxRuntime"})

FILES = {
    "magika": ("magika", ".onnx"),
    "silero": ("silero_vad", "/silero_vad.onnx"),
    "silero_op15": ("silero_vad", "_16k_op15.onnx"),
    "silero_sequence": ("silero_vad", "_16k_sequence.onnx"),
    "silero_half": ("silero_vad", "_half.onnx"),
    "silero_ifless": ("silero_vad", "_op18_ifless.onnx"),
    "silero_openvino": ("silero_vad", "_openvino_16k.onnx"),
    "ppocr": ("ppocrv4_det", ".onnx"),
    "pnet": ("mtcnn", "/pnet.onnx"),
    "rnet": ("mtcnn", "/rnet.onnx"),
    "onet": ("mtcnn", "/onet.onnx"),
    "mnist": ("mnist_cntk", ".onnx"),
    "minilm": ("minilm_int8", "minilm-l6/model_quantized.onnx"),
    "tiny_ner": ("minilm_int8", "bert-tiny-ner/model.onnx"),
    "g2p": ("g2p_bert", ".onnx"),
}
# Voice detectors look at windows of 256 samples and more.
LENGTHS = dict.fromkeys(["silero", "silero_op15", "silero_half", "silero_ifless"], 512)
DYNAMIC = ["magika", "silero", "silero_op15", "silero_half", "silero_ifless", "ppocr", "rnet", "onet", "minilm",
           "tiny_ner", "g2p"]  # fmt: skip


def real(name: str) -> Model:
    path = one(*FILES[name])
    return read_onnx(path, str(path))


def run(path: Path, model: Model, resolved: ResolvedShapes) -> dict[str, Any]:
    arrays = make_inputs(model.inputs, resolved.shapes, seed=0)
    heads, blocks = protocol.pack_arrays(arrays)
    with Worker(ONNXRUNTIME) as worker:
        worker.ask(
            "load", model=str(path), kind="onnx", groups=[[]], layout="each", threads=1, cores=1,
            scheduler="single_stream", pinning="none", batch_size=resolved.batch_size, options={},
            shapes={name: list(shape) for name, shape in resolved.shapes.items()},
            outputs=[spec.name for spec in model.outputs],
        )  # fmt: skip
        worker.ask("inputs", blocks, arrays=heads)
        return worker.ask("infer", stream=0, set=0).arrays()


# What they are


@pytest.mark.parametrize(
    ("name", "opset", "parameters", "precision", "quantization"),
    [
        ("magika", 15, 784_492, "FP32", ""),
        ("silero", 16, 545_282, "FP32", ""),
        ("silero_ifless", 18, 545_670, "FP32", ""),
        ("ppocr", 12, 1_171_745, "FP32", ""),
        ("pnet", 11, 6_632, "FP32", ""),
        ("mnist", 8, 5_994, "FP32", ""),
        ("minilm", 14, 22_606_854, "INT8", "integer operators"),
        ("tiny_ner", 14, 14_277_508, "INT8", "integer operators"),
        ("g2p", 13, 309_796, "FP32", ""),
    ],
)
def test_real_models_are_read(name: str, opset: int, parameters: int, precision: str, quantization: str) -> None:
    model = real(name)
    assert (model.opset, model.parameters) == (opset, parameters)
    assert (model.precision, model.quantization, model.random) == (precision, quantization, False)
    assert model.zero_fraction is not None
    assert model.zero_fraction < 0.02


def test_the_initializers_that_an_old_model_lists_are_no_inputs() -> None:
    assert [(spec.name, spec.dims) for spec in real("mnist").inputs] == [("Input3", (1, 1, 28, 28))]


def test_a_sampling_rate_is_a_scalar_with_a_known_value() -> None:
    rate = real("silero").inputs[2]
    assert (rate.name, rate.dims, rate.known_values) == ("sr", (), (16000,))
    assert real("silero").inputs[1].dims == (2, None, 128)


def test_tokens_stay_below_the_rows_of_a_quantised_table() -> None:
    for name in ("minilm", "tiny_ner"):
        assert [spec.below for spec in real(name).inputs] == [30522, None, 2]
    assert real("g2p").inputs[0].below == 32


def test_a_one_hot_that_jax_wrote_out_bounds_the_bytes() -> None:
    assert real("magika").inputs[0].below == 257


# What they are fed


@pytest.mark.parametrize("name", FILES)
def test_onnxruntime_runs_what_is_made_for_a_real_model(name: str) -> None:
    model = real(name)
    resolved = resolve(model.inputs, None, LENGTHS.get(name), {})
    outputs = run(Path(model.path), model, resolved)
    assert resolved.batch_size == 1
    assert set(outputs) == {spec.name for spec in model.outputs}
    assert all(np.isfinite(array).all() for array in outputs.values())


@pytest.mark.parametrize("name", DYNAMIC)
def test_onnxruntime_runs_a_real_model_with_a_batch_of_three(name: str) -> None:
    model = real(name)
    resolved = resolve(model.inputs, 3, LENGTHS.get(name), {})
    assert resolved.rewrite_batch is None
    outputs = run(Path(model.path), model, resolved)
    assert outputs[model.outputs[0].name].shape[0] == 3


def test_a_fixed_batch_runs_on_a_rewritten_copy(tmp_path: Path) -> None:
    model = real("pnet")
    resolved = resolve(model.inputs, 3, None, {})
    assert resolved.rewrite_batch == (1, 3)
    copy = rewrite(model, tmp_path, resolved.rewrite_batch, None, copy_data=False)
    assert run(copy, model, resolved)["output1"].shape == (3, 4, 107, 107)


@pytest.mark.parametrize("copied", [False, True])
def test_onnxruntime_finds_the_data_beside_a_copy(tmp_path: Path, copied: bool) -> None:
    folder = tmp_path / "original"
    folder.mkdir()
    (folder / "w.bin").write_bytes(np.full((4, 2), 0.5, "<f4").tobytes())
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    x = helper.make_tensor_value_info("mask", TensorProto.FLOAT, (1, 4))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 2))
    graph = helper.make_graph([helper.make_node("MatMul", ["mask", "w"], ["y"])], "g", [x], [y], [tensor])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "model.onnx").write_bytes(made.SerializeToString())
    model = read_onnx(folder / "model.onnx", "")
    resolved = resolve(model.inputs, 2, None, {})
    copy = rewrite(model, tmp_path / "copy", resolved.rewrite_batch, 7, copied)
    assert run(copy, model, resolved)["y"].tolist() == [[2, 2], [2, 2]]


# Every opset


@pytest.mark.parametrize("opset", range(7, 25))
def test_a_model_of_every_opset_is_read_and_run(tmp_path: Path, opset: int) -> None:
    table = numpy_helper.from_array(np.full((5, 4), 0.25, "f"), "table")
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Relu", ["rows"], ["positive"]),
        helper.make_node("Mul", ["positive", "scale"], ["y"]),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ("batch", "sequence"))
    scale = helper.make_tensor_value_info("scale", TensorProto.FLOAT, ())
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ("batch", "sequence", 4))
    listed = [helper.make_tensor_value_info("table", TensorProto.FLOAT, (5, 4))] if opset < 9 else []
    graph = helper.make_graph(nodes, "g", [ids, scale, *listed], [y], [table])
    imports = [helper.make_opsetid("", opset)]
    made = helper.make_model(graph, opset_imports=imports)
    made.ir_version = helper.find_min_ir_version_for(imports)
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    model = read_onnx(path, "")
    assert (model.opset, model.parameters, [spec.name for spec in model.inputs]) == (opset, 20, ["ids", "scale"])
    assert model.inputs[0].below == 5
    resolved = resolve(model.inputs, 3, 6, {})
    assert resolved.shapes == {"ids": (3, 6), "scale": ()}
    outputs = run(path, model, resolved)
    assert outputs["y"].shape == (3, 6, 4)
    assert 0 < outputs["y"].max() <= 0.25
