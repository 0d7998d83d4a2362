"""What a card of the benchmarks page shows, derived from an entry: arms, their cells, and how the arms compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from inferlab.errors import BadInput
from inferlab.machine import vector_width
from inferlab.measure.check import worst
from inferlab.measure.findings import find_all
from inferlab.measure.headline import AT_FULL_LOAD
from inferlab.measure.stats import summarize
from inferlab.measure.unpaired import compare_saved, saved_result
from inferlab.options.plan import COLUMNS
from inferlab.records import Benchmark, Cell, Comparison, ComparisonSweep, Estimate, Outcome, OutputCheck
from inferlab.store.entries import Document, Stored
from inferlab.store.formats import record_of
from inferlab.store.store import Store
from inferlab.views import comparison, results
from inferlab.views.text import finding
from inferlab.workspace.engines import title
from inferlab.workspace.entries import reference_to
from inferlab.workspace.versions import ORIGINAL

_MARGIN = 0.01
# What tells the arms of a sweep apart; core counts and batch sizes are what a card lets one choose.
_SPLITS = (
    *("scenario", "instances", "rate", "sequence_length", "engine_options", "thread_pinning", "num_streams"),
    *COLUMNS,
)


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a card: an engine in one way of running, at all core counts and batch sizes."""

    label: str
    engine: str
    outcomes: tuple[Outcome, ...]
    #: The machine of a cluster that measured it; empty where there was no cluster.
    machine: str = ""

    def at(self, num_cores: int, batch_size: int) -> Outcome | None:
        """The cell at this place."""
        return next((one for one in self.outcomes if _place(one.cell) == (num_cores, batch_size)), None)


@dataclass(frozen=True, slots=True)
class Duel:
    """How the first arm compares with another one at one core count and batch size."""

    #: The index of the other arm.
    other: int
    num_cores: int
    batch_size: int
    #: The first arm's time over the other's.
    ratio: Estimate
    verdict: str
    #: Measured interleaved, which is surer than results of different times.
    paired: bool
    outputs_match: bool | None
    notes: tuple[str, ...]

    @property
    def speedup(self) -> Estimate:
        """How many times as fast the first arm is."""
        ends = self.ratio.ends
        low, high = (1 / ends[1], 1 / ends[0]) if ends else (None, None)
        return Estimate(1 / self.ratio.value, low, high, self.ratio.level, self.ratio.method)


@dataclass(frozen=True, slots=True)
class Card:
    """A benchmark or a comparison, opened; other documents have lines of text instead of arms."""

    id: str
    kind: str
    arms: tuple[Arm, ...]
    duels: tuple[Duel, ...] = ()
    #: What keeps a part of it from being shown.
    problems: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    #: The comparisons themselves, one for each duel.
    results: tuple[Comparison, ...] = ()

    @property
    def core_counts(self) -> list[int]:
        """All that were planned, in order."""
        return sorted({one.cell.num_cores for arm in self.arms for one in arm.outcomes})

    @property
    def batch_sizes(self) -> list[int]:
        """All that were planned, in order."""
        return sorted({one.cell.batch_size for arm in self.arms for one in arm.outcomes})

    @property
    def machines(self) -> list[str]:
        """The machines of a cluster that measured, as they were planned."""
        return list(dict.fromkeys(arm.machine for arm in self.arms if arm.machine))

    @property
    def instruction_set(self) -> str:
        """The widest vector instructions of the machine that measured; empty where nothing was."""
        runs = [run for arm in self.arms for one in arm.outcomes for run in one.runs]
        return vector_width(runs[0].machine.instruction_sets).upper() if runs else ""

    @property
    def of_different_models(self) -> bool:
        """Whether the arms are of two models, such as versions, rather than of one on two engines."""
        return len({one.cell.model_digest for arm in self.arms for one in arm.outcomes}) > 1

    def duel(self, arm: int, num_cores: int, batch_size: int) -> Duel | None:
        """The comparison of an arm at one place: of the first with the second, of any other with the first."""
        other = max(arm, 1)
        wanted = (other, num_cores, batch_size)
        return next((one for one in self.duels if (one.other, one.num_cores, one.batch_size) == wanted), None)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The three numbers of a card, each with its interval, and what to know of them."""

    ms_per_item: Estimate
    ms_per_batch: Estimate
    items_per_second: Estimate
    iterations: int
    processes: int
    #: Sentences.
    findings: tuple[str, ...]
    check: OutputCheck

    @property
    def wrong(self) -> bool:
        """The outputs are not what they should be: these numbers are meaningless."""
        return self.check.status == "mismatch"


def numbers(outcome: Outcome) -> Numbers | None:
    """What was measured of a cell; None where nothing was."""
    summary = summarize(outcome.cell, outcome.runs)
    if summary is None:
        return None
    return Numbers(
        ms_per_item(outcome.cell, summary.median_ms, summary.items_per_sec),
        summary.median_ms,
        summary.items_per_sec,
        summary.iterations,
        len(outcome.runs),
        tuple(finding(one) for one in find_all(outcome) if one.code != "output-mismatch"),
        checked(outcome),
    )


def checked(outcome: Outcome) -> OutputCheck:
    """How the outputs of a cell compare with the reference's, over all its processes."""
    return worst([run.check for run in outcome.runs])


def ms_per_item(cell: Cell, batch_ms: Estimate, items_per_second: Estimate) -> Estimate:
    """Time per item: its latency, or what throughput comes to where the scenario is about that."""
    if cell.scenario not in AT_FULL_LOAD:
        found, scale = batch_ms, 1 / cell.batch_size
        ends = None if found.ends is None else (found.ends[0] * scale, found.ends[1] * scale)
        value = found.value * scale
    else:
        found = items_per_second
        ends = None if found.ends is None else (1e3 / found.ends[1], 1e3 / found.ends[0])
        value = 1e3 / found.value
    low, high = ends or (None, None)
    return Estimate(value, low, high, found.level, found.method)


def open_card(store: Store, entry_id: str) -> Card:
    """All that a card shows of an entry."""
    found = store.get(entry_id)
    if isinstance(found, Stored):
        return _of_benchmark(store, found)
    if found.kind == "comparison":
        return _of_comparison(found, _original(store, found.project_id))
    return Card(found.id, found.kind, (), lines=tuple(results.entry_lines(found)))


def _of_benchmark(store: Store, found: Stored) -> Card:
    arms = arms_of(found.benchmark.outcomes)
    if found.against is None:
        duels = [
            duel
            for index in range(1, len(arms))
            for duel in _unpaired(found.benchmark, arms[0], found.benchmark, arms[index], index)
        ]
        return Card(found.id, "benchmark", arms, tuple(duels))
    try:
        other = store.get(found.against)
    except BadInput:
        gone = "The benchmark that it was compared with has been removed."
        return Card(found.id, "benchmark", arms, problems=(gone,))
    if isinstance(other, Document):
        told = f"What it was compared with is a {other.kind}, not a benchmark."
        return Card(found.id, "benchmark", arms, problems=(told,))
    (theirs, *_) = arms_of(other.benchmark.outcomes)
    theirs = Arm(reference_to(store.entry(other.id)), theirs.engine, theirs.outcomes)
    # Side by side, wherever they were measured.
    both = (replace(arms[0], machine=""), theirs)
    return Card(
        found.id, "benchmark", both, tuple(_unpaired(found.benchmark, arms[0], other.benchmark, theirs, 1))
    )


def _original(store: Store, project_id: str | None) -> str:
    """The source of a project's model, which its versions are compared with; empty where there is no project."""
    known = project_id is not None and store.projects.has(project_id)
    return store.projects.get(project_id).model.source if known and project_id else ""


def side(label: str, original: str) -> str:
    """What one side of a comparison is called: an engine as people call it, the project's own model original."""
    return ORIGINAL if label == original else title(label)


def _of_comparison(found: Document, original: str) -> Card:
    try:
        sweep = record_of(found)
    except BadInput:
        return Card(found.id, found.kind, (), lines=tuple(results.entry_lines(found)))
    if not isinstance(sweep, ComparisonSweep) or not sweep.results:
        return Card(found.id, found.kind, (), lines=tuple(results.entry_lines(found)))
    label_a, label_b = sweep.results[0].labels
    # A and B alternate in the store; the card shows B, which is compared with A.
    arms = tuple(
        Arm(side(label, original), outcomes[0].cell.engine if outcomes else label, tuple(outcomes))
        for label, outcomes in ((label_b, found.outcomes[1::2]), (label_a, found.outcomes[0::2]))
    )
    duels = tuple(_duel(one, (arms[1].label, arms[0].label)) for one in sweep.results)
    failures = tuple(failure.message for failure in sweep.failures)
    text = () if found.outcomes else tuple(results.entry_lines(found))
    return Card(found.id, found.kind, arms, duels, failures, text, sweep.results)


def _duel(compared: Comparison, labels: tuple[str, str]) -> Duel:
    cell = compared.cells[0] if compared.cells else None
    return Duel(
        1,
        cell.num_cores if cell else 0,
        cell.batch_size if cell else 0,
        compared.ratio,
        compared.verdict,
        bool(compared.pairs),
        compared.outputs_match,
        tuple(comparison.notes(compared, labels)),
    )


def arms_of(outcomes: Sequence[Outcome]) -> tuple[Arm, ...]:
    """The cells of a benchmark as arms that have each core count and batch size at most once."""
    splits = [name for name in _SPLITS if len({getattr(one.cell, name) for one in outcomes}) > 1]
    # The number of streams usually follows from the cores.
    alone = [name for name in splits if name != "num_streams"]
    splits = alone if _distinct(outcomes, alone) else splits
    groups: dict[tuple[Any, ...], list[Outcome]] = {}
    for one in outcomes:
        key = (machine_of(one.cell), one.cell.engine, *(getattr(one.cell, name) for name in splits))
        groups.setdefault(key, []).append(one)
    return tuple(
        Arm(_label(key[1:], splits, key[0]), key[1], tuple(members), key[0]) for key, members in groups.items()
    )


def machine_of(cell: Cell) -> str:
    """The machine of a cluster that a cell is measured on, in words; empty where there is no cluster."""
    if cell.machine_type is None:
        return ""
    return cell.machine_type if cell.machine_number is None else f"{cell.machine_type} {cell.machine_number}"


def _distinct(outcomes: Sequence[Outcome], splits: Sequence[str]) -> bool:
    keys = [
        (machine_of(one.cell), one.cell.engine, _place(one.cell), *(getattr(one.cell, name) for name in splits))
        for one in outcomes
    ]
    return len(set(keys)) == len(keys)


def _label(key: tuple[Any, ...], splits: Sequence[str], machine: str) -> str:
    words = [title(key[0])]
    for name, value in zip(splits, key[1:], strict=True):
        words.append(str(value) if name == "scenario" else f"{name.replace('_', ' ')} {value}")
    return ", ".join([*words, *([machine] if machine else [])])


def _unpaired(mine: Benchmark, arm: Arm, theirs: Benchmark, other: Arm, index: int) -> list[Duel]:
    """What two results say that were not measured interleaved, at each place that both have."""
    duels = []
    for outcome in arm.outcomes:
        rival = other.at(*_place(outcome.cell))
        if rival is None or not (outcome.runs and rival.runs):
            continue
        a, b = saved_result(other.label, theirs, rival), saved_result(arm.label, mine, outcome)
        if a is None or b is None:
            continue
        found = compare_saved(a, b, _MARGIN)
        duels.append(
            Duel(
                index,
                *_place(outcome.cell),
                found.ratio,
                found.verdict,
                False,
                found.outputs_match,
                tuple(comparison.notes(found, (other.label, arm.label))),
            )
        )
    return duels


def _place(cell: Cell) -> tuple[int, int]:
    return cell.num_cores, cell.batch_size
