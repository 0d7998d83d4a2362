"""GGUF files and folders of language models: what is read of them, and what is refused."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferlab.errors import BadInput
from inferlab.model import reading
from inferlab.model.confined import in_this_process
from inferlab.model.generative import read_generative
from inferlab.model.generative_files import read_gguf, write_gguf
from inferlab.model.reading import read_model
from inferlab.records.generation import TensorGroup

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 32,
    "max_position_embeddings": 128,
    "vocab_size": 64,
}


@pytest.fixture(scope="module")
def tiny() -> Path:
    return reading.build_demo("llama_tiny")


def written(path: Path, metadata: dict[str, Any]) -> Path:
    with path.open("wb") as file:
        write_gguf(file, metadata, {"token_embd.weight": np.ones((8, 4), np.float32)})
    return path


def folder(
    path: Path, config: dict[str, Any], shapes: dict[str, tuple[str, list[int], int]] | None = None
) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    header, end = {}, 0
    for name, (dtype, shape, size_bytes) in (shapes or {"a": ("BF16", [64, 32], 4096)}).items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size_bytes]}
        end += size_bytes
    text = json.dumps(header).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))
    return path


def refusal(source: object) -> str:
    with pytest.raises(BadInput) as refused:
        read_generative(str(source))
    return str(refused.value)


def test_what_a_gguf_file_is_is_read_without_an_engine(tiny: Path) -> None:
    model = read_generative("demo:llama_tiny")
    assert (model.kind, model.architecture, model.precision) == ("gguf", "llama", "F32")
    assert (model.layers, model.heads, model.kv_heads, model.context, model.vocabulary) == (2, 4, 2, 2048, 256)
    # 2 layers, 2 heads of 16 numbers, keys and values.
    assert model.kv_values_per_token == 2 * 2 * 16 * 2
    assert (model.kv_bytes_per_token(), model.kv_bytes_per_token(4.0)) == (256.0, 512.0)
    assert model.tensors == (TensorGroup("F32", 21, 106816, 4 * 106816),)
    assert (model.parameters, model.size_bytes) == (106816, tiny.stat().st_size)


def test_the_built_in_model_is_the_same_each_time(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    assert reading.build_demo("llama_tiny").read_bytes() == tiny.read_bytes()


def test_a_file_that_is_cut_off_anywhere_is_refused_in_one_sentence(tiny: Path, tmp_path: Path) -> None:
    whole, cut = tiny.read_bytes(), tmp_path / "cut.gguf"
    assert len(read_gguf(tiny).tensors) == 21
    with in_this_process():
        for length in [*range(4, 400, 7), 1000, 1500, len(whole) // 2, len(whole) - 40]:
            cut.write_bytes(whole[:length])
            assert refusal(cut) == f"{cut} cannot be read: it is cut off. Copy or download it again."
    # The same in the process of its own in which models are read.
    assert refusal(cut) == f"{cut} cannot be read: it is cut off. Copy or download it again."


def test_a_damaged_header_never_raises_anything_else(tiny: Path, tmp_path: Path) -> None:
    generator, whole, file = np.random.default_rng(0), tiny.read_bytes(), tmp_path / "damaged.gguf"
    with in_this_process():
        for _ in range(200):
            content = bytearray(whole)
            for place in generator.integers(4, 1500, 3):
                content[place] = generator.integers(0, 256)
            file.write_bytes(content)
            try:
                read_generative(str(file))
            except BadInput as error:
                assert str(error).count("\n") == 0


def test_other_files_and_versions_are_refused(tmp_path: Path) -> None:
    wrong, old = tmp_path / "wrong.gguf", tmp_path / "old.gguf"
    wrong.write_bytes(b"GGML" + bytes(100))
    old.write_bytes(b"GGUF" + struct.pack("<IQQ", 1, 0, 0))
    assert refusal(wrong) == f"{wrong} is not a GGUF file, or it is damaged: it does not begin as one."
    assert refusal(old) == f"{old} is a GGUF file of version 1; versions 2 and 3 can be read."
    assert refusal("demo:digits") == (
        "demo:digits cannot generate: digits.onnx has no input input_ids. A model that is one call is measured "
        "with: inferlab benchmark"
    )


def test_a_file_that_is_no_language_model_is_refused_by_its_architecture(tmp_path: Path) -> None:
    nameless = written(tmp_path / "nameless.gguf", {"general.name": "x"})
    assert refusal(nameless) == f"{nameless} is a GGUF file that names no architecture, so it cannot be loaded."
    clip = written(tmp_path / "clip.gguf", {"general.architecture": "clip", "clip.block_count": 2})
    assert refusal(clip) == (
        f"{clip} is a GGUF file of the architecture 'clip', which is no language model that inferlab knows: it "
        "has no clip.embedding_length."
    )


def test_a_gguf_file_is_not_benchmarked_but_generated_with(tiny: Path) -> None:
    with pytest.raises(BadInput) as refused:
        read_model("demo:llama_tiny")
    assert str(refused.value) == (
        "demo:llama_tiny is a GGUF file, which generates tokens. Measure it with: inferlab generate "
        "demo:llama_tiny"
    )


def test_tensors_of_several_types_are_counted_each(tmp_path: Path) -> None:
    shapes = {"a": ("BF16", [64, 32], 4096), "b": ("F32", [32], 128), "c": ("F32", [8], 32)}
    model = read_generative(str(folder(tmp_path / "model", CONFIG, shapes)))
    assert (model.kind, model.architecture, model.precision) == ("transformers", "LlamaForCausalLM", "BF16")
    assert (model.layers, model.heads, model.kv_heads, model.context, model.vocabulary) == (3, 4, 2, 128, 64)
    assert model.kv_values_per_token == 3 * 2 * 8 * 2
    assert model.tensors == (TensorGroup("BF16", 1, 2048, 4096), TensorGroup("F32", 2, 40, 160))


def test_folders_that_do_not_generate_or_are_damaged_are_refused(tmp_path: Path) -> None:
    bert = folder(tmp_path / "bert", {**CONFIG, "architectures": ["BertForMaskedLM"]})
    whisper = folder(tmp_path / "w", {**CONFIG, "architectures": ["WhisperModel"], "is_encoder_decoder": True})
    partial = folder(tmp_path / "partial", {key: value for key, value in CONFIG.items() if key != "vocab_size"})
    cut = folder(tmp_path / "cut", CONFIG)
    weights = cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert refusal(bert) == (
        f"{bert} is a BertForMaskedLM, which does not generate text. Measure it with: inferlab benchmark"
    )
    assert refusal(whisper) == (
        f"{whisper} is a WhisperModel, which does not generate text. Measure it with: inferlab benchmark"
    )
    assert refusal(partial) == f"{partial} cannot be read: its config.json has no vocab_size."
    assert refusal(cut) == f"{weights} cannot be read: it is cut off or damaged (a tensor lies beyond its end)."


def test_what_is_written_is_read_again() -> None:
    file = io.BytesIO()
    write_gguf(
        file, {"a": "text", "b": 7, "c": 0.5}, {"w": np.zeros((2, 3), np.float32), "v": np.ones(5, np.float32)}
    )
    # Every tensor begins at a multiple of 32 bytes.
    assert len(file.getvalue()) % 32 == 0
    assert file.getvalue().endswith(np.ones(5, "<f4").tobytes() + bytes(12))
