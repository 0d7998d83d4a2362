"""Small BERTs, made once for all tests: FP32 and INT8 folders and their ONNX files."""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from inferlab.transformers import Quantized

DOCS = Path(__file__).parents[2] / "docs/transformers.md"

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
    """The INT8 copy of that folder, made by the documentation's example."""
    (code,) = [
        one for one in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.S) if "import quantize" in one
    ]
    names: dict[str, Any] = {"fp32": fp32()}
    printed = io.StringIO()
    with contextlib.chdir(folder()), contextlib.redirect_stdout(printed):
        exec(code, names)
    # Two layers of six linear layers, the pooler, the head and three tables.
    assert printed.getvalue() == f"{2 * 6 + 2 + 3} True True\n"
    copy: Quantized = names["quantized"]
    return copy


def int8() -> Path:
    """The folder of the INT8 copy."""
    return folder() / quantized().path


@functools.cache
def onnx_files() -> tuple[Path, Path]:
    """fp32.onnx and int8.onnx."""
    from onnxruntime.quantization import quantize_dynamic

    from inferlab import export_to_onnx

    files = folder() / "fp32.onnx", folder() / "int8.onnx"
    export_to_onnx(fp32(), files[0], opset=14, exporter="torchscript")
    quantize_dynamic(*files)
    return files
