"""Small BERTs, made once for all tests: FP32 and INT8 folders and their ONNX files."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any

from inferlab.transformers import Quantized, quantize

#: Hidden size 128, two layers: the shape that every engine of ours runs.
CONFIG = {
    "vocab_size": 1000, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 512, "max_position_embeddings": 128, "num_labels": 3,
}  # fmt: skip


@functools.cache
def folder() -> Path:
    """The folder that they are in, removed when the tests end."""
    made = Path(tempfile.mkdtemp(prefix="inferlab-berts-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def config() -> Any:
    """The configuration of all of them."""
    import transformers

    return transformers.BertConfig(**CONFIG)


@functools.cache
def fp32() -> Path:
    """A folder as Hugging Face saves it."""
    import torch
    import transformers

    torch.manual_seed(0)
    # Weights of ordinary size: those of a fresh model are so small that its outputs hardly depend on its inputs.
    module = transformers.BertForSequenceClassification(config())
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if weight.dim() == 2 and "embeddings" not in name:
                weight.copy_(torch.randn_like(weight) / weight.shape[1] ** 0.5)
    module.save_pretrained(folder() / "bert-fp32")
    return folder() / "bert-fp32"


@functools.cache
def quantized() -> Quantized:
    """The INT8 copy of that folder."""
    return quantize(fp32(), folder() / "bert-int8")


def int8() -> Path:
    """The folder of the INT8 copy."""
    return Path(quantized().path)


@functools.cache
def onnx_files() -> tuple[Path, Path]:
    """fp32.onnx and int8.onnx."""
    from onnxruntime.quantization import quantize_dynamic

    from inferlab import export_to_onnx

    files = folder() / "fp32.onnx", folder() / "int8.onnx"
    export_to_onnx(fp32(), files[0], opset=14, exporter="torchscript")
    quantize_dynamic(*files)
    return files
