"""The nouns of optimisation: frozen and plain; the names of their fields are the keys of the JSON and YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from inferlab.records import Finding, Machine, Model, OutputCheck
from inferlab.records.comparison import Verdict

Interval = tuple[float, float]
# Version 1: the first.
RECIPE_FORMAT = "inferlab-recipe/1"
#: Of version 1, `predicted_…` was `foretold_…`; `store/formats.py` reads it.
FORMAT = "inferlab-optimization/2"
#: unstructured, block4 (four in a row), N:M such as 2:4 (N of every M are zero), channel (tensors shrink).
Pattern = str
#: The pattern whose zeros are cut out of the tensors.
CHANNEL = "channel"
Scope = Literal["uniform", "global", "layers"]
Scheme = Literal["dynamic", "static", "weights", "fp16"]


@dataclass(frozen=True, slots=True)
class Pruning:
    """Which share of which weights becomes zero, the smallest by magnitude first."""

    #: The sparsity: of each layer (uniform), or of all weights that may be pruned together (global).
    sparsity: float | None = None
    #: uniform: each layer alike; global: one threshold for all; layers: as `layers` says, or as the estimate does.
    scope: Scope = "uniform"
    pattern: Pattern = "unstructured"
    #: By the weight's name; goes before everything else. A recipe that was carried out has all of them here.
    layers: Mapping[str, float] = field(default_factory=dict)
    #: Regular expressions or names of weights or nodes; without `include` all layers are meant.
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    #: Of a layer's share, where the target is for the whole model or comes from the estimate.
    minimum: float = 0.0
    maximum: float = 1.0
    #: The first and the last layer too.
    ends: bool = False
    #: The loss that the estimate may cost, where levels come from the profiles.
    budget: float | None = None


@dataclass(frozen=True, slots=True)
class Quantization:
    """What is computed, or only stored, with fewer bits."""

    scheme: Scheme
    per_channel: bool = True
    #: Bits of the weights, 8 or 4; 4 for the scheme weights only.
    bits: int = 8
    include: tuple[str, ...] = ()
    #: Nodes or weights that stay as they are, by name or regular expression.
    exclude: tuple[str, ...] = ()
    #: Leave out so many of the layers that lose most by it, found by trying each alone.
    keep_sensitive: int = 0
    #: How many items ranges are found on, for static; 0 leaves it to the data.
    calibration_items: int = 0
    #: 7 bits for INT8 weights, so that sums cannot overflow without VNNI; None where the CPU decides.
    reduce_range: bool | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """When training code applies the pruning, so that the model gets its accuracy back."""

    start_epoch: float = 0.0
    end_epoch: float = 8.0
    #: Epochs between two raises of the sparsity.
    update_frequency: float = 0.5
    #: Sparsity that the schedule begins with.
    initial_sparsity: float = 0.05
    epochs: float = 12.0
    #: Learning rate from an epoch on.
    learning_rates: tuple[tuple[float, float], ...] = ((0.0, 0.01), (8.0, 0.001))


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that was, or is to be, done to a model; carried out again on the same model it gives the same bytes."""

    format: str = RECIPE_FORMAT
    #: The model that it was made for; empty where it is for any.
    model: str = ""
    digest: str = ""
    cleanup: bool = True
    pruning: Pruning | None = None
    quantization: Quantization | None = None
    #: The file of inputs that ranges were found on, and its digest; empty for generated inputs.
    data: str = ""
    data_digest: str = ""
    #: Of generated inputs: their seed and, by name, their shapes.
    seed: int = 0
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    schedule: Schedule | None = None
    inferlab: str = ""


@dataclass(frozen=True, slots=True)
class RecipeOptions(Pruning):
    """What is to be done to a model, by default nothing: how to prune it, and all else.

    What is to be left out (`exclude`) is neither pruned nor quantised.
    """

    int8: Literal["dynamic", "static"] | None = None
    weights_only: int | None = None
    float: Literal["fp16", "bf16"] | None = None
    keep_sensitive: int = 0
    per_tensor: bool = False
    cleanup: bool = True
    #: A file to take all of it from.
    recipe: str | None = None


@dataclass(frozen=True, slots=True)
class ChangedLayer:
    """One weight as it was and as it is."""

    weight: str
    #: The node that it belongs to, and its operator.
    id: str
    type: str
    params: int
    zeros_before: float
    zeros_after: float
    #: What was asked for; None where the layer was not meant.
    wanted: float | None
    params_after: int
    precision: str = "FP32"
    #: The sparsity before the weights were rounded to fewer bits; None in records of before.
    zeros_by_pruning: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """The optimised model against the original on one engine, measured interleaved."""

    engine: str
    num_cores: int
    batch_size: int
    #: Of both, in milliseconds a batch, as medians of this comparison.
    original_ms: float
    ms: float
    #: The original's time over the optimised one's.
    speedup: float
    speedup_interval: Interval | None
    level: float
    verdict: Verdict
    seconds: float
    #: Of the optimised model's own outputs against the reference of the optimised file.
    output_check: OutputCheck
    versions: Mapping[str, str]
    machine: Machine
    #: What the profiles predicted for this engine, where they did; predicted time over measured time, less 1.
    predicted_speedup: float | None = None
    predicted_error: float | None = None
    findings: tuple[Finding, ...] = ()
    #: The comparison's own entry in the store.
    entry_id: str = ""


@dataclass(frozen=True, slots=True)
class Distance:
    """How far the outputs of the optimised model are from the original's."""

    #: The power of the change over the power of the original's outputs; None where it is not a number.
    relative_power: float | None
    items: int
    generated: bool
    #: With labels only.
    loss_rise: float | None = None
    accuracy: float | None = None
    original_accuracy: float | None = None
    #: What profiles let expect; of zeros in a pattern it is at most that.
    expected_accuracy: float | None = None


@dataclass(frozen=True, slots=True)
class Optimization:
    """An optimised model, the recipe that made it, its parent, and what it cost and gained."""

    format: str
    inferlab: str
    created_at: str
    name: str
    #: The original.
    model: Model
    optimized: Model
    recipe: Recipe
    layers: tuple[ChangedLayer, ...]
    distance: Distance | None
    measured: tuple[Measured, ...] = ()
    #: Operators and nodes that could not be changed, and why.
    left_alone: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    problems: tuple[str, ...] = ()
    interrupted: bool = False
    #: Its name in the store, as a version; empty where it was not saved.
    id: str = ""
    #: What was tried before it, where a goal was searched for.
    search: Front | None = None


@dataclass(frozen=True, slots=True)
class Goal:
    """What a search is to reach: so many times as fast, or so many times smaller, within a loss."""

    speedup: float | None = None
    size_ratio: float | None = None
    #: Largest loss: a drop of accuracy with labels, else the relative power of the change.
    max_loss: float = 0.01


@dataclass(frozen=True, slots=True)
class VersionOptions:
    """What is to be made of a model, where to, and what it is to be measured on."""

    recipe: Recipe
    #: The file to write.
    out: str
    #: What the version is called.
    name: str = ""
    data_file: str | None = None
    #: The engines on which it is compared with the original; none where this is empty.
    engines: tuple[str, ...] = ("onnxruntime",)
    #: Seconds of measuring for each comparison and profile; with loading it takes up to three times as long.
    time_s: float = 10.0
    #: What a search is to reach, and how long it may take; the recipe is then what all that it tries begins with.
    goal: Goal | None = None
    search_s: float = 300.0
    #: Profiles in the store, or their files, to take times and losses from; made again where they are needed.
    performance_id: str | None = None
    loss_id: str | None = None
    #: In place of the recipe, what the profile estimates; within this loss budget, or within its own.
    as_estimated: bool = False
    estimate_budget: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A recipe that a search tried."""

    label: str
    recipe: Recipe
    #: None where it was not measured, and why.
    speedup: float | None
    speedup_interval: Interval | None
    loss: float | None
    size_bytes: int | None
    accuracy: float | None = None
    #: The confidence of the interval.
    level: float | None = None
    #: Why it was not made, not measured, or does not count.
    reason: str = ""
    #: No other is better in speed, loss and size at once.
    efficient: bool = False
    reaches: bool = False


@dataclass(frozen=True, slots=True)
class Front:
    """What a search found: all that was tried, cheapest first, and the one that it chose."""

    goal: Goal
    engine: str
    candidates: tuple[Candidate, ...]
    #: Its place among the candidates; None where nothing reaches the goal.
    chosen: int | None
    #: Of those that keep the loss, the fastest (or smallest); None where not even one does.
    nearest: int | None
    original_bytes: int
    seconds: float
    model: str = ""
    digest: str = ""
    num_cores: int = 0
    batch_size: int = 0
    #: What a loss is: a drop of accuracy where there are labels.
    metric: Literal["accuracy", "relative power"] = "relative power"
    #: On so many items, generated or the user's own.
    items: int = 0
    generated: bool = True
    original_accuracy: float | None = None
    #: Of the engine and its libraries, and where it was measured; empty where nothing was.
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Machine | None = None
    #: All that there was to try was tried; otherwise the time was over, it was interrupted, or a goal was reached.
    complete: bool = False
    interrupted: bool = False
    #: What was made of the search, measured again: only this says whether the goal is reached.
    confirmed: Candidate | None = None
