"""What requests of the HTTP API may have: the fields that are named here and no others."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from inferlab.profiling.options import NAME
from inferlab.records import Scenario
from inferlab.records.optimization import Scheme
from inferlab.workspace.requests import BenchmarkForm, ProfileForm
from inferlab.workspace.version_forms import VersionForm

# Larger numbers are slips of the finger, and not all databases take them.
_MOST = 2**31 - 1
_Count = Annotated[int, Field(ge=1, le=_MOST)]


_SHAPES = (
    "The shapes of the inputs, `[1,3,224,224]` for each in order or `name=[1,384],other=[1,384]`; empty for "
    "guessed ones."
)
_OTHER_SHAPES = f"{_SHAPES} Null is the project's."


class Asking(BaseModel):
    """A request: with a field that is not known, or of another type, it is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class ModelAsking(Asking):
    """A model to look at."""

    source: str = Field(
        description="`upload:ID`, a path below an allowed folder, an https:// address, `hf:org/name`, `zoo:STUB` "
        "or `demo:NAME`.",
        examples=["demo:mobilenet_v2"],
    )


class ProjectAsking(ModelAsking):
    """A new project."""

    name: str = Field(description="Its name, up to 80 characters.", examples=["MobileNet"])
    description: str = Field("", description="Anything, up to 2,000 characters.")
    input_shapes: str = Field("", description=_SHAPES, examples=["[1,3,48,320]"])


class ProjectChange(Asking):
    """What of a project shall change; what is left out stays."""

    name: str | None = Field(None, description="Its new name.")
    description: str | None = Field(None, description="Its new description.")
    input_shapes: str | None = Field(None, description="Its new input shapes; empty for guessed ones.")


class EntryChange(Asking):
    """What of an entry shall change."""

    name: str = Field(description="Its new name, up to 80 characters.")


class Agreement(Asking):
    """The user's agreement to a licence."""

    agree: Literal[True] = Field(description="True: the licence that GET /engines shows was agreed to.")


class BenchmarkAsking(Asking):
    """A benchmark, or an interleaved comparison: of two engines, two versions, or both."""

    engine: str = Field("onnxruntime", description="An engine of GET /engines; a file is refused.")
    num_cores: list[_Count | None] = Field([None], description="Core counts to measure; null is all cores.")
    batch_sizes: list[_Count | None] = Field(
        [None], description="Batch sizes to measure, each at each core count; null is the model's own."
    )
    scenario: Scenario = Field("sync", description="How requests are issued.")
    num_streams: _Count | None = Field(None, description="Streams; null is the scenario's default.")
    rate: float | None = Field(None, description="Requests a second, for the scenario server.")
    sequence_length: _Count | None = Field(None, description="Where the model leaves it open.")
    input_shapes: str | None = Field(None, description=_OTHER_SHAPES)
    time_s: float = Field(10.0, description="Seconds of measuring for each combination, or each comparison.")
    version: str | None = Field(None, description="The id of a version; null is the model as it is.")
    compare_engine: str | None = Field(None, description="Measure interleaved with this engine, and compare.")
    compare_version: str | None = Field(
        None, description="The version on the other side; the engine may be the same where the versions differ."
    )
    against: str | None = Field(
        None, description="Or compare with the benchmark of this id; its cores and batch sizes are measured."
    )

    def form(self) -> BenchmarkForm:
        """As the workspace takes it."""
        given = self.model_dump()
        return BenchmarkForm(
            **{**given, "num_cores": tuple(self.num_cores), "batch_sizes": tuple(self.batch_sizes)}
        )


class ProfileAsking(Asking):
    """Profiles to make; what is switched off is approximated from the architecture."""

    performance: bool = Field(True, description="Measure where the time goes.")
    loss: bool = Field(True, description="Measure what pruning each layer costs.")
    performance_name: str = Field(NAME, description="The name of the performance profile.")
    loss_name: str = Field(NAME, description="The name of the loss profile.")
    engine: str = Field("onnxruntime", description="An engine with the capability layer_times.")
    batch_size: _Count | None = Field(None, description="Null is the model's own.")
    num_cores: _Count | None = Field(None, description="Null is all cores.")
    sequence_length: _Count | None = Field(None, description="Where the model leaves it open.")
    input_shapes: str | None = Field(None, description=_OTHER_SHAPES)
    levels: bool = Field(False, description="Measure copies with zeroed weights on engines that impose none.")
    int8: bool = Field(False, description="Measure an INT8 copy.")
    roofline: bool = Field(True, description="Measure the ceilings of the machine.")
    data: str | None = Field(
        None,
        description="An .npz of inputs, perhaps with labels: `upload:ID`, an allowed path, or `demo:digits`.",
    )
    time_s: float = Field(10.0, description="Seconds for each measurement.")
    version: str | None = Field(None, description="The id of a version; null is the model as it is.")

    def form(self) -> ProfileForm:
        """As the workspace takes it."""
        return ProfileForm(**self.model_dump())


_Share = Annotated[float, Field(ge=0, lt=1)]


class LevelsAsking(Asking):
    """Shares of zeros: alike for all layers, by the names of weights, or by a loss budget; one of the three."""

    sparsity: _Share | None = Field(None, description="Of every layer but the first, the last and grouped ones.")
    levels: dict[str, _Share] = Field({}, description="By the name of the weight.", examples=[{"fc.weight": 0.8}])
    budget: float | None = Field(
        None, ge=0, description="The loss that may be spent; the profiles choose the layers."
    )
    performance: str | None = Field(None, description="The profile to take times from; null is the newest.")
    loss: str | None = Field(None, description="The profile to take losses from; null is the newest.")
    pattern: str = Field(
        "unstructured", description="How zeros lie: unstructured, block4, N:M (such as 2:4) or channel."
    )
    quantization: Scheme | None = Field(None, description="static or dynamic INT8, weights only, or fp16.")

    def form(self) -> VersionForm:
        """As the workspace takes it."""
        return VersionForm(name="", **self.model_dump())


class VersionAsking(LevelsAsking):
    """A version to make: pruned, quantised, or both; then compared with the original on each engine."""

    name: str = Field(description="Its name, up to 80 characters.", examples=["Pruned 80 %"])
    engines: list[str] = Field(["onnxruntime"], description="Engines to measure on; none makes it only.")
    batch_size: _Count | None = Field(None, description="Null is the model's own.")
    num_cores: _Count | None = Field(None, description="Null is all cores.")
    sequence_length: _Count | None = Field(None, description="Where the model leaves it open.")
    input_shapes: str | None = Field(None, description=_OTHER_SHAPES)
    data: str | None = Field(
        None,
        description="An .npz of inputs, perhaps with labels: `upload:ID`, an allowed path, or `demo:digits`. "
        "Ranges of static INT8 are found on it; without it, on generated inputs.",
    )
    time_s: float = Field(10.0, description="Seconds for each comparison.")

    def form(self) -> VersionForm:
        """As the workspace takes it."""
        return VersionForm(**{**self.model_dump(), "engines": tuple(self.engines)})
