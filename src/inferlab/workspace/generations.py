"""Models that generate tokens, as projects have them, and the card of a generation, without its tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, get_args

from inferlab.errors import BadInput, NotThere
from inferlab.lab import read_model
from inferlab.measure.stats import engine_version
from inferlab.model.generative import names_genai_folder, read_generative
from inferlab.model.reading import locate
from inferlab.records import Failure, Finding, Kind, Listener, Model, Status, ignore
from inferlab.records.generation import (
    Agreement,
    CacheSize,
    GenerationCell,
    GenerationOutcome,
    GenerationSummary,
    GenerationSweep,
    GenerativeModel,
)
from inferlab.store.entries import Document
from inferlab.store.formats import record_of
from inferlab.store.store import Store
from inferlab.views.charts.points import GenerationPoint, points_of, renamed
from inferlab.views.generation import FIELDS, Row, blocks, most, notes, rows
from inferlab.views.tables import Note, Pair, Table
from inferlab.workspace.engines import title

R = TypeVar("R")
#: What tells cells apart: a column only where it varies.
_SPLITS = ("num_cores", "batch_size", "rate", "prompt_tokens", "new_tokens", "depth")
_FACTS = (
    *("Prefill", "Inter-token latency", "End to end", "CPU time per output token", "Load", "First generation"),
    *("Memory", "KV cache per token", "Agreement"),
)


def read_any(name: str, listener: Listener = ignore) -> tuple[Model, GenerativeModel | None]:
    """What a model is, and where it generates tokens, what it is as such.

    One that only generates, such as a GGUF file, has no inputs that could be given to it at once.
    """
    if names_genai_folder(name):
        generative = read_generative(name, listener)
        return as_model(generative), generative
    try:
        model = read_model(name, listener)
    except BadInput as refusal:
        try:
            found = read_generative(name, listener)
        except BadInput as error:
            raise error if _is_gguf(name) else refusal from None
        return as_model(found), found
    return model, _generates(model, name, listener)


def _is_gguf(name: str) -> bool:
    try:
        return locate(name).kind == "gguf"
    except BadInput:
        return False


def _generates(model: Model, name: str, listener: Listener) -> GenerativeModel | None:
    """What a model is as one that generates; a graph without past values is not even looked at."""
    past = any("past" in spec.name.lower() for spec in model.inputs)
    if model.kind != "transformers" and not (model.kind == "onnx" and past):
        return None
    try:
        found = read_generative(name, listener)
    except BadInput:
        return None
    return found if found.digest == model.digest else None


def as_model(found: GenerativeModel) -> Model:
    """A model that only generates, as projects have models: without inputs and outputs."""
    return Model(
        kind=found.kind if found.kind in get_args(Kind) else "onnx",  # type: ignore[arg-type]
        source=found.source,
        path=found.path,
        digest=found.digest,
        inputs=(),
        outputs=(),
        size_bytes=found.size_bytes,
        parameters=found.parameters,
        precision=found.precision,
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
    """Cells as texts: what varies between them, and what was measured."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    #: The columns that hold words.
    left: frozenset[int]
    #: The rows whose tokens are wrong.
    wrong: frozenset[int]


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
    return tuple(map(_card_cell, rows(sweep)))


def open_generation(store: Store, entry_id: str) -> GenerationCard:
    """All that a card shows of a generation."""
    sweep = opened(store, entry_id, GenerationSweep)
    shown = rows(sweep)
    return GenerationCard(
        sweep.id,
        sweep.model,
        card_cells(sweep),
        _cell_table(shown),
        tuple(renamed(points_of(sweep), title)),
        _facts(sweep) if len(shown) == 1 else (),
        tuple(notes(shown)),
        sweep.outcomes[0] if len(sweep.outcomes) == 1 else None,
    )


def _cell_table(shown: Sequence[Row]) -> CellTable:
    fields = [
        one
        for one in FIELDS
        if one.key not in _SPLITS or len({one.get(row) for row in shown}) > 1 or one.key == "engine"
    ]
    # What one looks for first, so that a narrow page shows it without scrolling.
    late = ("prefill_tokens_per_s", "end_to_end_ms", "kv_bytes_per_token", "decoded_memory_bytes", "status")
    fields.sort(key=lambda one: one.key in late)
    states = {row.outcome.status for row in shown}
    fields = [one for one in fields if one.key != "status" or states != {"done"}]
    named = [replace(one, form=title) if one.key == "engine" else one for one in fields]
    heads, *rows_ = Table(named, shown).texts
    wrong = [place for place, row in enumerate(shown) if row.agreement and row.agreement.status == "mismatch"]
    left = [place for place, one in enumerate(named) if one.left]
    return CellTable(tuple(heads), tuple(map(tuple, rows_)), frozenset(left), frozenset(wrong))


def _facts(sweep: GenerationSweep) -> tuple[tuple[str, str], ...]:
    """What is told of a single cell beside its headline numbers."""
    known = [block for block in blocks(sweep) if isinstance(block, Pair)]
    return tuple((pair.name, pair.value) for pair in known if pair.name in _FACTS)


def _card_cell(row: Row) -> GenerationCardCell:
    runs = row.outcome.runs
    return GenerationCardCell(
        row.cell,
        row.outcome.status,
        row.outcome.failure,
        row.summary,
        row.agreement,
        runs[0].cache if runs else None,
        most(row, "decoded_memory_bytes"),
        row.findings,
        {row.cell.engine: engine_version(runs[0]) or ""} if runs else {},
        len(runs),
    )
