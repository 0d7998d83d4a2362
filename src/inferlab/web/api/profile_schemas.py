"""Profiles as the HTTP API gives them back, and how two of them differ."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from inferlab.profiling import diff
from inferlab.records import profile as profiled
from inferlab.store.entries import Entry
from inferlab.web.api.schemas import Answer, Estimate, ModelFacts
from inferlab.workspace.sources import Sources


class PerformanceLine(Answer):
    """The measured part of a profile, as lists show it."""

    name: str = Field(description="Its name.")
    engine: str = Field(description="The engine.")
    batch_size: int = Field(description="Batch size.")
    num_cores: int = Field(description="Cores.")
    ms_per_batch: float = Field(description="Milliseconds a batch.")
    ms_interval: list[float] | None = Field(None, description="Its low and high end.")
    items_per_second: float = Field(description="Throughput.")
    items_interval: list[float] | None = Field(None, description="Its low and high end.")
    measured_at: str = Field(description="When it was measured.")


class LossLine(Answer):
    """The loss part of a profile, as lists show it."""

    name: str = Field(description="Its name.")
    method: str = Field(description="approximated, or how it was measured.")
    params: int = Field(description="Parameters of the model.")
    average_sensitivity: float | None = Field(description="The mean over its layers.")


class ProfileLine(Answer):
    """A profile as lists show it."""

    id: str = Field(description="Its id.")
    created_at: datetime = Field(description="When it was begun, in UTC.")
    title: str = Field(description="The model.")
    project_id: str | None = Field(description="The project that it was made in; null from the command line.")
    flops: int | None = Field(description="FLOPs of a batch, from the architecture.")
    performance: PerformanceLine | None = Field(description="Null where no layers were measured.")
    loss: LossLine | None = Field(description="Null where there are no losses.")
    interrupted: bool = Field(description="It was stopped before all was done.")
    problems: list[str] = Field(description="Why a part that was asked for is not there.")

    @classmethod
    def of(cls, entry: Entry, sources: Sources) -> ProfileLine:
        """A record as it is given back."""
        brief = entry.brief
        return cls(
            id=entry.id,
            created_at=entry.created_at,
            title=sources.without_folder(entry.title),
            project_id=entry.project_id,
            flops=brief.get("flops"),
            performance=brief.get("performance"),
            loss=brief.get("loss"),
            interrupted=bool(brief.get("interrupted")),
            problems=list(brief.get("problems") or ()),
        )


class ProfileFacts(Answer):
    """A whole profile, as `inferlab profile -x` writes it but for the model (see docs/profiles.md)."""

    id: str = Field(description="Its id; empty for what the architecture says and nobody saved.")
    format: str = Field(description="The version of its format.")
    inferlab: str = Field(description="The version that made it.")
    created_at: str = Field(description="When, in UTC.")
    model: ModelFacts = Field(description="The model.")
    flops: profiled.FlopsProfile | None = Field(description="What the architecture says.")
    performance: profiled.PerformanceProfile | None = Field(description="Where the time goes.")
    loss: profiled.LossProfile | None = Field(description="What pruning each layer costs.")
    estimate: profiled.PruningEstimate | None = Field(description="What pruning within the budget would give.")
    problems: list[str] = Field(description="Why a part that was asked for is not there.")
    interrupted: bool = Field(description="It was stopped before all was done.")

    @classmethod
    def of(cls, profile: profiled.Profile, sources: Sources) -> ProfileFacts:
        """A record as it is given back."""
        copied = ("id", "format", "inferlab", "created_at", "flops", "performance", "loss", "estimate",
                  "interrupted")  # fmt: skip
        return cls(
            **{name: getattr(profile, name) for name in copied},
            model=ModelFacts.of(profile.model, sources),
            problems=list(profile.problems),
        )


class DiffRow(Answer):
    """Layers of both profiles that cover the same nodes of the graph."""

    id: str = Field(description="The id of the slowest of them.")
    type: str = Field(description="Its type.")
    a_layers: list[int] = Field(description="The indexes of A's layers.")
    b_layers: list[int] = Field(description="The indexes of B's layers.")
    a_ms: float = Field(description="A's milliseconds an item.")
    b_ms: float = Field(description="B's milliseconds an item.")
    ratio: Estimate | None = Field(description="B's time over A's; null where only one has a time.")
    verdict: str = Field(description="B is faster, slower, the same, or it is inconclusive.")

    @classmethod
    def of(cls, row: diff.Row) -> DiffRow:
        """A record as it is given back."""
        copied = ("id", "type", "a_ms", "b_ms", "verdict")
        return cls(
            **{name: getattr(row, name) for name in copied},
            a_layers=[layer.index for layer in row.a],
            b_layers=[layer.index for layer in row.b],
            ratio=Estimate.of(row.ratio) if row.ratio else None,
        )


class DiffFacts(Answer):
    """How a profile (B) compares with another (A), the largest difference first; times are those an item."""

    labels: list[str] = Field(description="What A and B are.")
    a_ms: float = Field(description="A's milliseconds an item, of the whole model.")
    b_ms: float = Field(description="B's milliseconds an item.")
    ratio: Estimate = Field(description="B's time over A's.")
    verdict: str = Field(description="B is faster, slower, the same, or it is inconclusive.")
    margin: float = Field(description="Differences below this share count as none.")
    differences: list[str] = Field(description="In what else the two differ.")
    rows: list[DiffRow] = Field(description="Layer by layer; the intervals hold for all rows together.")

    @classmethod
    def of(cls, found: diff.LayerDiff) -> DiffFacts:
        """A record as it is given back."""
        return cls(
            labels=list(found.labels),
            a_ms=found.a_ms,
            b_ms=found.b_ms,
            ratio=Estimate.of(found.ratio),
            verdict=found.verdict,
            margin=found.margin,
            differences=list(found.differences),
            rows=[DiffRow.of(one) for one in found.rows],
        )
