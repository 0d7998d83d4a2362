"""What the HTTP API gives back, with a description of every field; what is not a number is null."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from inferlab import records
from inferlab.errors import InferlabError
from inferlab.measure.intervals import LEVEL
from inferlab.store.entries import CellEntry, Entry, JobKind, JobStatus, Project, ProjectLine, QueuedJob
from inferlab.workspace import asked as requests
from inferlab.workspace.asked import Asked, InstallAsked, OptimizationAsked
from inferlab.workspace.engines import Licence
from inferlab.workspace.entries import name_of
from inferlab.workspace.forms import has_sequence, own_batch_size
from inferlab.workspace.sources import Sources
from inferlab.workspace.work import plans_of


class Answer(BaseModel):
    """What is given back."""

    model_config = ConfigDict(frozen=True)


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

    @classmethod
    def of(cls, found: records.Estimate) -> Estimate:
        """A record as it is given back."""
        return cls(value=found.value, low=found.low, high=found.high, level=found.level, method=found.method)


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
    def of(cls, model: records.Model, sources: Sources) -> ModelFacts:
        """A record as it is given back, without where its file lies."""
        copied = ("kind", "digest", "size_bytes", "opset", "parameters", "zero_fraction", "precision",
                  "quantization", "random")  # fmt: skip
        return cls(
            source=sources.shown(model.source),
            file_name=Path(model.path).name,
            **{name: getattr(model, name) for name in copied},
            own_batch_size=own_batch_size(model),
            takes_sequence_length=has_sequence(model),
            inputs=_tensors(model.inputs),
            outputs=_tensors(model.outputs),
        )


def _tensors(specs: Sequence[records.TensorSpec]) -> list[Tensor]:
    return [
        Tensor(name=one.name, dtype=one.dtype, dims=None if one.dims is None else list(one.dims)) for one in specs
    ]


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
    wrong: bool = Field(description="Its outputs are not what they should be: its numbers are worth nothing.")

    @classmethod
    def of(cls, entry: CellEntry) -> CellLine:
        """A record as it is given back."""
        copied = ("engine", "scenario", "num_cores", "num_streams", "batch_size", "sequence_length", "rate",
                  "time_s")  # fmt: skip
        return cls(
            cell_id=entry.cell_id,
            **{name: getattr(entry.cell, name) for name in copied},
            status=entry.status,
            failure=failure(entry.failure),
            processes=entry.runs,
            items_per_second=_cached(entry.items_per_sec, entry.items_per_sec_low, entry.items_per_sec_high),
            ms_per_batch=_cached(entry.median_ms, entry.median_ms_low, entry.median_ms_high),
            wrong=entry.wrong,
        )


def failure(found: records.Failure | None) -> Failure | None:
    """A failure as it is given back."""
    return None if found is None else Failure(code=found.code, message=found.message)


def _cached(value: float | None, low: float | None, high: float | None) -> Estimate | None:
    if value is None:
        return None
    return Estimate(value=value, low=low, high=high, level=LEVEL, method="student")


class Ratio(Answer):
    """One result of a comparison, as lists show it."""

    ratio: float | None = Field(description="B's time over A's.")
    interval: list[float] | None = Field(description="Its low and high end.")
    verdict: str = Field(description="B is faster, slower, the same, or it is inconclusive.")
    paired: bool = Field(description="Measured in turns.")
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
    def of(cls, entry: Entry, sources: Sources) -> EntryFacts:
        """A record as it is given back."""
        return cls(**_heading(entry, sources))


class EntryLine(EntryFacts):
    """A line of the history: a benchmark, a comparison, a capacity, a recommendation, a profile or a version."""

    cells: list[CellLine] = Field(description="Its combinations; of a comparison A and B in turn.")
    labels: list[str] = Field(description="What a comparison calls A and B.")
    ratios: list[Ratio] = Field(description="The results of a comparison.")

    @classmethod
    def of(cls, entry: Entry, sources: Sources) -> EntryLine:
        """A record as it is given back."""
        return cls(
            **_heading(entry, sources),
            cells=[CellLine.of(one) for one in entry.cells],
            labels=list(entry.brief.get("labels") or ()),
            ratios=[Ratio(**one) for one in entry.brief.get("results") or ()],
        )


def _heading(entry: Entry, sources: Sources) -> dict[str, Any]:
    names = ("id", "kind", "created_at", "status", "project_id", "note", "node", "inferlab_version")
    title, against = sources.without_folder(entry.title), entry.brief.get("against")
    own = {"name": name_of(entry), "title": title, "against": against}
    return {name: getattr(entry, name) for name in names} | own


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
    def of(cls, project: Project, sources: Sources) -> ProjectFacts:
        """A record as it is given back."""
        return cls(**_about(project, sources))


class ProjectSummary(ProjectFacts):
    """A project in a list, with what was measured of it."""

    active_at: datetime = Field(description="When something was measured or changed last.")
    benchmarks: int = Field(description="How many benchmarks and comparisons it has.")
    profiles: int = Field(description="How many profiles it has.")
    best: CellLine | None = Field(description="Its cell of highest throughput whose outputs are right.")

    @classmethod
    def of_line(cls, line: ProjectLine, sources: Sources) -> ProjectSummary:
        """A record as it is given back."""
        return cls(
            **_about(line.project, sources),
            active_at=line.active_at,
            benchmarks=line.benchmarks,
            profiles=line.profiles,
            best=CellLine.of(line.best) if line.best else None,
        )


def _about(project: Project, sources: Sources) -> dict[str, Any]:
    names = ("id", "name", "description", "created_at", "changed_at", "input_shapes")
    return {name: getattr(project, name) for name in names} | {"model": ModelFacts.of(project.model, sources)}


class AskedFor(Answer):
    """What a job measures or installs."""

    engines: list[str] = Field(description="Engines.")
    num_cores: list[int | None] = Field(description="Core counts; null is all cores.")
    batch_sizes: list[int | None] = Field(description="Batch sizes; null is the model's own.")
    scenarios: list[str] = Field(description="How requests are issued.")
    time_s: float | None = Field(description="Seconds for each measurement.")

    @classmethod
    def of(cls, asked: Asked) -> AskedFor:
        """A record as it is given back."""
        plans = plans_of(asked)
        if isinstance(asked, OptimizationAsked):
            engines = list(asked.asked.engines)
        elif isinstance(asked, InstallAsked):
            engines = [asked.engine]
        else:
            engines = [one for plan in plans for one in plan.engines]
        return cls(
            engines=engines,
            num_cores=list(plans[0].num_cores) if plans else [],
            batch_sizes=list(plans[0].batch_sizes) if plans else [],
            scenarios=list(plans[0].scenarios) if plans else [],
            time_s=plans[0].time_s if plans else None,
        )


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
    def of(cls, job: QueuedJob, position: int | None) -> JobFacts:
        """A record as it is given back."""
        return cls(**_of_job(job, position))


class JobDetails(JobFacts):
    """A job with its log."""

    log: str = Field(description="All lines that a terminal would have shown.")

    @classmethod
    def of(cls, job: QueuedJob, position: int | None) -> JobDetails:
        """A record as it is given back."""
        return cls(**_of_job(job, position), log=job.log)


def _of_job(job: QueuedJob, position: int | None) -> dict[str, Any]:
    names = ("id", "kind", "status", "stage", "fraction", "left_s", "failure", "project_id", "entry_id", "node",
             "created_at", "queued_at", "started_at", "ended_at")  # fmt: skip
    try:
        asked = AskedFor.of(requests.from_content(job.kind, job.content))
    except InferlabError:
        asked = None
    given = {name: getattr(job, name) for name in names}
    alive = position if job.alive else None
    return {**given, "position": alive, "cancelling": job.cancel and job.status == "running", "asked": asked}


class LicenceFacts(Answer):
    """What is agreed to before an engine is installed."""

    name: str = Field(description="The licence's name.")
    summary: str = Field(description="What it says, in a few sentences.")
    size_bytes: int = Field(description="About how much is downloaded and kept.")

    @classmethod
    def of(cls, found: Licence) -> LicenceFacts:
        """A record as it is given back."""
        return cls(name=found.name, summary=found.summary, size_bytes=found.size_bytes)
