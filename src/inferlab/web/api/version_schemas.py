"""What the HTTP API gives back of versions."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Literal

from pydantic import Field

from inferlab.records import optimization as made
from inferlab.views import optimization_words as words
from inferlab.web.api.schemas import Answer, ModelFacts
from inferlab.workspace.deliver import shown_recipe
from inferlab.workspace.sources import Sources
from inferlab.workspace.version_forms import Basis
from inferlab.workspace.versions import Version, is_ours


class SpeedLine(Answer):
    """A version against the original on one engine, measured in turns."""

    engine: str = Field(description="The engine.")
    num_cores: int = Field(description="Cores.")
    batch_size: int = Field(description="Batch size.")
    original_ms: float = Field(description="Milliseconds a batch of the original.")
    ms: float = Field(description="Milliseconds a batch of the version.")
    speedup: float = Field(description="How many times as fast the version is.")
    speedup_interval: list[float] | None = Field(description="Its low and high end.")
    level: float = Field(description="The confidence of the interval.")
    verdict: str = Field(description="The version is faster, slower, the same, or it is inconclusive.")
    foretold_speedup: float | None = Field(description="What the profiles foretold for this engine.")
    foretold_error: float | None = Field(description="Foretold time over measured time, less 1.")


class DistanceFacts(Answer):
    """How far the outputs of a version are from the original's."""

    relative_power: float | None = Field(description="The power of the change over that of the outputs.")
    items: int = Field(description="On so many inputs.")
    generated: bool = Field(description="They were generated, not given.")
    loss_rise: float | None = Field(description="The rise of the cross-entropy, with labels only.")
    accuracy: float | None = Field(description="With labels only.")
    original_accuracy: float | None = Field(description="The original's, on the same data.")


class VersionLine(Answer):
    """A version as lists show it."""

    id: str = Field(description="Its id.")
    name: str = Field(description="Its name.")
    created_at: datetime = Field(description="When it was made, in UTC.")
    project_id: str | None = Field(description="The project that it was made in; null from the command line.")
    file: Literal["there", "gone", "changed"] = Field(
        description="Whether its file is still the one that was made."
    )
    file_name: str = Field(description="The name of its file.")
    downloadable: bool = Field(description="It was made from the pages or over HTTP, and is still there.")
    precision: str = Field(description="FP32, INT8, …")
    pattern: str = Field(description="How its zeros lie; empty where it was not pruned.")
    quantization: str = Field(description="How it was quantised; empty where it was not.")
    zero_fraction: float | None = Field(description="The share of its weights that are zero.")
    parameters: int | None = Field(description="How many parameters it has.")
    size_bytes: int = Field(description="Size on the disk.")
    digest: str = Field(description="SHA-256 of its bytes.")
    distance: DistanceFacts | None = Field(description="How far its outputs are from the original's.")
    measured: list[SpeedLine] = Field(description="Its speed against the original, on each engine.")
    interrupted: bool = Field(description="It was stopped before all was measured.")
    problems: list[str] = Field(description="Why something that was asked for is not there.")

    @classmethod
    def of(cls, found: Version, sources: Sources) -> VersionLine:
        """A record as it is given back, without where its file lies."""
        copied = ("id", "name", "file", "precision", "pattern", "zero_fraction", "parameters", "size_bytes",
                  "digest", "distance", "interrupted")  # fmt: skip
        return cls(
            **{name: getattr(found, name) for name in copied},
            created_at=found.entry.created_at,
            project_id=found.entry.project_id,
            file_name=found.path.rpartition("/")[2],
            downloadable=found.file == "there" and is_ours(found.path),
            quantization=found.scheme,
            measured=[SpeedLine(**one) for one in found.measured],
            problems=[sources.without_folder(one) for one in found.problems],
        )


class VersionFacts(VersionLine):
    """A whole version: both models, what was done, and what became of every layer."""

    original: ModelFacts = Field(description="The model that it was made of.")
    optimized: ModelFacts = Field(description="What was made.")
    recipe: made.Recipe = Field(description="All that was done; see GET /versions/{entry_id}/recipe.")
    layers: list[made.ChangedLayer] = Field(description="Every weight as it was and as it is.")
    left_alone: dict[str, str] = Field(description="What could not be changed, and why.")
    notes: list[str] = Field(description="All that qualifies the numbers, in sentences.")

    @classmethod
    def whole(cls, found: Version, opened: made.Optimization, sources: Sources) -> VersionFacts:
        """A record as it is given back."""
        return cls(
            **VersionLine.of(found, sources).model_dump(),
            original=ModelFacts.of(opened.model, sources),
            optimized=ModelFacts.of(opened.optimized, sources),
            recipe=shown_recipe(opened.recipe, sources),
            layers=list(opened.layers),
            left_alone=dict(opened.left_alone),
            notes=[sources.without_folder(one) for one in words.notes(opened)],
        )


class EstimateFacts(Answer):
    """What shares of zeros would give, foretold by the profiles of the original."""

    levels: dict[str, float] = Field(description="The share of zeros of every weight that is pruned.")
    performance: str | None = Field(description="The profile that times are from; null: nothing is said of time.")
    loss_profile: str | None = Field(description="The profile that losses are from.")
    loss_method: str = Field(description="approximated, or how they were measured.")
    ms_per_batch: float | None = Field(description="Of the original in that profile.")
    estimated_ms_per_batch: float | None = Field(description="Null where times at levels were not measured.")
    estimated_speedup: float | None = Field(description="The same as a ratio.")
    int8_speedup: float | None = Field(description="How many times as fast an INT8 copy was in that profile.")
    parameter_reduction: float = Field(description="The share of all parameters that become zero.")
    loss: float | None = Field(
        description="The sum of the layers' losses; null where outputs are no numbers, or a loss was not measured."
    )
    recovery: float | None = Field(description="What is left of accuracy, or of the outputs' power.")
    unmeasured: list[str] = Field(description="Weights of `levels` whose losses were not measured.")

    @classmethod
    def of(cls, basis: Basis, levels: dict[str, float]) -> EstimateFacts:
        """What is foretold for these levels."""
        found = basis.foretold(levels)
        unmeasured = basis.unmeasured(found.levels)
        performance = basis.profile.performance
        return cls(
            levels=dict(found.levels),
            performance=basis.performance_id,
            loss_profile=basis.loss_id,
            loss_method=basis.loss.method,
            ms_per_batch=performance.ms_per_batch if performance else None,
            estimated_ms_per_batch=found.estimated_ms_per_batch,
            estimated_speedup=found.estimated_speedup,
            int8_speedup=basis.int8_speedup(),
            parameter_reduction=found.parameter_reduction,
            loss=found.loss if math.isfinite(found.loss) and not unmeasured else None,
            recovery=None if unmeasured else found.recovery,
            unmeasured=unmeasured,
        )
