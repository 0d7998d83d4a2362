"""What `run()` returns: fields that Hugging Face users know, the models' sizes, and why a cell has no value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, get_args

from inferlab.records import Finding, Outcome, OutputCheck, Run

if TYPE_CHECKING:
    from inferlab.transformers.arguments import BenchmarkArguments

#: A megabyte, as Hugging Face counts it.
MB = 1 << 20
NOT_AVAILABLE = "N/A"
INTERRUPTED = "It was interrupted before it was measured."
Stage = Literal["inference", "training"]
#: {model: {"bs": batch sizes, "ss": sequence lengths, "result": {batch size: {sequence length: value}}}}
Table = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Memory:
    """The model's own memory: over what the same process took before it loaded the model."""

    #: At most, over loading and running.
    bytes: int
    #: When the last measurement ended.
    steady_bytes: int

    @property
    def megabytes(self) -> float:
        """The peak in megabytes of 2**20 bytes."""
        return self.bytes / MB

    @property
    def steady_megabytes(self) -> float:
        """What stays, in megabytes of 2**20 bytes."""
        return self.steady_bytes / MB

    def __str__(self) -> str:
        return f"{self.megabytes:.3g}" if self.megabytes < 1000 else f"{self.megabytes:.0f}"


@dataclass(frozen=True, slots=True)
class Measured:
    """All that is known of one cell; `time_s` and `memory` are None where there is none, and `reason` says why."""

    #: The typical process's median of a call or a training step, with its interval where processes are enough.
    time_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    #: The median of each process.
    process_times_s: tuple[float, ...] = ()
    #: Calls or steps that were timed.
    iterations: int = 0
    memory: Memory | None = None
    #: How the outputs compare with the reference; of a training step, how the loss moved.
    check: OutputCheck | None = None
    losses: tuple[float, float] | None = None
    #: What its reader must know: noise, outputs that were not checked, a batch that the model does not take, …
    findings: tuple[Finding, ...] = ()
    versions: Mapping[str, str] | None = None
    settings: Mapping[str, Any] | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """A cell without a value, and why."""

    model: str
    stage: Stage
    batch_size: int
    sequence_length: int
    reason: str


@dataclass(frozen=True, slots=True)
class BenchmarkOutput:
    """The results of a benchmark; tables of what was not asked for are empty.

    It unpacks into the six tables of Hugging Face's named tuple; sizes and reasons are attributes beside them.
    """

    time_inference_result: Table
    memory_inference_result: Table
    time_train_result: Table
    memory_train_result: Table
    #: `Measured` for every cell.
    inference_summary: Table
    train_summary: Table
    #: Megabytes of 2**20 bytes on disk, external data included; "N/A" where the model cannot be read.
    model_sizes: dict[str, float | str]
    #: The cells that are "N/A".
    missing: tuple[Missing, ...]

    def __iter__(self) -> Iterator[Table]:
        yield from (self.time_inference_result, self.memory_inference_result)
        yield from (self.time_train_result, self.memory_train_result)
        yield from (self.inference_summary, self.train_summary)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, index: int) -> Table:
        return tuple(self)[index]


Cells = dict[tuple[int, int], Measured]


def from_outcome(outcome: Outcome) -> Measured:
    """What an outcome of the lab says of its cell."""
    # Late, with NumPy in it: importing the classes must be quick.
    from inferlab.measure import check, findings, stats

    if outcome.failure is not None:
        return Measured(reason=outcome.failure.message)
    summary = stats.summarize(outcome.cell, outcome.runs)
    if summary is None or outcome.status != "done":
        return Measured(reason=INTERRUPTED)
    time = summary.median_ms
    return Measured(
        time_s=time.value / 1e3,
        low_s=None if time.low is None else time.low / 1e3,
        high_s=None if time.high is None else time.high / 1e3,
        process_times_s=tuple(stats.median_ms(run) / 1e3 for run in stats.with_samples(outcome.runs)),
        iterations=summary.iterations,
        memory=memory_of([_resident(run) for run in outcome.runs]),
        check=check.worst([run.check for run in outcome.runs]),
        findings=findings.find_all(outcome),
        versions=outcome.runs[0].versions,
        settings=outcome.runs[0].settings,
    )


def memory_of(resident: Sequence[tuple[int | None, int | None, int | None]]) -> Memory | None:
    """The largest peak and the typical rest over the baseline, of processes' (baseline, peak, steady)."""
    complete = [(base, peak, rest) for base, peak, rest in resident if base is not None and peak is not None]
    if not complete:
        return None
    peak = max(peak - base for base, peak, _ in complete)
    rests = [rest - base for base, _, rest in complete if rest is not None]
    # A page that was given back after the baseline was read may leave less than nothing.
    return Memory(max(0, peak), max(0, round(median(rests))) if rests else max(0, peak))


def _resident(run: Run) -> tuple[int | None, int | None, int | None]:
    return run.baseline_memory_bytes, run.peak_memory_bytes, run.steady_memory_bytes


def output(
    args: BenchmarkArguments, cells: Mapping[Stage, Mapping[str, Cells]], sizes: dict[str, float | str]
) -> BenchmarkOutput:
    """The result, of every cell by stage and model."""

    def tables(pick: Callable[[Measured], Any], shown: bool = True) -> Iterator[Table]:
        """Tables in Hugging Face's shape, of what `pick` takes from each cell: inference, training."""
        for stage in get_args(Stage):
            yield {
                name: {
                    "bs": list(args.batch_sizes),
                    "ss": list(args.sequence_lengths),
                    "result": {
                        size: {length: pick(measured[size, length]) for length in args.sequence_lengths}
                        for size in args.batch_sizes
                    },
                }
                for name, measured in (cells.get(stage, {}) if shown else {}).items()
            }

    def known(value: Any) -> Any:
        return NOT_AVAILABLE if value is None else value

    times, memories = (
        tables(lambda cell: known(cell.time_s), args.speed),
        tables(lambda cell: known(cell.memory), args.memory),
    )
    summaries = tables(lambda cell: cell)
    return BenchmarkOutput(
        time_inference_result=next(times),
        memory_inference_result=next(memories),
        time_train_result=next(times),
        memory_train_result=next(memories),
        inference_summary=next(summaries),
        train_summary=next(summaries),
        model_sizes=sizes,
        missing=tuple(gap for stage in cells for gap in missing(cells[stage], stage, args.memory)),
    )


def missing(cells: Mapping[str, Cells], stage: Stage, memory: bool) -> list[Missing]:
    """The cells that lack a value that was asked for."""
    gaps = []
    for name, of_model in cells.items():
        for (size, length), cell in of_model.items():
            if cell.time_s is None:
                gaps.append(Missing(name, stage, size, length, cell.reason))
            elif memory and cell.memory is None:
                gaps.append(Missing(name, stage, size, length, "This system does not tell a process's memory."))
    return gaps
