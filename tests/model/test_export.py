"""Exporting to ONNX: what is written computes what eager PyTorch computes, for other sizes too."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner

from inferlab.cli.export import command
from inferlab.errors import BadInput, EngineFailed
from inferlab.model.export import WrongExport, export_to_onnx
from inferlab.model.reading import need_torch
from inferlab.records import Event, TensorSpec
from inferlab.worker import Launch, Worker

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEXT = ("input_ids", "attention_mask", "token_type_ids")


@pytest.fixture(scope="module")
def child() -> Iterator[Worker]:
    root = tempfile.gettempdir()
    with Worker(replace(need_torch(), reads=(root,), writes=(root,))) as worker:
        yield worker


@pytest.fixture(autouse=True)
def _one_child(child: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """All exports in one child, unless a test says otherwise: it imports torch and transformers for seconds."""
    monkeypatch.setattr("inferlab.worker.Worker", lambda *_, **__: nullcontext(child))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as Hugging Face saves it: a BERT of one small layer with random weights."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=40, num_labels=3,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("bert")
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.fixture
def module() -> Any:
    class Scaled(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)
            self.drop = torch.nn.Dropout(0.5)

        def forward(self, x: Any, scale: Any) -> Any:
            return self.drop(self.layer(x)) * scale

    torch.manual_seed(0)
    return Scaled()


def onnx_run(path: Path, inputs: dict[str, Any]) -> list[Any]:
    return list(onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, inputs))


@pytest.mark.parametrize(
    ("options", "exporter", "opset"),
    [({}, "torchscript", 17), ({"opset": 14}, "torchscript", 14), ({"exporter": "dynamo"}, "dynamo", 18)],
)
def test_a_bert_folder_becomes_onnx_with_free_batch_and_sequence(
    bert: Path, tmp_path: Path, options: dict[str, Any], exporter: str, opset: int
) -> None:
    out = tmp_path / "bert.onnx"
    exported = export_to_onnx(bert, out, **options)
    assert exported.inputs == tuple(TensorSpec(name, "int64", ("batch", "sequence")) for name in TEXT)
    assert exported.outputs == (TensorSpec("logits", "float32", ("batch", 3)),)
    assert (exported.path, exported.exporter, exported.opset) == (str(out), exporter, opset)
    assert exported.precision == "FP32"
    assert exported.error < 1e-5
    assert exported.size_bytes == out.stat().st_size
    assert [one.version for one in onnx.load(out).opset_import if not one.domain] == [opset]

    ids = np.random.default_rng(0).integers(0, 50, (5, 11))
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    eager = transformers.BertForSequenceClassification.from_pretrained(bert).eval()
    with torch.no_grad():
        expected = eager(**{name: torch.tensor(value) for name, value in inputs.items()}).logits.numpy()
    np.testing.assert_allclose(onnx_run(out, inputs)[0], expected, rtol=1e-4, atol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["bert.onnx"]


def test_openvino_reads_what_was_exported(bert: Path, tmp_path: Path) -> None:
    out = tmp_path / "bert.onnx"
    export_to_onnx(bert, out)
    with Worker(Launch("openvino", {"builtin": "openvino", "class": "OpenVino"})) as worker:
        found = worker.ask("inspect", model=str(out), kind="onnx").data["model"]
    assert sorted(one["name"] for one in found["inputs"]) == sorted(TEXT)
    assert found["inputs"][0]["dims"] == [None, None]


def test_sizes_can_be_fixed(bert: Path, tmp_path: Path) -> None:
    exported = export_to_onnx(bert, tmp_path / "bert.onnx", dynamic=False, batch_size=1, sequence_length=40)
    assert exported.inputs[0].dims == (1, 40)


def test_an_image_model_has_a_free_batch(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=16,
        patch_size=8,
    )
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    exported = export_to_onnx(tmp_path / "vit", tmp_path / "vit.onnx")
    assert exported.inputs == (TensorSpec("pixel_values", "float32", ("batch", 3, 16, 16)),)


def test_a_module_is_exported_in_evaluation_mode_and_left_as_it_was(module: Any, tmp_path: Path) -> None:
    out = tmp_path / "module.onnx"
    module.train()
    exported = export_to_onnx(module, out, {"x": np.ones((1, 4), np.float32), "scale": torch.ones(1, 1)})
    assert module.training
    assert module.drop.training
    assert exported.inputs == (
        TensorSpec("x", "float32", ("batch", 4)),
        TensorSpec("scale", "float32", ("batch", 1)),
    )
    x, scale = np.eye(4, dtype=np.float32), np.full((4, 1), 2, np.float32)
    with torch.no_grad():
        expected = module.eval()(torch.tensor(x), torch.tensor(scale)).numpy()
    np.testing.assert_allclose(onnx_run(out, {"x": x, "scale": scale})[0], expected, rtol=1e-5, atol=1e-6)


def test_a_module_takes_inputs_in_order(module: Any, tmp_path: Path) -> None:
    inputs = (torch.ones(2, 4), torch.ones(2, 1))
    exported = export_to_onnx(module, tmp_path / "module.onnx", inputs, dynamic=False)
    assert [(one.name, one.dims) for one in exported.inputs] == [("x", (2, 4)), ("scale", (2, 1))]
    assert exported.outputs == (TensorSpec("output", "float32", (2, 3)),)


@pytest.mark.parametrize("exporter", ["auto", "torchscript"])
def test_a_program_is_exported_by_either_exporter(module: Any, tmp_path: Path, exporter: Any) -> None:
    batch = torch.export.Dim("batch")
    program = torch.export.export(
        module.eval(), (torch.ones(2, 4), torch.ones(2, 1)), dynamic_shapes=({0: batch}, {0: batch})
    )
    torch.export.save(program, tmp_path / "module.pt2")
    exported = export_to_onnx(tmp_path / "module.pt2", tmp_path / "module.onnx", exporter=exporter)
    assert exported.inputs[0].dims == ("batch", 4)
    x, scale = np.ones((7, 4), np.float32), np.ones((7, 1), np.float32)
    assert onnx_run(tmp_path / "module.onnx", {"x": x, "scale": scale})[0].shape == (7, 3)


def test_torchscript_is_exported_with_an_example(module: Any, tmp_path: Path) -> None:
    path, out = tmp_path / "module.pt", tmp_path / "module.onnx"
    torch.jit.trace(module.eval(), (torch.ones(2, 4), torch.ones(2, 1))).save(path)
    with pytest.raises(BadInput, match="does not say what shape its input 'x' has"):
        export_to_onnx(path, out)
    example = {"x": np.ones((2, 4), np.float32), "scale": np.ones((2, 1), np.float32)}
    exported = export_to_onnx(path, out, example)
    assert exported.inputs[0] == TensorSpec("x", "float32", ("batch", 4))


def test_an_error_above_the_tolerance_leaves_no_file(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(WrongExport, match="gives other outputs than eager PyTorch"):
        export_to_onnx(bert, tmp_path / "bert.onnx", tolerance=0.0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.new_processes
def test_an_abort_leaves_no_file(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Aborting(Worker):
        def send(self, do: str, *args: Any, **data: Any) -> None:
            super().send(do, *args, **data)
            if do == "task":
                os.kill(self._process.pid, signal.SIGABRT)

    monkeypatch.setattr("inferlab.worker.Worker", Aborting)
    with pytest.raises(EngineFailed, match="SIGABRT"):
        export_to_onnx(bert, tmp_path / "bert.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_there_stays_when_the_export_fails(bert: Path, tmp_path: Path) -> None:
    out = tmp_path / "bert.onnx"
    out.write_bytes(b"older")
    with pytest.raises(BadInput, match="at most 40"):
        export_to_onnx(bert, out, sequence_length=41)
    assert out.read_bytes() == b"older"


def test_an_opset_that_the_exporter_cannot_write_is_refused(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="opset 14 was asked for"):
        export_to_onnx(bert, tmp_path / "bert.onnx", exporter="dynamo", opset=14)


def test_weights_that_need_unpickling_are_refused(bert: Path, tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "trace"),)

    folder = tmp_path / "pickled"
    folder.mkdir()
    (folder / "config.json").write_text((bert / "config.json").read_text())
    torch.save({"weights": Harmful()}, folder / "pytorch_model.bin")
    with pytest.raises(BadInput, match="cannot be loaded"):
        export_to_onnx(folder, tmp_path / "out.onnx")
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("source", "out", "sentence"),
    [
        ("nothing", "out.onnx", "does not exist. Give a Hugging Face folder"),
        (".", "out.onnx", "has no config.json"),
        ("text.txt", "out.onnx", "is not a model to export"),
        ("wrong.pt2", "out.onnx", "is not a file that torch saved"),
        ("wrong.pt2", "missing/out.onnx", "missing does not exist. Make it first"),
        ("wrong.pt2", "out.bin", "must end in .onnx"),
    ],
)
def test_bad_input_gets_a_sentence(tmp_path: Path, source: str, out: str, sentence: str) -> None:
    (tmp_path / "text.txt").write_text("text")
    (tmp_path / "wrong.pt2").write_text("text")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BadInput, match=sentence):
        export_to_onnx(tmp_path / source, tmp_path / out)
    assert sorted(tmp_path.iterdir()) == before


def test_a_module_without_inputs_gets_a_sentence(module: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="needs example inputs"):
        export_to_onnx(module, tmp_path / "out.onnx")
    with pytest.raises(BadInput, match="A dict cannot be exported"):
        export_to_onnx({}, tmp_path / "out.onnx")


def test_the_listener_hears_what_is_exported(bert: Path, tmp_path: Path) -> None:
    heard: list[Event] = []
    export_to_onnx(bert, tmp_path / "bert.onnx", listener=heard.append)
    assert [event.code for event in heard] == ["exporting"]


def test_the_command_says_what_it_wrote_and_what_comes_next(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inferlab.worker.Worker", Worker)  # in a process of its own, as a user has it
    out = tmp_path / "bert.onnx"
    result = CliRunner().invoke(command, [str(bert), "-o", str(out), "--opset", "14"], catch_exceptions=False)
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"Written: {out} (")
    assert lines[1] == "Opset: 14 (torchscript exporter), FP32"
    assert lines[2].startswith("Inputs: input_ids int64[batch, sequence], attention_mask")
    assert lines[3] == "Outputs: logits float32[batch, 3]"
    assert lines[4].startswith("Largest relative error against eager PyTorch: ")
    assert lines[5] == f"Next: inferlab benchmark {out}"
