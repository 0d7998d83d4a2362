"""A benchmark: its model, what was asked for (Plan, Cell), what was measured (Run), and what follows (Summary).

And what is told beside numbers, as data: warnings, facts about the machine and progress.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

#: `warn` disturbs measurements; `unknown` cannot be read here; `info` is worth knowing and no fault.
FactState = Literal["good", "warn", "unknown", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A warning as data; only a view turns it into prose."""

    code: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing about the machine as data; only a view turns it into prose."""

    code: str
    state: FactState
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


Scenario = Literal["sync", "async", "elastic", "server", "offline"]
Pinning = Literal["none", "core", "numa"]
StreamMode = Literal["auto", "threads", "processes", "native"]
Method = Literal["student", "welch", "signed-rank", "moderated"]
Metric = Literal["max", "rms", "share"]
Status = Literal["done", "failed", "cancelled", "pending"]


def engine_name(engine: str) -> str:
    """An engine's name without the version that it may be named with, as in onnxruntime==1.22.1."""
    return engine if ".py" in engine else engine.partition("==")[0]


def is_release(engine: str) -> bool:
    """Whether an engine is named with a version, as in onnxruntime==1.22.1."""
    return engine_name(engine) != engine


@dataclass(frozen=True, slots=True)
class Plan:
    """What the user asked for: the product of its tuples, each cell measured in the same way."""

    model: str
    engines: tuple[str, ...] = ("onnxruntime",)
    scenarios: tuple[Scenario, ...] = ("async",)
    #: None stands for all cores, the scenario's default, the model's own batch size.
    num_cores: tuple[int | None, ...] = (None,)
    num_streams: tuple[int | None, ...] = (None,)
    #: Whole copies of the scenario, each in processes of its own; the cores are divided among them.
    instances: tuple[int, ...] = (1,)
    #: Requests a second; the scenario server needs one, the others have none.
    rates: tuple[float | None, ...] = (None,)
    batch_sizes: tuple[int | None, ...] = (None,)
    sequence_lengths: tuple[int | None, ...] = (None,)
    input_shapes: str | None = None
    input_file: str | None = None
    engine_options: tuple[tuple[str, str], ...] = ()
    thread_pinning: Pinning = "core"
    #: The CPUs to run on; none stands for the first of each core.
    cpu_list: tuple[int, ...] = ()
    stream_mode: StreamMode = "auto"
    time_s: float = 10.0
    warmup_s: float = 2.0
    #: Fresh processes that share the time; None stands for 5, or fewer where loading takes long.
    processes: int | None = None
    #: Add processes until the interval is this narrow (a fraction); `time_s` is then the most.
    precision: float | None = None
    seed: int = 0
    verify: bool = True
    #: How long a step may take, and an engine stay silent beyond its measuring; None stands for each step's own.
    patience_s: float | None = None
    #: The Ray cluster that measures: its address, "auto" or "local"; None stands for this machine.
    cluster: str | None = None
    #: Machine types of the cluster; none stands for one node of each distinct CPU.
    on: tuple[str, ...] = ()
    #: So many machines of each type measure every cell.
    nodes: int = 1
    #: Seconds to wait for machines that the cluster does not have yet.
    wait_s: float = 0.0
    #: What an hour of a machine type costs.
    prices: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """One fully fixed choice out of a Plan."""

    model_digest: str
    engine: str
    scenario: Scenario
    num_cores: int
    num_streams: int
    instances: int
    rate: float | None
    batch_size: int
    shapes: tuple[tuple[str, Shape], ...]
    input_digest: str
    engine_options: tuple[tuple[str, str], ...]
    thread_pinning: Pinning
    stream_mode: StreamMode
    time_s: float
    warmup_s: float
    processes: int | None
    precision: float | None
    seed: int
    verify: bool
    #: As it was asked for; the shapes follow from it.
    sequence_length: int | None = None
    #: The type of machine of a cluster, and which of several alike; None where a cell has no cluster.
    machine_type: str | None = None
    machine_number: int | None = None
    #: The inputs whose shape inferlab chose, because the model leaves it open and nobody gave one.
    guessed_inputs: tuple[str, ...] = ()
    #: The CPUs that it runs on, where the user chose them.
    cpu_list: tuple[int, ...] = ()

    @property
    def id(self) -> str:
        """The cell's identity: a hash of all that was fixed."""
        fixed = asdict(self)
        for name in ("machine_type", "machine_number", "cpu_list"):
            # Cells had ids before there were clusters and lists of CPUs, and keep them.
            if fixed[name] in (None, ()):
                del fixed[name]
        # Who chose a shape does not change what is measured.
        del fixed["guessed_inputs"]
        text = json.dumps(fixed, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Samples:
    """Start and end of every inference of one stream, in nanoseconds of one monotonic clock."""

    starts_ns: array[int]
    ends_ns: array[int]
    #: When each request was due, where requests arrive by themselves; its response time counts from then.
    scheduled_ns: array[int] | None = None
    #: How long a fixed piece of work took beside each inference, where inferlab 0.1 compared arms.
    canaries_ns: array[int] | None = None

    def __len__(self) -> int:
        return len(self.starts_ns)


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of measuring: the samples of every stream, and what the system said about that time."""

    streams: tuple[Samples, ...]
    #: Added between its beginning and its end, or since the first of the windows before it that have none; absent
    #: where the system does not have them.
    counters: Mapping[str, float]
    #: How long a fixed piece of work took right after it: it follows the clock speed. None: nothing was watched.
    canary_ns: int | None
    #: Requests that were due in it, where they arrive by themselves.
    arrivals: int | None = None
    #: A stream stopped because it had as many samples as are kept.
    full: bool = False


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """How a cell's outputs compare with the reference's."""

    status: Literal["match", "mismatch", "unchecked"]
    #: Relative to the reference (measure/check.py says how); None where nothing was compared.
    error: float | None = None
    #: The error of the worst element, of the whole output, or the share of labels that differ.
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
    #: CPUs that the container may use; None where there is no limit.
    cpu_quota: float | None
    system: str
    #: What its cloud calls it; None where it does not say.
    instance_type: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """What one fresh process (or one set of them, side by side) measured of one Cell."""

    cell_id: str
    started_at: str
    windows: tuple[Window, ...]
    warmup: tuple[Window, ...]
    stream_mode: str
    #: From the start of the processes to the loaded model, and the engine's own part of it.
    ready_s: float
    load_s: float
    first_inference_s: float
    peak_memory_bytes: int | None
    baseline_memory_bytes: int | None
    #: What the loop itself adds to each sample, measured with a call that does nothing.
    harness_ns: float
    check: OutputCheck
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    model_path: str
    machine: Machine
    #: Threads were bound to their CPUs.
    pinned: bool
    #: The model fixes another batch size, and a copy of it was measured.
    rewritten: bool
    fraction_of_supported_ops: float | None = None
    #: The user stopped it before its time was over.
    interrupted: bool = False
    #: Resident when the last window ended; the peak may lie in loading.
    steady_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a cell has no result."""

    #: "lost": the machine that measured it went away, so that it can be measured again.
    code: Literal["refused", "died", "hung", "lost"]
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
    #: Its name in the store; empty where it was not saved.
    id: str = ""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval; `low` and `high` are None where too little is known for one."""

    value: float
    low: float | None
    high: float | None
    #: The confidence that the interval was made for.
    level: float
    method: Method

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends of the interval, where there is one."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True, slots=True)
class Summary:
    """Derived from a Cell's runs; latencies in milliseconds a batch, None where too few samples carry one."""

    items_per_sec: Estimate
    median_ms: Estimate
    seconds_ran: float
    iterations: int
    mean_ms: float
    std_ms: float
    percentiles_ms: Mapping[float, float | None]
    #: Of the work alone, without the wait for it, where requests arrive by themselves.
    service_percentiles_ms: Mapping[float, float | None] | None = None
    #: The share of requests that were still waiting when time was up.
    unserved_share: float = 0.0
