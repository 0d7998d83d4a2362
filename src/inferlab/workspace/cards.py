"""The card of an entry: what was measured of each of its cells, single calls or tokens, and how they compare.

The benchmarks page and the HTTP API show these records alike; they are built here alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from inferlab.errors import BadInput, NotThere
from inferlab.machine import vector_width
from inferlab.measure.check import worst
from inferlab.measure.findings import find_all
from inferlab.measure.stats import AT_FULL_LOAD, engine_version, summarize
from inferlab.measure.unpaired import compare_saved, same_requests, saved_result
from inferlab.options.plan import COLUMNS
from inferlab.records import (
    Benchmark,
    Cell,
    Comparison,
    ComparisonSweep,
    Estimate,
    Failure,
    Finding,
    Outcome,
    OutputCheck,
    Status,
)
from inferlab.records.generation import (
    Agreement,
    CacheSize,
    GenerationCell,
    GenerationOutcome,
    GenerationSummary,
    GenerationSweep,
    GenerativeModel,
)
from inferlab.store.entries import Document, Stored
from inferlab.store.formats import record_of
from inferlab.store.store import Store
from inferlab.views import comparison, generation, results
from inferlab.views.charts.points import GenerationPoint, points_of, renamed
from inferlab.views.tables import Block, Note, Pair, Table
from inferlab.workspace.engines import title
from inferlab.workspace.entries import reference_to
from inferlab.workspace.versions import ORIGINAL

R = TypeVar("R")
#: A core count and a batch size, by which a card's cells are chosen.
Place = tuple[int, int]
_MARGIN = 0.01
# What tells the arms of a sweep apart; core counts and batch sizes are what a card lets one choose.
_SPLITS = (
    *("scenario", "instances", "rate", "sequence_length", "engine_options", "thread_pinning", "num_streams"),
    *COLUMNS,
)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The three numbers of a cell, each with its interval, and how much they rest on."""

    ms_per_item: Estimate
    ms_per_batch: Estimate
    items_per_second: Estimate
    iterations: int
    processes: int


@dataclass(frozen=True, slots=True)
class CardCell:
    """What was fixed of a cell, what was measured of it, and what to know of that; without its samples."""

    cell: Cell
    status: Status
    failure: Failure | None
    numbers: Numbers | None = None
    output_check: OutputCheck | None = None
    findings: tuple[Finding, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def wrong(self) -> bool:
        """The outputs are not what they should be: the numbers are meaningless."""
        return self.output_check is not None and self.output_check.status == "mismatch"

    @property
    def cell_id(self) -> str:
        """The identity of the cell."""
        return self.cell.id

    @property
    def place(self) -> Place:
        """Where a card shows it."""
        return _place(self.cell)


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a card: an engine in one way of running, at all core counts and batch sizes."""

    label: str
    engine: str
    cells: tuple[CardCell, ...]
    #: The same with all samples; empty where they were left behind.
    outcomes: tuple[Outcome, ...] = ()
    #: The machine of a cluster that measured it; empty where there was no cluster.
    machine: str = ""

    def at(self, num_cores: int, batch_size: int) -> CardCell | None:
        """The cell at this place."""
        return next((cell for cell in self.cells if cell.place == (num_cores, batch_size)), None)

    def outcome(self, num_cores: int, batch_size: int) -> Outcome | None:
        """The cell at this place with its samples."""
        return next(
            (outcome for outcome in self.outcomes if _place(outcome.cell) == (num_cores, batch_size)), None
        )


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
    """A benchmark or a comparison, opened; other documents have text instead of arms."""

    id: str
    kind: str
    arms: tuple[Arm, ...]
    duels: tuple[Duel, ...] = ()
    #: What keeps a part of it from being shown.
    problems: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    #: The same as values, tables and notes; empty where this version cannot read the document.
    blocks: tuple[Block, ...] = ()
    #: The comparisons themselves, one for each duel.
    results: tuple[Comparison, ...] = ()
    #: The widest vector instructions of the machine that measured; empty where nothing was.
    instruction_set: str = ""

    @property
    def cells(self) -> list[CardCell]:
        """Those of all arms."""
        return [cell for arm in self.arms for cell in arm.cells]

    @property
    def core_counts(self) -> list[int]:
        """All that were planned, in order."""
        return sorted({cell.cell.num_cores for cell in self.cells})

    @property
    def batch_sizes(self) -> list[int]:
        """All that were planned, in order."""
        return sorted({cell.cell.batch_size for cell in self.cells})

    @property
    def machines(self) -> list[str]:
        """The machines of a cluster that measured, as they were planned."""
        return list(dict.fromkeys(arm.machine for arm in self.arms if arm.machine))

    @property
    def of_different_models(self) -> bool:
        """Whether the arms are of two models, such as versions, rather than of one on two engines."""
        return len({cell.cell.model_digest for cell in self.cells}) > 1

    @property
    def first_place(self) -> Place:
        """What is shown first: a cell of the first arm that has numbers, if there is one."""
        cells = self.arms[0].cells
        return next((cell for cell in cells if cell.numbers), cells[0]).place

    def duel(self, arm: int, num_cores: int, batch_size: int) -> Duel | None:
        """The comparison of an arm at one place: of the first with the second, of any other with the first."""
        place = (max(arm, 1), num_cores, batch_size)
        return next((duel for duel in self.duels if (duel.other, duel.num_cores, duel.batch_size) == place), None)

    def without_samples(self) -> Card:
        """The same, small enough to be kept by every tab that shows it."""
        return replace(self, arms=tuple(replace(arm, outcomes=()) for arm in self.arms))


def card_cell(outcome: Outcome) -> CardCell:
    """What a card shows of a cell."""
    runs = outcome.runs
    return CardCell(
        outcome.cell,
        outcome.status,
        outcome.failure,
        _numbers(outcome),
        worst([run.check for run in runs]) if runs else None,
        find_all(outcome) if runs else (),
        runs[0].versions if runs else {},
    )


def _numbers(outcome: Outcome) -> Numbers | None:
    summary = summarize(outcome.cell, outcome.runs)
    if summary is None:
        return None
    return Numbers(
        ms_per_item(outcome.cell, summary.median_ms, summary.items_per_sec),
        summary.median_ms,
        summary.items_per_sec,
        summary.iterations,
        len(outcome.runs),
    )


def ms_per_item(cell: Cell, batch_ms: Estimate, items_per_second: Estimate) -> Estimate:
    """Time per item: its latency, or what throughput comes to where the scenario is about that."""
    if cell.scenario not in AT_FULL_LOAD:
        estimate, scale = batch_ms, 1 / cell.batch_size
        ends = None if estimate.ends is None else (estimate.ends[0] * scale, estimate.ends[1] * scale)
        value = estimate.value * scale
    else:
        estimate = items_per_second
        ends = None if estimate.ends is None else (1e3 / estimate.ends[1], 1e3 / estimate.ends[0])
        value = 1e3 / estimate.value
    low, high = ends or (None, None)
    return Estimate(value, low, high, estimate.level, estimate.method)


def open_card(store: Store, entry_id: str) -> Card:
    """All that a card shows of an entry."""
    entry = store.get(entry_id)
    if isinstance(entry, Stored):
        card = _of_benchmark(store, entry)
    elif entry.kind == "comparison":
        card = _of_comparison(entry, _original(store, entry.project_id))
    else:
        card = _of_text(entry)
    runs = [run for arm in card.arms for outcome in arm.outcomes for run in outcome.runs]
    return replace(card, instruction_set=vector_width(runs[0].machine.instruction_sets).upper() if runs else "")


def _of_benchmark(store: Store, entry: Stored) -> Card:
    card = Card(entry.id, "benchmark", arms_of(entry.benchmark.outcomes))
    first = card.arms[0]
    if entry.against is None:
        duels = [
            duel
            for index, arm in enumerate(card.arms[1:], 1)
            for duel in _unpaired(entry.benchmark, first, entry.benchmark, arm, index)
        ]
        return replace(card, duels=tuple(duels))
    try:
        other = store.get(entry.against)
    except BadInput:
        return replace(card, problems=("The benchmark that it was compared with has been removed.",))
    if isinstance(other, Document):
        return replace(card, problems=(f"What it was compared with is a {other.kind}, not a benchmark.",))
    theirs = replace(arms_of(other.benchmark.outcomes)[0], label=reference_to(store.entry(other.id)), machine="")
    duels = _unpaired(entry.benchmark, first, other.benchmark, theirs, 1)
    # Side by side, wherever they were measured.
    return replace(card, arms=(replace(first, machine=""), theirs), duels=tuple(duels))


def _original(store: Store, project_id: str | None) -> str:
    """The source of a project's model, which its versions are compared with; empty where there is no project."""
    exists = project_id is not None and store.projects.has(project_id)
    return store.projects.get(project_id).model.source if exists and project_id else ""


def side(label: str, original: str) -> str:
    """What one side of a comparison is called: an engine as people call it, the project's own model original."""
    return ORIGINAL if label == original else title(label)


def _of_text(entry: Document) -> Card:
    return Card(
        entry.id,
        entry.kind,
        (),
        lines=tuple(results.entry_lines(entry)),
        blocks=tuple(results.entry_blocks(entry)),
    )


def _of_comparison(entry: Document, original: str) -> Card:
    try:
        sweep = record_of(entry)
    except BadInput:
        return _of_text(entry)
    if not isinstance(sweep, ComparisonSweep) or not sweep.results:
        return _of_text(entry)
    label_a, label_b = sweep.results[0].labels
    # A and B alternate in the store; the card shows B, which is compared with A.
    arms = tuple(
        _arm(side(label, original), outcomes[0].cell.engine if outcomes else label, outcomes)
        for label, outcomes in ((label_b, entry.outcomes[1::2]), (label_a, entry.outcomes[0::2]))
    )
    duels = []
    for result in sweep.results:
        place = _place(result.cells[0]) if result.cells else (0, 0)
        duels.append(_duel(result, 1, place, (arms[1].label, arms[0].label)))
    failures = tuple(failure.message for failure in sweep.failures)
    lines = () if entry.outcomes else tuple(results.entry_lines(entry))
    return Card(entry.id, entry.kind, arms, tuple(duels), failures, lines, results=sweep.results)


def _arm(label: str, engine: str, outcomes: Sequence[Outcome], machine: str = "") -> Arm:
    return Arm(label, engine, tuple(map(card_cell, outcomes)), tuple(outcomes), machine)


def _duel(result: Comparison, other: int, place: Place, labels: tuple[str, str]) -> Duel:
    notes = tuple(comparison.notes(result, labels))
    return Duel(other, *place, result.ratio, result.verdict, bool(result.pairs), result.outputs_match, notes)


def arms_of(outcomes: Sequence[Outcome]) -> tuple[Arm, ...]:
    """The cells of a benchmark as arms that have each core count and batch size at most once."""
    splits = [name for name in _SPLITS if len({getattr(outcome.cell, name) for outcome in outcomes}) > 1]
    # The number of streams usually follows from the cores.
    alone = [name for name in splits if name != "num_streams"]
    splits = alone if _distinct(outcomes, alone) else splits
    groups: dict[tuple[Any, ...], list[Outcome]] = {}
    for outcome in outcomes:
        cell = outcome.cell
        key = (machine_of(cell), cell.engine, *(getattr(cell, name) for name in splits))
        groups.setdefault(key, []).append(outcome)
    return tuple(_arm(_label(key[1:], splits, key[0]), key[1], members, key[0]) for key, members in groups.items())


def machine_of(cell: Cell) -> str:
    """The machine of a cluster that a cell is measured on, in words; empty where there is no cluster."""
    if cell.machine_type is None:
        return ""
    return cell.machine_type if cell.machine_number is None else f"{cell.machine_type} {cell.machine_number}"


def _distinct(outcomes: Sequence[Outcome], splits: Sequence[str]) -> bool:
    keys = [
        (
            machine_of(outcome.cell),
            outcome.cell.engine,
            _place(outcome.cell),
            *(getattr(outcome.cell, name) for name in splits),
        )
        for outcome in outcomes
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
        place = _place(outcome.cell)
        rival = other.outcome(*place)
        if rival is None or not (outcome.runs and rival.runs):
            continue
        a, b = saved_result(other.label, theirs, rival), saved_result(arm.label, mine, outcome)
        if a is not None and b is not None and same_requests(a, b):
            compared = compare_saved(a, b, _MARGIN)
            duels.append(_duel(compared, index, place, (other.label, arm.label)))
    return duels


def _place(cell: Cell) -> Place:
    return cell.num_cores, cell.batch_size


# What tells cells of a generation apart: a column only where it varies.
_VARIED = ("num_cores", "batch_size", "rate", "prompt_tokens", "new_tokens", "depth")
_OF_ONE_CELL = (
    *("Prefill", "Inter-token latency", "End to end", "CPU time per output token", "Load", "First generation"),
    *("Memory", "KV cache per token", "Agreement"),
)


@dataclass(frozen=True, slots=True)
class GenerationCardCell:
    """What was fixed of a cell, what was measured of it, and what to know of that; without its tokens."""

    cell: GenerationCell
    status: Status
    failure: Failure | None
    numbers: GenerationSummary | None = None
    agreement: Agreement | None = None
    cache: CacheSize | None = None
    #: Resident after decoding, the most of all processes.
    memory_bytes: int | None = None
    findings: tuple[Finding, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    measured_processes: int = 0

    @property
    def wrong(self) -> bool:
        """The tokens are not what they should be: the numbers are meaningless."""
        return self.agreement is not None and self.agreement.status == "mismatch"

    @property
    def cell_id(self) -> str:
        """The identity of the cell."""
        return self.cell.id


@dataclass(frozen=True, slots=True)
class CellTable:
    """A table of cells without their tokens: what varies between them, and what was measured."""

    #: The headings, then every row.
    texts: list[list[str]]
    #: The columns that hold words.
    left: Collection[int]
    #: The rows whose tokens are wrong.
    strong: Collection[int]


@dataclass(frozen=True, slots=True)
class GenerationCard:
    """A generation, opened: every cell, and what charts draw of it."""

    id: str
    model: GenerativeModel
    cells: tuple[GenerationCardCell, ...]
    table: CellTable
    points: tuple[GenerationPoint, ...] = ()
    #: What more is known of a single cell, by name.
    facts: tuple[tuple[str, str], ...] = ()
    #: Findings and failures in sentences, each once.
    notes: tuple[Note, ...] = ()
    #: The cell that is drawn token after token, where there is only one.
    alone: GenerationOutcome | None = None


def opened(store: Store, entry_id: str, kind: type[R]) -> R:
    """The record of an entry of this kind."""
    entry = store.get(entry_id)
    record = record_of(entry) if isinstance(entry, Document) else None
    if not isinstance(record, kind):
        raise NotThere(f"{entry_id} is a {store.entry(entry_id).kind}.")
    return record


def card_cells(sweep: GenerationSweep) -> tuple[GenerationCardCell, ...]:
    """The cells of a generation as a card shows them."""
    return tuple(map(_generation_cell, generation.rows(sweep)))


def open_generation(store: Store, entry_id: str) -> GenerationCard:
    """All that a card shows of a generation."""
    sweep = opened(store, entry_id, GenerationSweep)
    shown = generation.rows(sweep)
    return GenerationCard(
        sweep.id,
        sweep.model,
        card_cells(sweep),
        _cell_table(shown),
        tuple(renamed(points_of(sweep), title)),
        _facts_alone(sweep) if len(shown) == 1 else (),
        tuple(generation.notes(shown)),
        sweep.outcomes[0] if len(sweep.outcomes) == 1 else None,
    )


def _cell_table(shown: Sequence[generation.Row]) -> CellTable:
    fields = [
        field
        for field in generation.FIELDS
        if field.key not in _VARIED or len({field.get(row) for row in shown}) > 1
    ]
    # What one looks for first, so that a narrow page shows it without scrolling.
    late = ("prefill_tokens_per_s", "end_to_end_ms", "kv_bytes_per_token", "decoded_memory_bytes", "status")
    fields.sort(key=lambda field: field.key in late)
    states = {row.outcome.status for row in shown}
    fields = [field for field in fields if field.key != "status" or states != {"done"}]
    table = Table([replace(field, form=title) if field.key == "engine" else field for field in fields], shown)
    wrong = [place for place, row in enumerate(shown) if row.agreement and row.agreement.status == "mismatch"]
    return CellTable(table.texts, table.left, wrong)


def _facts_alone(sweep: GenerationSweep) -> tuple[tuple[str, str], ...]:
    """What is told of a single cell beside its headline numbers."""
    known = [block for block in generation.blocks(sweep) if isinstance(block, Pair)]
    return tuple((pair.name, pair.value) for pair in known if pair.name in _OF_ONE_CELL)


def _generation_cell(row: generation.Row) -> GenerationCardCell:
    runs = row.outcome.runs
    return GenerationCardCell(
        row.cell,
        row.outcome.status,
        row.outcome.failure,
        row.summary,
        row.agreement,
        runs[0].cache if runs else None,
        generation.most(row, "decoded_memory_bytes"),
        row.findings,
        {row.cell.engine: engine_version(runs[0]) or ""} if runs else {},
        len(runs),
    )
