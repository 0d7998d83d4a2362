"""What a store hands out, as plain records, and what lists show of an entry; nothing heavy is imported."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from inferlab.codec import dumps
from inferlab.records import Benchmark, Cell, Failure, Model, Outcome, Status
from inferlab.records.generation import GenerativeModel

Content = Mapping[str, Any]
#: What lists show of the measured part of a profile, of its losses, and of a version's speed.
PERFORMANCE = ("name", "engine", "batch_size", "num_cores", "ms_per_batch", "ms_interval", "items_per_second",
                "items_interval", "measured_at")  # fmt: skip
LOSS = ("name", "method", "params", "average_sensitivity")
_VERSION = ("path", "digest", "size_bytes", "parameters", "zero_fraction", "precision")
MEASURED = ("engine", "num_cores", "batch_size", "original_ms", "ms", "speedup", "speedup_interval", "level",
             "verdict", "predicted_speedup", "predicted_error")  # fmt: skip
#: What lists show of the cells of a generation.
GENERATION_CELL = ("engine", "num_cores", "batch_size", "prompt_tokens", "new_tokens", "depth")
_COMPARISON = ("verdict", "ratio", "interval", "paired", "outputs_match")
#: The kind of an entry that is measured run by run; every other kind is a document.
BENCHMARK = "benchmark"
JobKind = Literal[
    "benchmark",
    "comparison",
    "generation",
    "generation-comparison",
    "generation-capacity",
    "generation-recommendation",
    "profile",
    "optimization",
    "install",
]
JobStatus = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
#: What a job is while something may still become of it by itself.
ALIVE: tuple[JobStatus, ...] = ("queued", "running")
#: What can be put into the queue again.
RESUMABLE: tuple[JobStatus, ...] = ("interrupted", "cancelled")
#: A benchmark is called by the first of these that one of its cells has.
PRECEDENCE: tuple[Status, ...] = ("failed", "cancelled", "pending", "done")


@dataclass(frozen=True, slots=True)
class CellEntry:
    """A cell in the history; its numbers, and `wrong`, come from a cache that is empty until it is finished."""

    cell_id: str
    cell: Cell
    status: Status
    failure: Failure | None
    runs: int
    items_per_sec: float | None
    items_per_sec_low: float | None
    items_per_sec_high: float | None
    median_ms: float | None
    median_ms_low: float | None
    median_ms_high: float | None
    #: The outputs of a run do not match the reference: fast, perhaps, but meaningless.
    wrong: bool = False
    #: Of the engine, where it is known.
    engine_version: str | None = None
    #: The CPU and cores of the machine that measured it.
    machine: str | None = None
    peak_memory_bytes: float | None = None

    @property
    def ms_per_item(self) -> float:
        """The number by which cells are compared; infinite where it is not known."""
        from inferlab.measure.stats import ms_per_item  # late: with NumPy, which the history does not need

        time_ms = ms_per_item(self.cell.scenario, self.cell.batch_size, self.median_ms, self.items_per_sec)
        return math.inf if time_ms is None else time_ms


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the history: a benchmark with its cells, or a document without any."""

    id: str
    created_at: datetime
    #: "benchmark", or the kind of a document.
    kind: str
    #: The model as the user wrote it, or the title of a document.
    title: str
    model_digest: str
    inferlab_version: str
    node: str
    note: str
    cells: tuple[CellEntry, ...]
    project_id: str | None = None
    #: What lists show of it beside its cells; see `briefs`.
    brief: Mapping[str, Any] = field(default_factory=dict)
    #: What it was marked with, such as its commit and branch.
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        """What became of the whole: failed, cancelled or pending where a cell is, else done."""
        # A generation has no rows of cells: its brief says what became of them.
        states: list[Status] = [cell.status for cell in self.cells] or list(self.brief.get("statuses", ()))
        return min(states, key=PRECEDENCE.index, default="done")


@dataclass(frozen=True, slots=True)
class Heading:
    """What an entry is called."""

    id: str
    created_at: datetime
    kind: str
    title: str
    note: str


@dataclass(frozen=True, slots=True)
class _Saved:
    id: str
    created_at: datetime
    inferlab_version: str
    node: str
    note: str


@dataclass(frozen=True, slots=True)
class Stored(_Saved):
    """A benchmark as it was saved."""

    benchmark: Benchmark
    project_id: str | None = None
    #: The id of the benchmark that it is to be compared with.
    against: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Document(_Saved):
    """A result that is stored as its JSON: a comparison, a capacity, a recommendation, a profile, a version."""

    kind: str
    title: str
    content: Mapping[str, Any]
    project_id: str | None = None
    #: The cells of a comparison with their runs, A and B of each result in turn.
    outcomes: tuple[Outcome, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Project:
    """A model with a name; its profiles, versions and benchmarks are entries."""

    id: str
    created_at: datetime
    changed_at: datetime
    name: str
    description: str
    model: Model
    #: The shapes that its inputs get where nobody gives others, as `--input_shapes` takes them; empty: guessed.
    input_shapes: str = ""
    #: What its model is as one that generates tokens; None where it does not.
    generative: GenerativeModel | None = None

    @property
    def only_generates(self) -> bool:
        """Whether its model cannot be run as one call, so that it has no profiles, versions and benchmarks."""
        return self.generative is not None and not self.model.inputs


@dataclass(frozen=True, slots=True)
class ProjectLine:
    """A project in a list, with what was measured of it."""

    project: Project
    benchmarks: int
    profiles: int
    #: When something was measured or changed last.
    active_at: datetime
    #: The fastest cell of its benchmarks whose outputs are right.
    best: CellEntry | None
    #: The lowest time per output token of its generations whose tokens are right.
    tpot_ms: float | None = None


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """Something to be measured, being measured or measured."""

    id: str
    created_at: datetime
    queued_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    project_id: str | None
    #: The entry that it makes, from when there is one.
    entry_id: str | None
    #: The machine that it is measured on.
    node: str
    kind: JobKind
    status: JobStatus
    #: The user wants it to end.
    cancel: bool
    stage: str
    fraction: float | None
    left_s: float | None
    failure: str
    log: str
    #: What was asked, as JSON values.
    content: Mapping[str, Any]

    @property
    def alive(self) -> bool:
        """Whether something may still become of it by itself."""
        return self.status in ALIVE


def brief_of(kind: str, content: Content) -> str:
    """The brief of an entry as JSON; empty where lists need nothing beside its title and cells."""
    try:
        brief = _BRIEFS[kind](content) if kind in _BRIEFS else {}
    except (AttributeError, KeyError, TypeError, ValueError, IndexError):
        # Made by another version, by hand, or has no result yet: it is listed by its name or title.
        brief = {}
    if isinstance(content.get("name"), str):
        brief = {**brief, "name": content["name"]}
    return dumps(brief) if brief else ""


def digest_of(content: Content) -> str:
    """The digest of the model that a document is about; of two that are compared, the first; empty if unknown."""
    for part in (content.get("model"), *(_models(result) for result in _results(content)[:1])):
        if isinstance(part, Mapping) and isinstance(part.get("digest"), str):
            return str(part["digest"])
    return ""


def _results(content: Content) -> list[Content]:
    """The comparisons of a document that holds several, or the only one."""
    several = content.get("results")
    return (
        [result for result in several if isinstance(result, Mapping)] if isinstance(several, list) else [content]
    )


def _models(comparison: Content) -> Any:
    """The model of A; version 1 of comparisons had an object for each arm."""
    models, arm = comparison.get("models"), comparison.get("a")
    if isinstance(models, list):
        return models[0]
    return arm.get("model") if isinstance(arm, Mapping) else None


def _profile(content: Content) -> dict[str, Any]:
    performance, loss = content.get("performance"), content.get("loss")
    return {
        "performance": {name: performance[name] for name in PERFORMANCE} if performance else None,
        "loss": {name: loss[name] for name in LOSS} if loss else None,
        "flops": (content.get("flops") or {}).get("flops"),
        "interrupted": bool(content.get("interrupted")),
        "problems": list(content.get("problems") or ()),
    }


def _comparison(content: Content) -> dict[str, Any]:
    first, *_ = results = _results(content)
    if "labels" not in first:
        labels = [first["a"]["label"], first["b"]["label"]]
        return {"labels": labels, "results": [{name: result[name] for name in _COMPARISON} for result in results]}
    return {"labels": first["labels"], "results": [_ratio(result) for result in results]}


def _ratio(comparison: Content) -> dict[str, Any]:
    ratio = comparison["ratio"]
    return {
        "verdict": comparison["verdict"],
        "ratio": ratio["value"],
        "interval": None if ratio["low"] is None else [ratio["low"], ratio["high"]],
        "paired": bool(comparison["log_ratios"]),
        "outputs_match": comparison["outputs_match"],
        **_pairs(comparison),
    }


def _pairs(comparison: Content) -> dict[str, Any]:
    """How much the pairs of a comparison differ, by which the next one knows what to expect."""
    import statistics  # late: whoever only reads does not need it

    logs, cells = comparison["log_ratios"], comparison.get("cells") or comparison.get("arms")
    if len(logs) < 2 or not cells or comparison["ratio"]["method"] != "moderated":
        return {}
    return {"pairs": len(logs), "pair_sd": statistics.stdev(logs), "num_cores": cells[0]["num_cores"]}


def _generation(content: Content) -> dict[str, Any]:
    outcomes = content["outcomes"]
    runs = [outcome["runs"] for outcome in outcomes]
    statuses = [outcome["status"] for outcome in outcomes]
    return {
        **_cells([outcome["cell"] for outcome in outcomes]),
        "statuses": statuses,
        "wrong": [_is_wrong([run["agreement"] for run in measured]) for measured in runs],
        "tpot_ms": [
            _tpot_ms(measured) if status == "done" else None
            for status, measured in zip(statuses, runs, strict=True)
        ],
    }


def _made_of_generations(
    content: Content, cells: Sequence[Content], agreements: Sequence[Content]
) -> dict[str, Any]:
    status = "cancelled" if content["interrupted"] else "done"
    return {**_cells(cells), "statuses": [status], "wrong": [_is_wrong(agreements)]}


def _generation_comparison(content: Content) -> dict[str, Any]:
    brief = _made_of_generations(content, content["arms"], content["agreements"])
    return {**brief, "spread": _pairs(content)}


def _cells(cells: Sequence[Content]) -> dict[str, Any]:
    return {name: list(dict.fromkeys(cell[name] for cell in cells)) for name in GENERATION_CELL}


def _is_wrong(agreements: Sequence[Content]) -> bool:
    return any(agreement["status"] == "mismatch" for agreement in agreements)


def _tpot_ms(runs: Sequence[Content]) -> float | None:
    """The time per output token of a cell, as its summary has it; None where nothing was decoded."""
    import statistics

    logs = []
    for run in runs:
        times = [sequence["token_ns"] for each in run["repetitions"] for sequence in each["sequences"]]
        each_ms = [(ns[-1] - ns[0]) / (len(ns) - 1) / 1e6 for ns in times if len(ns) > 1]
        if not each_ms or statistics.median(each_ms) <= 0:
            return None
        logs.append(math.log(statistics.median(each_ms)))
    return math.exp(statistics.fmean(logs)) if logs else None


def _version(content: Content) -> dict[str, Any]:
    recipe, optimized = content["recipe"], content["optimized"]
    return {
        "name": content["name"],
        "optimized": {name: optimized[name] for name in _VERSION},
        "pattern": (recipe.get("pruning") or {}).get("pattern", ""),
        "scheme": (recipe.get("quantization") or {}).get("scheme", ""),
        "distance": content["distance"],
        "measured": [{name: layer[name] for name in MEASURED} for layer in content["measured"]],
        "interrupted": bool(content.get("interrupted")),
        "problems": list(content.get("problems") or ()),
    }


_BRIEFS: dict[str, Callable[[Content], dict[str, Any]]] = {
    "profile": _profile,
    "comparison": _comparison,
    "benchmark": lambda content: {"against": content["against"]} if content.get("against") else {},
    "version": _version,
    "generation": _generation,
    "generation-comparison": _generation_comparison,
    "generation-capacity": lambda content: _made_of_generations(
        content, [content["cell"]], [content["agreement"]]
    ),
    "generation-recommendation": lambda content: _generation(content["sweep"]),
}
