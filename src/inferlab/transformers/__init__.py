"""The Benchmark classes that Hugging Face's and Intel's users know, on inferlab's measuring."""

from __future__ import annotations

from inferlab.transformers.arguments import ExecutorBenchmarkArguments, PyTorchBenchmarkArguments
from inferlab.transformers.benchmark import ExecutorBenchmark, PyTorchBenchmark
from inferlab.transformers.models import Quantized, quantize
from inferlab.transformers.results import BenchmarkOutput, Measured, Memory, Missing

__all__ = [
    "BenchmarkOutput",
    "ExecutorBenchmark",
    "ExecutorBenchmarkArguments",
    "Measured",
    "Memory",
    "Missing",
    "PyTorchBenchmark",
    "PyTorchBenchmarkArguments",
    "Quantized",
    "quantize",
]
