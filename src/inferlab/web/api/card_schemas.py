"""Opened benchmarks and comparisons as the HTTP API gives them back."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from inferlab import records
from inferlab.measure.findings import find_all
from inferlab.store.entries import Entry
from inferlab.views import files
from inferlab.views.charts.timeline import Track
from inferlab.views.text import output_check
from inferlab.web.api.schemas import Answer, EntryFacts, Estimate, Failure, failure
from inferlab.workspace import cards
from inferlab.workspace.sources import Sources


class FindingFacts(Answer):
    """Something to know of a result."""

    code: str = Field(description="Its name; docs/benchmark.md lists them.")
    data: dict[str, Any] = Field(description="Its numbers.")
    text: str = Field(description="As a sentence.")


class OutputFacts(Answer):
    """How outputs compare with the reference's."""

    status: str = Field(description="match, mismatch or unchecked.")
    error: float | None = Field(description="The largest error relative to the reference; null where unknown.")
    metric: str = Field(description="max: of the worst element; rms: of the whole output; share: of labels.")
    tolerance: float | None = Field(description="The largest error that counts as a match.")
    reference: str = Field(description="What it was compared with.")
    detail: str = Field(description="The output with the largest error, or why nothing was compared.")
    text: str = Field(description="All of it as a sentence.")

    @classmethod
    def of(cls, check: records.OutputCheck) -> OutputFacts:
        """A record as it is given back."""
        return cls(**{name: getattr(check, name) for name in check.__slots__}, text=output_check(check))


class NumberFacts(Answer):
    """What was measured of a cell."""

    ms_per_item: Estimate = Field(description="Milliseconds an item.")
    ms_per_batch: Estimate = Field(description="Median latency of a batch in milliseconds.")
    items_per_second: Estimate = Field(description="Throughput.")
    iterations: int = Field(description="How many batches were measured.")
    processes: int = Field(description="In how many fresh processes.")


class CellFacts(Answer):
    """One combination of core count and batch size."""

    cell_id: str = Field(description="A hash of all that was fixed: the same for the same conditions.")
    num_cores: int = Field(description="Cores.")
    batch_size: int = Field(description="Batch size.")
    num_streams: int = Field(description="Streams.")
    scenario: str = Field(description="How requests were issued.")
    instances: int = Field(description="Whole copies of the scenario.")
    rate: float | None = Field(description="Requests a second, of the scenario server.")
    sequence_length: int | None = Field(description="As it was asked for.")
    input_shapes: dict[str, list[int]] = Field(description="The shape of every input.")
    engine_options: dict[str, str] = Field(description="Options of the engine.")
    time_s: float = Field(description="Seconds of measuring that were asked for.")
    status: records.Status = Field(description="done, failed, cancelled or pending.")
    failure: Failure | None = Field(description="Why it has no result.")
    numbers: NumberFacts | None = Field(description="Null where nothing was measured yet.")
    wrong: bool = Field(description="Its outputs are not what they should be: its numbers are worth nothing.")
    output_check: OutputFacts | None = Field(description="How its outputs compare with the reference's.")
    findings: list[FindingFacts] = Field(description="What to know of its numbers.")
    versions: dict[str, str] = Field(description="Versions of the engine and its libraries.")

    @classmethod
    def of(cls, outcome: records.Outcome) -> CellFacts:
        """A record as it is given back."""
        cell, found = outcome.cell, cards.numbers(outcome)
        copied = ("num_cores", "batch_size", "num_streams", "scenario", "instances", "rate", "sequence_length",
                  "time_s")  # fmt: skip
        return cls(
            cell_id=cell.id,
            **{name: getattr(cell, name) for name in copied},
            input_shapes={name: list(shape) for name, shape in cell.shapes},
            engine_options=dict(cell.engine_options),
            status=outcome.status,
            failure=failure(outcome.failure),
            numbers=_numbers(found) if found else None,
            wrong=bool(found and found.wrong),
            output_check=OutputFacts.of(cards.checked(outcome)) if outcome.runs else None,
            findings=[FindingFacts(**one) for one in files.findings(find_all(outcome))] if outcome.runs else [],
            versions=dict(outcome.runs[0].versions) if outcome.runs else {},
        )


def _numbers(found: cards.Numbers) -> NumberFacts:
    return NumberFacts(
        ms_per_item=Estimate.of(found.ms_per_item),
        ms_per_batch=Estimate.of(found.ms_per_batch),
        items_per_second=Estimate.of(found.items_per_second),
        iterations=found.iterations,
        processes=found.processes,
    )


class ArmFacts(Answer):
    """One side of a card: an engine in one way of running."""

    label: str = Field(description="What it is called.")
    engine: str = Field(description="The engine.")
    machine: str = Field(
        description="The machine of a cluster that measured it; empty where there was no cluster."
    )
    cells: list[CellFacts] = Field(description="Its combinations.")


class DuelFacts(Answer):
    """How the first arm compares with another one at one core count and batch size."""

    other: int = Field(description="The index of the other arm.")
    num_cores: int = Field(description="Cores.")
    batch_size: int = Field(description="Batch size.")
    ratio: Estimate = Field(description="The first arm's time over the other's.")
    speedup: Estimate = Field(description="How many times as fast the first arm is.")
    verdict: str = Field(description="The first arm is faster, slower, the same, or it is inconclusive.")
    paired: bool = Field(description="Measured in turns, which is surer than results of different times.")
    outputs_match: bool | None = Field(description="Whether both compute the same; null where that is unknown.")
    notes: list[str] = Field(description="What to know of it.")

    @classmethod
    def of(cls, duel: cards.Duel) -> DuelFacts:
        """A record as it is given back."""
        copied = ("other", "num_cores", "batch_size", "verdict", "paired", "outputs_match")
        return cls(
            **{name: getattr(duel, name) for name in copied},
            ratio=Estimate.of(duel.ratio),
            speedup=Estimate.of(duel.speedup),
            notes=list(duel.notes),
        )


class CardFacts(Answer):
    """A benchmark or a comparison, opened; a capacity or a recommendation has lines of text instead of arms."""

    entry: EntryFacts = Field(description="What it is called, and where it comes from.")
    instruction_set: str = Field(description="The widest vector instructions of the machine that measured.")
    core_counts: list[int] = Field(description="All that were planned.")
    batch_sizes: list[int] = Field(description="All that were planned.")
    arms: list[ArmFacts] = Field(description="Engines, in each way of running.")
    duels: list[DuelFacts] = Field(description="How the first arm compares with each other one.")
    problems: list[str] = Field(description="What keeps a part of it from being shown.")
    lines: list[str] = Field(description="The text of what has no arms.")

    @classmethod
    def of(cls, card: cards.Card, entry: Entry, sources: Sources) -> CardFacts:
        """A record as it is given back."""
        return cls(
            entry=EntryFacts.of(entry, sources),
            instruction_set=card.instruction_set,
            core_counts=card.core_counts,
            batch_sizes=card.batch_sizes,
            arms=[
                ArmFacts(
                    label=arm.label,
                    engine=arm.engine,
                    machine=arm.machine,
                    cells=[CellFacts.of(one) for one in arm.outcomes],
                )
                for arm in card.arms
            ],
            duels=[DuelFacts.of(one) for one in card.duels],
            problems=list(card.problems),
            lines=list(card.lines),
        )


class DisturbedFacts(Answer):
    """A stretch in which something took a visible share of the time."""

    begin_s: float = Field(description="From when.")
    end_s: float = Field(description="To when.")
    by: str = Field(description="What it was.")


class IterationFacts(Answer):
    """Every iteration of a cell, in the order of time; processes follow each other as if none had to load."""

    median_ms: float = Field(description="The cell's median latency; its interval is on the card.")
    end_s: float = Field(description="When the last one ended.")
    process_begins_s: list[float] = Field(description="When each process began.")
    disturbed: list[DisturbedFacts] = Field(description="What was disturbed, and by what.")
    begins_s: list[float] = Field(description="When each iteration began, or was due.")
    latencies_ms: list[float] = Field(description="How long each took.")

    @classmethod
    def of(cls, track: Track) -> IterationFacts:
        """A record as it is given back."""
        return cls(
            median_ms=track.median_ms,
            end_s=track.end_s,
            process_begins_s=list(track.begins_s.values()),
            disturbed=[DisturbedFacts(begin_s=one.begin_s, end_s=one.end_s, by=one.by) for one in track.disturbed],
            begins_s=track.times_s.tolist(),
            latencies_ms=track.latencies_ms.tolist(),
        )
