"""Hugging Face folders on PyTorch: what they compute in FP32 and INT8, what is refused, that no code is run."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferlab.child import protocol
from inferlab.errors import BadInput
from inferlab.lab import Lab, read_model
from inferlab.model.reading import weight_files
from inferlab.records import Plan, TensorSpec
from inferlab.transformers import quantize
from inferlab.worker import Launch, Worker
from tests.helpers import berts

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TORCH = Launch("torch", {"builtin": "torch", "class": "Torch"})
RNG = np.random.default_rng(0)
INPUTS = {
    "input_ids": RNG.integers(0, 1000, (3, 20)),
    "attention_mask": np.array([[1] * 20, [1] * 15 + [0] * 5, [1] * 20]),
    "token_type_ids": RNG.integers(0, 2, (3, 20)),
}


class Loaded:
    """One process for all: importing transformers takes seconds."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._streams = worker, 0
        heads, blocks = protocol.pack_arrays(INPUTS)
        worker.ask("inputs", blocks, arrays=heads)

    def run(self, path: Path, length: int = 20, **options: str) -> dict[str, Any]:
        self._worker.ask(
            "load", model=str(path), kind="transformers", groups=[[]], layout="each", threads=1, cores=1,
            scheduler="single_stream", pinning="none", batch_size=1, outputs=[], options=options,
            shapes={name: [3, length] for name in INPUTS},
        )  # fmt: skip
        self._streams += 1
        return self._worker.ask("infer", stream=self._streams - 1, set=0).arrays()

    def quantize(self, folder: Path, out: Path) -> dict[str, Any]:
        out.mkdir()
        arguments = {"source": str(folder), "out": str(out)}
        return self._worker.ask("task", task="torch_models.write_int8", arguments=arguments).data


@pytest.fixture(scope="module")
def loaded() -> Iterator[Loaded]:
    root = tempfile.gettempdir()
    with Worker(replace(TORCH, reads=(root,), writes=(root,))) as worker:
        yield Loaded(worker)


def expected(head: bool = True) -> dict[str, Any]:
    module = transformers.AutoModelForSequenceClassification.from_pretrained(berts.fp32()).eval()
    with torch.no_grad():
        found = (module if head else module.bert)(**{name: torch.tensor(one) for name, one in INPUTS.items()})
    return {name: one.numpy() for name, one in found.items()}


def error(found: Any, right: Any) -> float:
    return float(np.sqrt(np.mean((found - right) ** 2) / np.mean(right**2)))


@pytest.mark.parametrize(("options", "head"), [({}, True), ({"head": "0"}, False), ({"mode": "script"}, True)])
def test_a_folder_computes_what_transformers_computes(loaded: Loaded, options: dict[str, Any], head: bool) -> None:
    found, right = loaded.run(berts.fp32(), **options), expected(head)
    assert list(found) == list(right)
    for name, value in right.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)


def test_an_int8_copy_computes_nearly_the_same_in_every_mode(loaded: Loaded) -> None:
    eager, script, compiled = [
        loaded.run(berts.int8(), mode=mode)["logits"] for mode in ("eager", "script", "compile")
    ]
    assert 1e-4 < error(eager, expected()["logits"]) < 0.1
    np.testing.assert_allclose(script, eager, rtol=1e-4, atol=1e-5)
    assert error(compiled, eager) < 0.02


def test_an_int8_copy_is_a_quarter_of_the_size_and_all_its_layers_are_int8() -> None:
    made = berts.quantized()
    assert made.original_bytes == (berts.fp32() / "model.safetensors").stat().st_size
    assert 0.25 < made.size_bytes / made.original_bytes < 0.28
    assert made.error < 0.1


def test_transformers_does_not_take_an_int8_copy_for_float_weights() -> None:
    with pytest.raises(OSError, match=r"model\.safetensors"):
        transformers.BertForSequenceClassification.from_pretrained(berts.int8())


def test_a_table_that_the_head_shares_is_kept_once(loaded: Loaded, tmp_path: Path) -> None:
    fp32, int8 = tmp_path / "fp32", tmp_path / "int8"
    transformers.BertForMaskedLM(berts.config()).save_pretrained(fp32)
    made = loaded.quantize(fp32, int8)
    # The head's own layer and the one that shares the table, but no pooler.
    assert made["layers"] == 2 * 6 + 2 + 3
    assert made["error"] < 0.1
    sizes = [folder.stat().st_size for folder in (int8 / "model.int8.safetensors", fp32 / "model.safetensors")]
    assert 0.25 < sizes[0] / sizes[1] < 0.28


def test_a_folder_is_inspected() -> None:
    model = read_model(str(berts.fp32()))
    dims = ("batch", "sequence")
    assert model.inputs == (
        TensorSpec("input_ids", "int64", dims, below=1000),
        TensorSpec("attention_mask", "int64", dims),
        TensorSpec("token_type_ids", "int64", dims, below=2),
    )
    assert model.outputs == (TensorSpec("logits", "float32", ("batch", 3)),)
    parameters = sum(
        parameter.numel() for parameter in transformers.AutoModel.from_pretrained(berts.fp32()).parameters()
    )
    assert model.parameters == parameters + 3 * 128 + 3
    assert (model.kind, model.precision) == ("transformers", "FP32")
    assert model.size_bytes == (berts.fp32() / "model.safetensors").stat().st_size


def test_an_int8_copy_is_inspected_as_such() -> None:
    fp32, int8 = read_model(str(berts.fp32())), read_model(str(berts.int8()))
    assert (int8.precision, int8.quantization) == ("INT8", "integer operators")
    assert (int8.inputs, int8.outputs) == (fp32.inputs, fp32.outputs)
    assert int8.digest != fp32.digest


def test_a_folder_is_measured_and_checked_against_eager_torch() -> None:
    plan = Plan(
        str(berts.int8()), ("torch",), ("sync",), sequence_lengths=(16,), time_s=0.1, warmup_s=0.0, processes=1,
        engine_options=(("head", "0"),),
    )  # fmt: skip
    (outcome,) = Lab().benchmark(plan).outcomes
    (done,) = outcome.runs
    assert done.check.status == "match"
    assert done.check.reference.endswith(", eager")
    assert done.settings["head"] == 0
    assert set(done.versions) >= {"torch", "transformers"}
    assert done.peak_memory_bytes > done.baseline_memory_bytes > 0  # type: ignore[operator]


def test_an_engine_for_onnx_says_to_export_the_folder_first() -> None:
    with pytest.raises(BadInput, match="Export it first for other engines: inferlab export"):
        Lab().benchmark(Plan(str(berts.fp32()), ("onnxruntime", "openvino")))


def test_a_sequence_beyond_the_positions_is_refused(loaded: Loaded) -> None:
    with pytest.raises(BadInput, match="a sequence of 129 does not fit; the model takes at most 128"):
        loaded.run(berts.int8(), length=129)


def test_an_option_of_another_kind_of_model_is_refused(loaded: Loaded) -> None:
    with pytest.raises(BadInput, match=r"plain_call is for torch\.export programs"):
        loaded.run(berts.fp32(), plain_call="1")


def copy_of(folder: Path, out: Path, **changes: Any) -> Path:
    out.mkdir()
    config = json.loads((folder / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**config, **changes}))
    for file in weight_files(folder):
        (out / file.name).write_bytes(file.read_bytes())
    return out


def test_folders_that_do_not_fit_together_are_refused(loaded: Loaded, tmp_path: Path) -> None:
    unknown = copy_of(berts.fp32(), tmp_path / "unknown", model_type="nothing")
    with pytest.raises(BadInput, match=r"cannot be loaded: .*nothing"):
        loaded.run(unknown)
    narrow = copy_of(berts.fp32(), tmp_path / "narrow", hidden_size=64)
    with pytest.raises(BadInput, match="cannot be loaded: "):
        loaded.run(narrow)
    cut = copy_of(berts.int8(), tmp_path / "cut")
    file = cut / "model.int8.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(BadInput, match=r"model\.int8\.safetensors cannot be read"):
        loaded.run(cut)
    fewer = copy_of(berts.int8(), tmp_path / "fewer", num_hidden_layers=1)
    with pytest.raises(BadInput, match="which the model in config"):
        loaded.run(fewer)


def test_code_in_a_folder_is_not_run(loaded: Loaded, tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    class Harmful:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(trace),)

    pickled = copy_of(berts.fp32(), tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    torch.save({"bert": Harmful()}, pickled / "pytorch_model.bin")
    own = copy_of(
        berts.fp32(), tmp_path / "own", model_type="mine",
        auto_map={"AutoConfig": "mine.Config", "AutoModel": "mine.Model"},
    )  # fmt: skip
    (own / "mine.py").write_text(f"import os\nos.mkdir({str(trace)!r})\n")
    for folder in (pickled, own):
        with pytest.raises(BadInput, match="cannot be loaded"):
            loaded.run(folder)
    assert not trace.exists()


def test_quantizing_again_or_over_something_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is there already and not empty"):
        quantize(berts.fp32(), berts.folder())
    with pytest.raises(BadInput, match="is an INT8 copy already"):
        quantize(berts.int8(), tmp_path / "again")
    assert list(tmp_path.iterdir()) == []
