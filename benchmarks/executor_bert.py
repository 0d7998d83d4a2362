"""How fast Intel's Neural Engine runs a small BERT in FP32 and INT8, and how exactly, beside the other engines."""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.side_by_side import ratio_text
from inferlab.lab import Lab
from inferlab.records import Plan, Run

_LENGTH = 128
_BERT = {
    "vocab_size": 1000, "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 2,
    "intermediate_size": 512, "max_position_embeddings": _LENGTH, "num_labels": 2,
}  # fmt: skip


def main() -> None:
    """Print a row of a Markdown table for each precision and engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time", type=float, default=60.0, help="seconds for each comparison")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = _models(Path(folder))
        print("| model | beside | its time over that of executor | executor ms | ms | error of executor | error |")
        print("|---|---|---|---|---|---|---|", flush=True)
        for name, model in models.items():
            for engine in ("onnxruntime", "openvino"):
                print(f"| {name} | {engine} | {_row(model, engine, arguments.time)} |", flush=True)


def _row(model: Path, engine: str, time_s: float) -> str:
    a, b = (
        Plan(str(model), engines=(name,), scenarios=("sync",), num_cores=(1,), sequence_lengths=(_LENGTH,))
        for name in ("executor", engine)
    )
    compared = Lab().compare(a, b, time_s)
    last = compared.pairs[-1]
    medians = " | ".join(f"{statistics.median(times):.3f}" for times in compared.times_ms)
    return f"{ratio_text(compared.ratio)} | {medians} | {_error(last.a)} | {_error(last.b)}"


def _error(run: Run) -> str:
    error = "-" if run.check.error is None else f"{run.check.error:.1e}"
    return error if run.check.status == "match" else f"{error} {run.check.status}"


def _models(folder: Path) -> dict[str, Path]:
    """A BERT of three layers in FP32 and in static INT8."""
    import torch
    import transformers
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    from inferlab import export_to_onnx

    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    module = transformers.BertForSequenceClassification(transformers.BertConfig(**_BERT))
    module.save_pretrained(folder / "bert")
    fp32, int8 = folder / "fp32.onnx", folder / "int8.onnx"
    export_to_onnx(folder / "bert", fp32, opset=14, exporter="torchscript")
    random = np.random.default_rng(0)
    samples = iter([
        {
            "input_ids": random.integers(0, 1000, (1, _LENGTH)),
            "attention_mask": np.ones((1, _LENGTH), np.int64),
            "token_type_ids": np.zeros((1, _LENGTH), np.int64),
        }
        for _ in range(8)
    ])  # fmt: skip

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Any:
            return next(samples, None)

    quantize_static(fp32, int8, Reader(), QuantFormat.QDQ, op_types_to_quantize=["MatMul"])
    return {"FP32": fp32, "INT8": int8}


if __name__ == "__main__":
    main()
