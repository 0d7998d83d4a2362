"""The nouns of inferlab: frozen, plain, importing nothing of ours."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal["onnx", "openvino", "torch-export", "torchscript", "transformers"]
Scenario = Literal["sync", "async", "elastic"]
Pinning = Literal["none", "core", "numa"]
StreamMode = Literal["auto", "threads", "processes", "native"]
Metric = Literal["max", "rms"]
Status = Literal["done", "failed", "cancelled", "pending"]

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
class Finding:
    """A warning as data; only a view turns it into prose."""

    code: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened on the way, for logs and progress; `fraction` is None where unknown."""

    code: str
    data: Mapping[str, Any] = field(default_factory=dict)
    fraction: float | None = None


Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The listener of those who do not listen."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the user asked for: the product of its tuples, each cell measured in the same way."""

    model: str
    engines: tuple[str, ...] = ("onnxruntime",)
    scenarios: tuple[Scenario, ...] = ("async",)
    #: None stands for all cores, the scenario's default, the model's own batch size.
    num_cores: tuple[int | None, ...] = (None,)
    num_streams: tuple[int | None, ...] = (None,)
    batch_sizes: tuple[int | None, ...] = (None,)
    sequence_lengths: tuple[int | None, ...] = (None,)
    input_shapes: str | None = None
    input_file: str | None = None
    engine_options: tuple[tuple[str, str], ...] = ()
    thread_pinning: Pinning = "core"
    stream_mode: StreamMode = "auto"
    time_s: float = 10.0
    warmup_s: float = 2.0
    seed: int = 0
    verify: bool = True
    #: How long an engine may stay silent beyond its measuring time before it counts as hung.
    patience_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One fully fixed choice out of a Plan."""

    model_digest: str
    engine: str
    scenario: Scenario
    num_cores: int
    num_streams: int
    batch_size: int
    shapes: tuple[tuple[str, Shape], ...]
    input_digest: str
    engine_options: tuple[tuple[str, str], ...]
    thread_pinning: Pinning
    stream_mode: StreamMode
    time_s: float
    warmup_s: float
    seed: int
    verify: bool

    @property
    def id(self) -> str:
        """The cell's identity: a hash of all that was fixed."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Samples:
    """Start and end of every inference of one stream, in nanoseconds of one monotonic clock."""

    starts_ns: array[int]
    ends_ns: array[int]

    def __len__(self) -> int:
        return len(self.starts_ns)


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """How a cell's outputs compare with the reference's."""

    status: Literal["match", "mismatch", "unchecked"]
    #: Relative to the reference (measure/check.py says how); None where nothing was compared.
    error: float | None = None
    #: The error of the worst element, or of the whole output.
    metric: Metric = "max"
    tolerance: float | None = None
    reference: str = ""
    #: The output with the largest error, or why nothing was compared.
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that measured, as far as it can be read."""

    node: str
    cpu: str
    architecture: str
    instruction_sets: tuple[str, ...]
    physical_cores: int
    logical_cpus: int
    numa_nodes: int
    memory_bytes: int | None
    #: CPUs' worth of time that the container may use; None where there is no limit.
    cpu_quota: float | None
    system: str


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement of one Cell: raw samples and all that was seen around them."""

    cell_id: str
    started_at: str
    streams: tuple[Samples, ...]
    warmup: tuple[Samples, ...]
    stream_mode: str
    load_s: float
    first_inference_s: float
    peak_memory_bytes: int | None
    baseline_memory_bytes: int | None
    #: What the loop itself adds to each sample, measured with a call that does nothing.
    harness_ns: float
    check: OutputCheck
    counters: Mapping[str, float]
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    model_path: str
    machine: Machine
    findings: tuple[Finding, ...] = ()
    fraction_of_supported_ops: float | None = None
    #: The user stopped it before its time was over.
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a cell has no result."""

    code: Literal["refused", "died", "hung"]
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """A Cell and what became of it."""

    cell: Cell
    status: Status
    runs: tuple[Run, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A Plan, its Model, and what became of every Cell."""

    plan: Plan
    model: Model
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """Derived from a Cell's runs; latencies in milliseconds a batch, None where too few samples carry one."""

    items_per_sec: float
    seconds_ran: float
    iterations: int
    mean_ms: float
    median_ms: float
    std_ms: float
    percentiles_ms: Mapping[float, float | None]


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
