"""What was asked for (Plan) and each fully fixed choice out of it (Cell)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Literal

from inferlab.records.model import Shape

Scenario = Literal["sync", "async", "elastic", "server", "offline"]
Pinning = Literal["none", "core", "numa"]
StreamMode = Literal["auto", "threads", "processes", "native"]


def engine_name(engine: str) -> str:
    """An engine's name without the version that it may be named with, as in onnxruntime==1.22.1."""
    return engine if ".py" in engine else engine.partition("==")[0]


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
