"""The nouns of profiles: frozen and plain; the names of their fields are the keys of the JSON that is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from inferlab.records import Finding, Machine, Model, OutputCheck, Shape
from inferlab.records.optimization import Distance, Recipe

#: The shares of zeros that pruning is tried at, for time and for loss alike; 0 is the model as it is.
LEVELS = (0.2, 0.4, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99)
#: The shares of a group's channels whose loss is tried: in eighths, so that what is left mostly fills vectors.
CHANNEL_SHARES = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75)

#: What a profile is called where nobody says.
NAME = "baseline"
#: The loss that an estimate may cost where nobody says: the changed outputs keep 90 % of their power.
BUDGET = 0.1

Interval = tuple[float, float]
# Version 1: the first.
#: Of version 1, `unattributed_share` was `unjoined_share`; `store/formats.py` reads it.
FORMAT = "inferlab-profile/2"
LossMethod = Literal["approximated", "one-shot", "one-shot with data"]
LossMetric = Literal["relative power", "cross-entropy"]


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """Which profiles are to be made, and how."""

    performance: bool = True
    loss: bool = True
    performance_name: str = NAME
    loss_name: str = NAME
    #: Sparsity levels to measure times at; None stands for all where the engine can impose them, for a few where
    #: it computes zeros faster and an estimate is wanted, else for none.
    levels: tuple[float, ...] | None = None
    int8: bool = False
    roofline: bool = False
    data_file: str | None = None
    #: Bounds the measuring of each part.
    time_s: float = 10.0
    budget: float = BUDGET
    #: Make copies in INT8 and with fewer channels, and time them, so that the estimate knows what they gain.
    estimate: bool = True
    #: Make the estimated model and measure it.
    verify: bool = False
    #: Where no loss is measured, approximate it from the weights.
    approximate: bool = True


def level_key(level: float) -> str:
    """A level as a key of JSON: 0.9 → "0.9"."""
    return f"{level:g}"


@dataclass(frozen=True, slots=True)
class Work:
    """Operations of one data type."""

    flops: int
    macs: int


@dataclass(frozen=True, slots=True)
class Uncounted:
    """An operator without a count: how many nodes have it, and why they are not counted."""

    type: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class FlopsLayer:
    """One node of the graph in theory."""

    index: int
    id: str
    type: str
    weight: str
    nodes: tuple[str, ...]
    dtype: str
    flops: int | None
    macs: int | None
    params: int
    read_bytes: int | None
    weight_bytes: int
    write_bytes: int | None
    #: FLOPs per byte that is read or written.
    intensity: float | None
    zero_fraction: float | None


@dataclass(frozen=True, slots=True)
class FlopsProfile:
    """What the architecture alone says."""

    batch_size: int
    shapes: Mapping[str, Shape]
    flops: int
    macs: int
    by_dtype: Mapping[str, Work]
    params: int
    weight_bytes: int
    activation_bytes: int
    intensity: float | None
    uncounted: tuple[Uncounted, ...]
    layers: tuple[FlopsLayer, ...]


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The limits of this machine at a number of cores, as measured."""

    num_cores: int
    fp32_gflops: float
    #: None where nothing here multiplies in INT8.
    int8_gops: float | None
    bandwidth_gb_per_s: float
    #: When, in UTC.
    measured_at: str = ""
    #: By how much the best round lies above the second best, the worst ceiling's; None where there was one round.
    spread: float | None = None
    #: The share of the cores' time that others took in the quietest round.
    lost: float = 0.0
    rounds: int = 1


@dataclass(frozen=True, slots=True)
class Layer:
    """What an engine executed as one step, and the nodes of the graph that it covers."""

    index: int
    #: The first output of its costliest node, or the engine's own name where no node could be joined.
    id: str
    #: The operator of its costliest node, or the engine's fallback (ORT), or the engine's own word.
    type: str
    weight: str
    #: The first outputs of the nodes that it covers.
    nodes: tuple[str, ...]
    #: The engine's own name for it, and the kernel that it chose.
    name: str
    kernel: str
    #: The engine handed it to another one, where pruning gains nothing.
    fallback: bool
    #: Time per batch, rescaled so that all layers add up to the time without the profiler; median over processes.
    ms: float
    #: The standard deviation of the time between processes; None with one process.
    spread_ms: float | None
    #: The time in each process.
    times_ms: tuple[float, ...]
    share: float
    flops: int | None
    macs: int | None
    gflops_per_second: float | None
    params: int
    bytes: int | None
    zero_fraction: float | None
    prunable: bool = False
    groups: int = 1
    dtype: str = "float32"
    #: Time at each level of pruning that was measured, and in INT8.
    pruned: Mapping[str, float] = field(default_factory=dict)
    int8_ms: float | None = None
    #: Which ceiling limits it, and the share of that limit which it reaches; needs the roofline.
    bound: Literal["compute", "memory"] | None = None
    of_limit: float | None = None


@dataclass(frozen=True, slots=True)
class ChangedCopy:
    """A changed copy of the model that was really made, and timed on the same engine."""

    #: What makes the same copy again.
    recipe: Recipe
    ms_per_batch: float
    #: By the layer's id; a layer that is not in it is not known to change.
    layers_ms: Mapping[str, float]
    #: How far its outputs are from those of the model; None where that could not be told.
    distance: Distance | None

    @property
    def int8(self) -> bool:
        """Whether it computes in INT8."""
        return self.recipe.quantization is not None

    @property
    def channels(self) -> float:
        """The share of the channels that its layers lost, where all lost the same."""
        return (self.recipe.pruning.sparsity or 0.0) if self.recipe.pruning is not None else 0.0

    @property
    def mixed(self) -> bool:
        """Whether each group of channels lost a share of its own."""
        return self.recipe.pruning is not None and self.recipe.pruning.scope == "layers"


@dataclass(frozen=True, slots=True)
class OtherEngine:
    """A changed copy of the model, or without a change the model itself, timed on another installed engine."""

    engine: str
    #: What was done to it: in INT8; without this share of the channels.
    int8: bool
    channels: float
    ms_per_batch: float
    #: What the model takes there without any change; None where that was not timed.
    unchanged_ms: float | None = None
    #: With so many of all parameters zero, and what that costs, as the loss profile counts it.
    zeros: float = 0.0
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class PerformanceProfile:
    """Where the time goes on one engine, at one batch size and core count."""

    name: str
    engine: str
    versions: Mapping[str, str]
    settings: Mapping[str, object]
    batch_size: int
    num_cores: int
    instruction_sets: tuple[str, ...]
    shapes: Mapping[str, Shape]
    measured_at: str
    machine: Machine
    #: The clean pass: without any profiler, in so many fresh processes.
    ms_per_batch: float
    ms_interval: Interval | None
    items_per_second: float
    items_interval: Interval | None
    processes_ms: tuple[float, ...]
    #: What the layers took by the engine's own clock, added up, before they were rescaled to the clean time.
    layers_sum_ms: float
    #: How much longer an inference takes while the engine's profiler looks on, as a fraction.
    profiler_overhead: float
    #: The share of the layers' time that could not be joined to nodes of the graph.
    unattributed_share: float
    output_check: OutputCheck
    findings: tuple[Finding, ...]
    layers: tuple[Layer, ...]
    #: How pruning was tried: the engine imposed it, or weights were zeroed in a copy.
    pruning: Literal["", "imposed", "zeroed"] = ""
    #: The whole model's time at each level, and in INT8; and what kept a level or INT8 from being measured.
    pruned: Mapping[str, float] = field(default_factory=dict)
    int8_ms_per_batch: float | None = None
    problems: tuple[str, ...] = ()
    ceilings: Ceilings | None = None
    #: With limited effect on the loss; see `estimate`.
    estimated_ms_per_batch: float | None = None
    estimated_speedup: float | None = None
    #: Of `profiler_overhead`, over the processes.
    overhead_interval: Interval | None = None
    #: What was made and timed for the estimate.
    copies: tuple[ChangedCopy, ...] = ()
    #: What the model and the best of the copies take elsewhere, the fastest first.
    other_engines: tuple[OtherEngine, ...] = ()
    #: Copies that lost another share of each group's channels.
    mixed_copies: tuple[ChangedCopy, ...] = ()

    @property
    def engine_and_version(self) -> str:
        """The engine, with its version where that is known."""
        return f"{self.engine} {self.versions.get(self.engine, '')}".rstrip()


@dataclass(frozen=True, slots=True)
class LossLayer:
    """How one layer with weights takes pruning."""

    index: int
    id: str
    type: str
    weight: str
    params: int
    groups: int
    zero_fraction: float
    #: The mean of its loss over all sparsities: the area under its curve.
    sensitivity: float | None
    #: At each level; None where the output was not a number.
    losses: Mapping[str, float | None]
    #: With labels only.
    accuracies: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChannelGroup:
    """Channels that are only removed together, and what removing a share of them, the least important, costs."""

    #: The weights that make them, the first in the graph before the others.
    weights: tuple[str, ...]
    channels: int
    #: By the weight's name, the share that they are of its output channels, and of what it sums up over.
    outputs: Mapping[str, float]
    inputs: Mapping[str, float]
    #: At each share; None where the output was not a number.
    losses: Mapping[str, float | None]
    #: With labels only.
    accuracies: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LossProfile:
    """What pruning each layer alone costs.

    A loss is 0 for the model as it is and adds up over layers: the power of the change over the power of the
    dense model's outputs (estimated from the weights, or measured), or the rise of the cross-entropy with labels.
    """

    name: str
    method: LossMethod
    metric: LossMetric
    #: How many inputs it was measured on.
    items: int
    #: Of the dense model, with labels only.
    dense_loss: float | None
    dense_accuracy: float | None
    params: int
    prunable_params: int
    average_sensitivity: float | None
    layers: tuple[LossLayer, ...]
    #: Layers with weights that were left out, and why.
    left_out: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    #: What removing channels costs; and by their weights, why others keep all of theirs, or were not tried.
    groups: tuple[ChannelGroup, ...] = ()
    channels_kept: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TypeGain:
    """All layers of one type, as they are and as estimated."""

    type: str
    ms: float
    estimated_ms: float


@dataclass(frozen=True, slots=True)
class Verified:
    """The estimated model, really made and measured."""

    ms_per_batch: float
    ms_interval: Interval | None
    #: The original, measured again in the same sitting.
    baseline_ms_per_batch: float
    #: Estimated time over measured time, less 1.
    error: float
    #: The loss that the whole change had, in the loss profile's own measure.
    loss: float | None
    output_check: OutputCheck


@dataclass(frozen=True, slots=True)
class PruningEstimate:
    """Which sparsity each layer takes under a loss budget, and what that gives."""

    budget: float
    #: The sum of the layers' losses that it comes to.
    loss: float
    #: What it went by: the times at each level, or the number of parameters where no times were measured.
    gained: Literal["time", "parameters"]
    #: By the weight's name; weights that stay as they are are not in it.
    levels: Mapping[str, float]
    #: None where no times at the levels were measured.
    ms_per_batch: float | None
    estimated_ms_per_batch: float | None
    estimated_speedup: float | None
    by_type: tuple[TypeGain, ...]
    #: The share of all parameters that become zero, and what is left of the output's quality.
    parameter_reduction: float
    recovery: float | None
    verified: Verified | None = None
    #: With labels only: the accuracy that is expected.
    accuracy: float | None = None


@dataclass(frozen=True, slots=True)
class RecipeEstimate:
    """What profiles let expect of a recipe; None is unknown."""

    #: By the weight's name, what is pruned.
    levels: Mapping[str, float]
    estimated_ms_per_batch: float | None
    estimated_speedup: float | None
    #: In the loss profile's own measure; infinite where outputs are no numbers.
    loss: float | None
    #: The share of all parameters that go, and what is left of the output's quality.
    parameter_reduction: float
    recovery: float | None
    #: With labels only: the accuracy that is expected.
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class Gain:
    """Something that could be done to the model, and what it is estimated to give on the profile's engine."""

    #: In INT8; without this share of the channels; with zeros, so many of all parameters.
    int8: bool
    channels: float
    zeros: float
    ms_per_batch: float
    speedup: float
    #: As the loss profile counts it; None where it is not known.
    loss: float | None
    budget: float
    #: The loss is within the budget, and the time is shorter beyond the noise.
    counts: bool
    verified: Verified | None = None
    #: With labels only: the accuracy that is expected.
    accuracy: float | None = None
    #: By the weight that makes them, the share of the channels that goes, where it is not the same for all.
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Profile:
    """All profiles of one model that were made in one go."""

    format: str
    inferlab: str
    created_at: str
    model: Model
    flops: FlopsProfile | None
    performance: PerformanceProfile | None
    loss: LossProfile | None
    estimate: PruningEstimate | None = None
    #: Why a profile that was asked for is not there.
    problems: tuple[str, ...] = ()
    #: The user stopped it before all was done.
    interrupted: bool = False
    #: Its name in the store; empty where it was not saved.
    id: str = ""
    #: What could be done within the budget: what counts first, the fastest of it at the top.
    gains: tuple[Gain, ...] = ()
