"""The child processes of one cell: loaded, checked, warmed up and measured together, window by window."""

from __future__ import annotations

import datetime
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from inferlab import machine
from inferlab.child import protocol
from inferlab.child.loop import MOST_SAMPLES
from inferlab.errors import EngineFailed
from inferlab.measure import check
from inferlab.measure.check import Arrays
from inferlab.measure.headline import SCHEDULERS
from inferlab.measure.intervals import steady
from inferlab.measure.stats import latencies_ns, typical_call_s
from inferlab.records import OutputCheck, Run, Samples, Window
from inferlab.version import __version__
from inferlab.worker import Launch, Reply, Worker

if TYPE_CHECKING:
    from inferlab.measure.prepare import Job, Layout, Setup

# Long enough for every child to read its request and get ready.
_LEAD_NS = 30_000_000
# A slice that was cut short answers as soon as its inference is over.
_CUT_SHORT_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Slice:
    """One window, with what is known of the processes at its end."""

    window: Window
    peak_memory_bytes: int | None
    steady_memory_bytes: int | None
    interrupted: bool
    fraction_of_supported_ops: float | None
    #: The engine's settings in force.
    settings: Mapping[str, Any]


class Crew:
    """A context manager over the children of a cell."""

    def __init__(
        self, launch: Launch, layout: Layout, patience_s: float, tick: Callable[[], None] | None = None
    ) -> None:
        self._layout = layout
        self._watched = _watched(layout)
        self._left = MOST_SAMPLES
        # Several processes take their requests from one file: reading moves an offset that all of them share.
        self._queue = tempfile.TemporaryFile() if len(layout.children) > 1 else None  # noqa: SIM115  see __exit__
        shared = () if self._queue is None else (self._queue.fileno(),)
        self._workers: list[Worker] = []
        try:
            for groups in layout.children:
                cpus = sorted({cpu for group in groups for cpu in group})
                first = tick if not self._workers else None
                self._workers.append(Worker(launch, cpus, patience_s, first, shared))
        except BaseException:
            self._kill()
            raise
        self._homes = [
            (worker, index)
            for worker, groups in zip(self._workers, layout.children, strict=True)
            for index in range(len(groups))
        ]
        self.harness_ns = max(worker.harness_ns for worker in self._workers)
        self.pinned = all(worker.pinned for worker in self._workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._kill()
        for worker in self._workers:
            worker.close()
        if self._queue is not None:
            self._queue.close()

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return len(self._homes)

    def load(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Load the model in every child, one after the other, so that each load time is undisturbed."""
        replies = [
            worker.ask(
                "load",
                groups=[list(group) for group in groups],
                layout="one" if self._layout.shared else "each",
                threads=self._layout.threads,
                cores=self._layout.cores_each,
                **request,
            ).data
            for worker, groups in zip(self._workers, self._layout.children, strict=True)
        ]
        first = replies[0]
        baselines = [reply["baseline_memory_bytes"] for reply in replies]
        return {**first, "baseline_memory_bytes": None if None in baselines else sum(baselines)}

    def give_inputs(self, inputs: Arrays) -> None:
        """Give every child one more set of inputs."""
        heads, blocks = protocol.pack_arrays(inputs)
        for worker in self._workers:
            worker.ask("inputs", blocks, arrays=heads)

    def infer(self, stream: int, number: int) -> Reply:
        """The outputs of one stream for one set of inputs, along the measured path."""
        worker, index = self._homes[stream]
        return worker.ask("infer", stream=index, set=number)

    def pause(self) -> None:
        """Stop all processes, so that they leave the CPUs to others."""
        for worker in self._workers:
            worker.pause()

    def resume(self) -> None:
        """Let paused processes go on."""
        for worker in self._workers:
            worker.resume()

    def slice(self, seconds: float, expected_s: float | None = None, canary: bool = False) -> Slice:
        """Let all streams run together for `seconds`; `expected_s` is about what one call takes.

        With `canary` a fixed piece of work is timed beside the calls, every millisecond or call.

        Ctrl-C ends the slice early and keeps what it has.
        """
        calls = 0 if not expected_s else int(1.2 * seconds / expected_s)
        start_ns = self._start_ns()
        for worker, groups, watch in zip(self._workers, self._layout.children, self._watched, strict=True):
            worker.send(
                "slice",
                start_ns=start_ns,
                seconds=seconds,
                expected=[calls] * len(groups),
                most=max(1, self._left),
                watch=watch,
                canary=canary,
            )
        found = self._gather("slice", seconds, ("starts_ns", "ends_ns", *(["canaries_ns"] if canary else [])))
        self._left -= max(map(len, found.window.streams))
        return found

    def serve(self, arrivals_ns: NDArray[np.int64], most_s: float) -> Slice:
        """Let requests arrive at these moments, one queue for all streams; give up on the rest after `most_s`."""
        blocks: list[bytes] = []
        if self._queue is None:
            blocks = [arrivals_ns.tobytes()]
        else:
            self._queue.seek(0)
            self._queue.truncate()
            self._queue.write(arrivals_ns.tobytes())
            self._queue.flush()
            os.lseek(self._queue.fileno(), 0, os.SEEK_SET)
        start_ns = self._start_ns()
        queue = None if self._queue is None else self._queue.fileno()
        for worker, watch in zip(self._workers, self._watched, strict=True):
            worker.send(
                "serve",
                blocks,
                start_ns=start_ns,
                seconds=most_s,
                expected=len(arrivals_ns),
                watch=watch,
                queue=queue,
            )
        found = self._gather("serve", most_s, ("scheduled_ns", "starts_ns", "ends_ns"))
        due = _due(found.window, arrivals_ns) if found.interrupted else len(arrivals_ns)
        return replace(found, window=replace(found.window, arrivals=due))

    def layers(self, seconds: float, imposed_sparsity: float | None = None) -> Reply:
        """What the layers of the first child's model take; nothing else can be asked of it afterwards."""
        return self._workers[0].ask("layers", work_s=seconds, seconds=seconds, imposed_sparsity=imposed_sparsity)

    def _start_ns(self) -> int:
        """When all begin together; one process alone begins at once."""
        return time.perf_counter_ns() + _LEAD_NS if len(self._workers) > 1 else 0

    def _gather(self, do: str, seconds: float, arrays: Sequence[str]) -> Slice:
        replies: list[Reply] = []
        interrupted = False
        try:
            for worker in self._workers:
                replies.append(worker.wait(do, seconds))
        except KeyboardInterrupt:
            interrupted = True
            replies = self._cut_short(do, replies)
        try:
            return _joined(replies, arrays, interrupted)
        except (TypeError, ValueError) as error:
            raise EngineFailed(
                f"An engine's process answered with samples that cannot be read: {error}."
            ) from error

    def _cut_short(self, do: str, done: list[Reply]) -> list[Reply]:
        waiting = self._workers[len(done) :]
        for worker in waiting:
            worker.cut_short()
        try:
            return done + [worker.wait(do, patience_s=_CUT_SHORT_PATIENCE_S) for worker in waiting]
        except EngineFailed as error:
            raise KeyboardInterrupt from error

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()


def _watched(layout: Layout) -> list[list[int]]:
    """The CPUs whose steal each process reports, every CPU once; unpinned, the first reports all."""
    seen: set[int] = set()
    watched = []
    for groups in layout.children:
        own = {cpu for group in groups for cpu in group} or {cpu for core in machine.cores() for cpu in core.cpus}
        watched.append(sorted(own - seen))
        seen |= own
    return watched


def _due(window: Window, arrivals_ns: NDArray[np.int64]) -> int:
    """How many requests had arrived when the last one was done, where the user cut the rest off."""
    streams = [stream for stream in window.streams if stream.scheduled_ns]
    if not streams:
        return 0
    begin_ns = min(stream.scheduled_ns[0] for stream in streams if stream.scheduled_ns) - int(arrivals_ns[0])
    return int(np.searchsorted(arrivals_ns, max(stream.ends_ns[-1] for stream in streams) - begin_ns, "right"))


def _joined(replies: list[Reply], arrays: Sequence[str], interrupted: bool) -> Slice:
    streams: list[Samples] = []
    counters: Counter[str] = Counter()
    for reply in replies:
        numbers = [protocol.numbers(block) for block in reply.blocks]
        for first in range(0, len(numbers), len(arrays)):
            streams.append(Samples(**dict(zip(arrays, numbers[first:], strict=False))))
        counters.update(reply.data["counters"])
    # These are the whole machine's, so every child has read the same.
    for name in ("cpu_pressure_s", "throttled_s"):
        if name in counters:
            counters[name] /= len(replies)  # type: ignore[assignment]
    return Slice(
        window=Window(
            streams=tuple(streams),
            counters=dict(counters),
            canary_ns=max(reply.data["canary_ns"] for reply in replies),
            full=any(reply.data["full"] for reply in replies),
        ),
        peak_memory_bytes=_memory(replies, "peak_memory_bytes"),
        steady_memory_bytes=_memory(replies, "steady_memory_bytes"),
        interrupted=interrupted,
        fraction_of_supported_ops=replies[0].data["supported"],
        settings=replies[0].data["settings"],
    )


def _memory(replies: list[Reply], name: str) -> int | None:
    found = [reply.data[name] for reply in replies]
    return None if None in found else sum(found)


# A warm-up is judged in pieces of at most this length, and no fewer than so many; it can end after the third.
_WARMUP_PIECE_S = 0.1
_WARMUP_PIECES = 8


def load_model(crew: Crew, job: Job, path: Path) -> dict[str, Any]:
    """Load the job's model in a crew."""
    cell = job.cell
    return crew.load(
        {
            "model": str(path),
            "kind": job.model.kind,
            "scheduler": SCHEDULERS[cell.scenario],
            "pinning": cell.thread_pinning,
            "batch_size": cell.batch_size,
            "shapes": {name: list(shape) for name, shape in cell.shapes},
            "options": dict(cell.engine_options),
            "outputs": [one.name for one in job.model.outputs],
        },
    )


class Process:
    """A context manager: inside it the model is loaded; Ctrl-C during a window keeps what it has."""

    def __init__(self, prepared: Setup, tick: Callable[[], None] | None = None) -> None:
        self.setup = prepared
        self._started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        began = time.monotonic()
        job = prepared.job
        self._crew = Crew(prepared.launch, prepared.layout, job.patience_s, tick)
        try:
            self.loaded: dict[str, Any] = load_model(self._crew, job, prepared.path)
        except BaseException as error:
            self._crew.__exit__(type(error), error, None)
            raise
        self.ready_s = time.monotonic() - began
        self._standard = check.standard_for(job.model.precision, str(self.loaded["settings"].get("precision", "")))
        self._first_inference_s = 0.0
        self._differences: list[check.Difference | None] = []
        self._warmup: list[Window] = []
        self._windows: list[Window] = []
        self._last: Slice | None = None
        #: About what one call takes, once it is known.
        self.call_s: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._crew.__exit__(kind, error, trace)

    @property
    def interrupted(self) -> bool:
        """Whether the user cut the last window short."""
        return self._last is not None and self._last.interrupted

    @property
    def has_windows(self) -> bool:
        """Whether anything was measured yet."""
        return bool(self._windows)

    def give_inputs(self) -> None:
        """Hand over the job's inputs."""
        for inputs in self.setup.job.inputs:
            self._crew.give_inputs(inputs)

    def check_outputs(self) -> list[check.Arrays]:
        """Run every stream on both sets of inputs and compare; gives the first stream's outputs."""
        reference = self.setup.reference
        outputs: list[check.Arrays] = []
        for number in range(len(self.setup.job.inputs)):
            for stream in range(self._crew.streams):
                reply = self._crew.infer(stream, number)
                self._first_inference_s = self._first_inference_s or reply.data["seconds"]
                arrays = reply.arrays()
                if stream == 0:
                    outputs.append(arrays)
                if reference.outputs:
                    self._differences.append(check.difference(arrays, reference.outputs[number], self._standard))
        return outputs

    def warm_up(self, seconds: float) -> None:
        """Run unmeasured until the calls are steady, for `seconds` at most."""
        end = time.monotonic() + seconds
        piece_s = min(_WARMUP_PIECE_S, seconds / _WARMUP_PIECES)
        medians: list[float] = []
        while (left_s := end - time.monotonic()) > 0 and not steady(medians):
            piece = self._crew.slice(min(left_s, piece_s), self.call_s)
            if piece.interrupted:
                raise KeyboardInterrupt
            self._warmup.append(piece.window)
            medians.append(float(np.median(np.concatenate([latencies_ns(one) for one in piece.window.streams]))))
            self.call_s = typical_call_s([piece.window])

    def measure(self, seconds: float, canary: bool = False) -> Window:
        """Measure one window of closed-loop calls, beside a canary if wanted."""
        self._last = self._crew.slice(seconds, self.call_s, canary)
        self.call_s = typical_call_s([self._last.window]) or self.call_s
        return self._keep()

    def serve(self, arrivals_ns: NDArray[np.int64], most_s: float) -> Window:
        """Measure one window of requests that arrive at these moments."""
        self._last = self._crew.serve(arrivals_ns, most_s)
        return self._keep()

    def _keep(self) -> Window:
        assert self._last is not None
        self._windows.append(self._last.window)
        return self._last.window

    def layers(self, seconds: float, imposed_sparsity: float | None = None) -> Reply:
        """What the engine says its layers take; afterwards only this can be asked again."""
        return self._crew.layers(seconds, imposed_sparsity)

    def pause(self) -> None:
        """Leave the CPUs to others: an idle engine may still spin."""
        self._crew.pause()

    def resume(self) -> None:
        """Go on after a pause."""
        self._crew.resume()

    def output_check(self) -> OutputCheck:
        """What all comparisons so far say together."""
        reference = self.setup.reference
        if reference.reason:
            return OutputCheck("unchecked", reference=reference.label, detail=reference.reason)
        return check.judge(self._differences, reference.label)

    def run(self, interrupted: bool = False) -> Run:
        """The record of all that was measured; `interrupted` says that more was to come."""
        assert self._last is not None
        job = self.setup.job
        return Run(
            cell_id=job.cell.id,
            started_at=self._started_at,
            windows=tuple(self._windows),
            warmup=tuple(self._warmup),
            stream_mode=self.setup.layout.mode,
            ready_s=self.ready_s,
            load_s=self.loaded["load_s"],
            first_inference_s=self._first_inference_s,
            peak_memory_bytes=self._last.peak_memory_bytes,
            baseline_memory_bytes=self.loaded["baseline_memory_bytes"],
            harness_ns=self._crew.harness_ns,
            check=self.output_check(),
            versions={"inferlab": __version__, "python": sys.version.split()[0], **self.loaded["versions"]},
            settings=dict(self._last.settings),
            model_path=str(self.setup.path),
            machine=machine.describe(),
            pinned=self._crew.pinned,
            rewritten=job.rewrite_batch is not None,
            fraction_of_supported_ops=self._last.fraction_of_supported_ops,
            interrupted=interrupted or self.interrupted,
            steady_memory_bytes=self._last.steady_memory_bytes,
        )


def settings(process: Process) -> dict[str, Any]:
    """What is in force, in the words of DeepSparse's log."""
    prepared = process.setup
    cell, sets = prepared.job.cell, machine.describe().instruction_sets
    return {
        "engine": cell.engine,
        "version": next(iter(process.loaded["versions"].values()), ""),
        "onnx_file_path": str(prepared.path),
        "batch_size": cell.batch_size,
        "num_cores": cell.num_cores,
        "num_streams": cell.num_streams,
        **({"instances": cell.instances} if cell.instances > 1 else {}),
        "stream_mode": prepared.layout.mode,
        "scheduler": SCHEDULERS[cell.scenario],
        "cpu_avx_type": machine.vector_width(sets),
        "cpu_vnni": machine.has_vnni(sets),
        **process.loaded["settings"],
    }
