"""What the HTTP API gives back, with a description of every field; what is not a number is null."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from inferlab import records
from inferlab.errors import InferlabError
from inferlab.measure.intervals import LEVEL
from inferlab.store.entries import CellEntry, Entry, JobKind, JobStatus, Project, ProjectLine, QueuedJob
from inferlab.workspace import requests
from inferlab.workspace.entries import name_of
from inferlab.workspace.jobs import plans_of
from inferlab.workspace.requests import (
    InstallRequest,
    JobRequest,
    OptimizationRequest,
    has_sequence,
    own_batch_size,
)
from inferlab.workspace.sources import Sources


class Answer(BaseModel):
    """What is given back: fields of a record under their names, and what `more` derives."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    @classmethod
    def of(cls, record: Any, context: Any = None) -> Self:
        """A record as it is given back; `context` is what more is needed to say it."""
        derived = cls.more(record, context)
        copied = {name: getattr(record, name) for name in cls.model_fields if name not in derived}
        return cls.model_validate({**copied, **derived})

    @classmethod
    def more(cls, record: Any, context: Any) -> dict[str, Any]:
        """The fields that the record does not have, or has otherwise."""
        return {}


class Problem(Answer):
    """Why a request was not done."""

    detail: str = Field(description="What is wrong, with which thing, and what to do next; for people to read.")


class Estimate(Answer):
    """A number with its interval."""

    value: float | None = Field(description="The number.")
    low: float | None = Field(description="The low end; null where too little was measured for an interval.")
    high: float | None = Field(description="The high end.")
    level: float = Field(description="The confidence of the interval, such as 0.95.")
    method: str = Field(description="How the interval was made: student, welch or signed-rank.")


class Failure(Answer):
    """Why something has no result."""

    code: str = Field(description="refused, died or hung.")
    message: str = Field(description="What happened, with the last that the engine said.")


class Tensor(Answer):
    """An input or output of a model."""

    name: str = Field(description="Its name in the model.")
    dtype: str = Field(description="The type of its elements.")
    dims: list[int | str | None] | None = Field(
        description="Sizes; a name where it is symbolic, null where unknown. Null as a whole: not even the rank."
    )


class ModelFacts(Answer):
    """What a model is."""

    source: str = Field(description="As it was named; `upload:ID` for one that was uploaded.")
    file_name: str = Field(description="The name of its file.")
    kind: str = Field(description="onnx, openvino, torch-export, torchscript or transformers.")
    digest: str = Field(description="SHA-256 of its bytes, weights in files of their own included.")
    size_bytes: int = Field(description="Size on the disk.")
    opset: int | None = Field(description="The ONNX opset.")
    parameters: int | None = Field(description="How many parameters it has.")
    zero_fraction: float | None = Field(description="The share of its weights that are zero.")
    precision: str = Field(description="FP32, INT8, …")
    quantization: str = Field(description="How INT8 shows; empty for other precisions.")
    random: bool = Field(description="The same inputs may give different outputs.")
    own_batch_size: int = Field(description="The batch size where nobody asks for another.")
    takes_sequence_length: bool = Field(description="Whether the length of a sequence can be chosen.")
    inputs: list[Tensor] = Field(description="Its inputs.")
    outputs: list[Tensor] = Field(description="Its outputs.")

    @classmethod
    def more(cls, record: records.Model, context: Sources) -> dict[str, Any]:
        """Where its file lies is not given away."""
        return {
            "source": context.shown(record.source),
            "file_name": Path(record.path).name,
            "own_batch_size": own_batch_size(record),
            "takes_sequence_length": has_sequence(record),
        }


class CellLine(Answer):
    """One combination of a benchmark, as lists show it."""

    cell_id: str = Field(description="A hash of all that was fixed: the same for the same conditions.")
    engine: str = Field(description="The engine.")
    scenario: str = Field(description="How requests were issued.")
    num_cores: int = Field(description="Cores.")
    num_streams: int = Field(description="Streams.")
    batch_size: int = Field(description="Batch size.")
    sequence_length: int | None = Field(description="As it was asked for.")
    rate: float | None = Field(description="Requests a second, of the scenario server.")
    time_s: float = Field(description="Seconds of measuring that were asked for.")
    status: records.Status = Field(description="done, failed, cancelled or pending.")
    failure: Failure | None = Field(description="Why it has no result.")
    processes: int = Field(description="Fresh processes that measured it so far.")
    items_per_second: Estimate | None = Field(description="Throughput; null until it is finished.")
    ms_per_batch: Estimate | None = Field(description="Median latency; null until it is finished.")
    wrong: bool = Field(description="Its outputs are not what they should be: its numbers are meaningless.")

    @classmethod
    def more(cls, record: CellEntry, context: None) -> dict[str, Any]:
        """What was fixed comes from the cell, numbers from the cache."""
        return {
            **of_cell(record.cell, cls),
            "processes": record.runs,
            "items_per_second": _cached(record.items_per_sec, record.items_per_sec_low, record.items_per_sec_high),
            "ms_per_batch": _cached(record.median_ms, record.median_ms_low, record.median_ms_high),
        }


def of_cell(cell: records.Cell, answer: type[Answer]) -> dict[str, Any]:
    """What of a cell has the names of an answer's fields."""
    return {name: getattr(cell, name) for name in answer.model_fields if name in cell.__slots__}


def _cached(value: float | None, low: float | None, high: float | None) -> Estimate | None:
    if value is None:
        return None
    return Estimate(value=value, low=low, high=high, level=LEVEL, method="student")


class Ratio(Answer):
    """One result of a comparison, as lists show it."""

    ratio: float | None = Field(description="B's time over A's.")
    interval: list[float] | None = Field(description="Its low and high end.")
    verdict: str = Field(description="B is faster, slower, the same, or it is inconclusive.")
    paired: bool = Field(description="Measured interleaved.")
    outputs_match: bool | None = Field(description="Whether both compute the same; null where that is unknown.")


class EntryFacts(Answer):
    """What an entry is called, and where it comes from."""

    id: str = Field(description="Its id.")
    kind: str = Field(description="benchmark, comparison, capacity, recommendation, profile or version.")
    created_at: datetime = Field(description="When it was begun, in UTC.")
    name: str = Field(description="What it is called; PATCH /entries/{entry_id} renames it.")
    title: str = Field(description="The model, or what was compared.")
    status: records.Status = Field(description="done, failed, cancelled or pending; the worst of its cells.")
    project_id: str | None = Field(description="The project that it was made in; null from the command line.")
    note: str = Field(description="The user's note.")
    node: str = Field(description="The machine that measured.")
    inferlab_version: str = Field(description="The version that measured.")
    against: str | None = Field(description="The benchmark that it is compared with.")

    @classmethod
    def more(cls, record: Entry, context: Sources) -> dict[str, Any]:
        """What it is called, without folders of the server."""
        title, against = context.without_folder(record.title), record.brief.get("against")
        return {"name": name_of(record), "title": title, "against": against}


class EntryLine(EntryFacts):
    """A line of the history: a benchmark, a comparison, a capacity, a recommendation, a profile or a version."""

    cells: list[CellLine] = Field(description="Its combinations; of a comparison A and B in turn.")
    labels: list[str] = Field(description="What a comparison calls A and B.")
    ratios: list[Ratio] = Field(description="The results of a comparison.")

    @classmethod
    def more(cls, record: Entry, context: Sources) -> dict[str, Any]:
        """What lists show beside its name."""
        return super().more(record, context) | {
            "cells": [CellLine.of(one) for one in record.cells],
            "labels": record.brief.get("labels") or (),
            "ratios": record.brief.get("results") or (),
        }


class ProjectFacts(Answer):
    """A project: a model with a name."""

    id: str = Field(description="Its id.")
    name: str = Field(description="Its name.")
    description: str = Field(description="Its description.")
    created_at: datetime = Field(description="When it was made, in UTC.")
    changed_at: datetime = Field(description="When its name or description changed last.")
    input_shapes: str = Field(description="The shapes that its inputs get by default; empty for guessed ones.")
    model: ModelFacts = Field(description="Its model.")

    @classmethod
    def more(cls, record: Project, context: Sources) -> dict[str, Any]:
        """Its model, without where that lies."""
        return {"model": ModelFacts.of(record.model, context)}


class ProjectSummary(ProjectFacts):
    """A project in a list, with what was measured of it."""

    active_at: datetime = Field(description="When something was measured or changed last.")
    benchmarks: int = Field(description="How many benchmarks and comparisons it has.")
    profiles: int = Field(description="How many profiles it has.")
    best: CellLine | None = Field(description="Its cell of highest throughput whose outputs are right.")

    @classmethod
    def more(cls, record: ProjectLine, context: Sources) -> dict[str, Any]:  # type: ignore[override]
        """The project itself, and its best result."""
        best = CellLine.of(record.best) if record.best else None
        return {**ProjectFacts.of(record.project, context).model_dump(), "best": best}


class AskedFor(Answer):
    """What a job measures or installs."""

    engines: list[str] = Field(description="Engines.")
    num_cores: list[int | None] = Field(description="Core counts; null is all cores.")
    batch_sizes: list[int | None] = Field(description="Batch sizes; null is the model's own.")
    scenarios: list[str] = Field(description="How requests are issued.")
    time_s: float | None = Field(description="Seconds for each measurement.")

    @classmethod
    def more(cls, record: JobRequest, context: None) -> dict[str, Any]:
        """All of it: what is asked is one of several records."""
        plans = plans_of(record)
        if isinstance(record, OptimizationRequest):
            engines = list(record.asked.engines)
        elif isinstance(record, InstallRequest):
            engines = [record.engine]
        else:
            engines = [one for plan in plans for one in plan.engines]
        lists = {
            name: getattr(plans[0], name) if plans else () for name in ("num_cores", "batch_sizes", "scenarios")
        }
        return {"engines": engines, "time_s": plans[0].time_s if plans else None, **lists}


class JobFacts(Answer):
    """Something in the queue, being measured or measured."""

    id: str = Field(description="Its id.")
    kind: JobKind = Field(description="benchmark, comparison, profile, optimization or install.")
    status: JobStatus = Field(description="queued, running, done, failed, cancelled or interrupted.")
    position: int | None = Field(description="How many jobs go before it; null when it has ended.")
    cancelling: bool = Field(description="The user wants it to end, and it will in a moment.")
    stage: str = Field(description="What is being done.")
    fraction: float | None = Field(description="The share that is done, 0 to 1; null where unknown.")
    left_s: float | None = Field(description="About how many seconds are left.")
    failure: str = Field(description="Why it failed.")
    project_id: str | None = Field(description="Its project.")
    entry_id: str | None = Field(description="The entry that it makes, from when there is one.")
    node: str = Field(description="The machine that measures it.")
    created_at: datetime = Field(description="When it was asked for, in UTC.")
    queued_at: datetime = Field(description="When it was queued last.")
    started_at: datetime | None = Field(description="When it was begun last.")
    ended_at: datetime | None = Field(description="When it ended.")
    asked: AskedFor | None = Field(description="What it measures; null where another version asked.")

    @classmethod
    def more(cls, record: QueuedJob, context: int | None) -> dict[str, Any]:
        """Its place in the queue, and what it measures."""
        try:
            asked = AskedFor.of(requests.from_content(record.kind, record.content))
        except InferlabError:
            asked = None
        ending = record.cancel and record.status == "running"
        return {"position": context if record.alive else None, "cancelling": ending, "asked": asked}


class JobDetails(JobFacts):
    """A job with its log."""

    log: str = Field(description="All lines that a terminal would have shown.")


class LicenceFacts(Answer):
    """What is agreed to before an engine is installed."""

    name: str = Field(description="The licence's name.")
    summary: str = Field(description="What it says, in a few sentences.")
    size_bytes: int = Field(description="About how much is downloaded and kept.")
