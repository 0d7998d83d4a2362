"""What was read of a model, and what is known of an engine on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "onnx",
    "openvino",
    "torch-export",
    "torchscript",
    "transformers",
    "gguf",
    "onnxruntime-genai",
    "openvino-genai",
]

#: One dimension: a size, a symbolic name shared by all dimensions so called, or None (unknown on its own).
Dim = int | str | None
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output of a model; `dims` is None where even the rank is unknown."""

    name: str
    dtype: str
    dims: tuple[Dim, ...] | None
    #: Values of an integer input stay below this (the rows of the table it indexes).
    below: int | None = None
    #: Values that the graph compares this input with: a scalar switch such as a sampling rate.
    known_values: tuple[int, ...] = ()
    #: A shape that the model was seen to run with, where its own leaves more open than batch and sequence length.
    fitted: Shape | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A model that was found and read."""

    kind: Kind
    source: str
    path: str
    digest: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    size_bytes: int
    opset: int | None = None
    parameters: int | None = None
    zero_fraction: float | None = None
    precision: str = "FP32"
    #: How INT8 shows: "QDQ", "QOperator", "integer operators", "int8 weights"; empty for other precisions.
    quantization: str = ""
    #: The same inputs may give different outputs (random operators), so outputs cannot be checked.
    random: bool = False


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What is known of an engine here: whether it runs, and if not, what to do."""

    name: str
    state: Literal["ready", "missing", "broken"]
    version: str = ""
    kinds: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    environment: str = "inferlab's own"
    #: Why it cannot run, and the command that mends it.
    problem: str = ""
    remedy: str = ""
