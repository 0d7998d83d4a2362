"""The child processes of one cell: loaded, checked, warmed up and measured together, window by window."""

from __future__ import annotations

import datetime
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from inferlab import machine
from inferlab.child import protocol
from inferlab.child.loop import MOST_SAMPLES
from inferlab.errors import EngineFailed
from inferlab.measure import check
from inferlab.measure.intervals import steady
from inferlab.measure.stats import SCHEDULERS, latencies_ns, typical_call_s
from inferlab.records import OutputCheck, Run, Samples, Window
from inferlab.version import __version__
from inferlab.worker import Reply, Worker

if TYPE_CHECKING:
    from inferlab.measure.cell import PreparedCell
    from inferlab.measure.cells import Job, Layout

# Long enough for every child to read its request and get ready.
_LEAD_NS = 30_000_000
# A slice that was cut short answers as soon as its inference is over.
_CUT_SHORT_PATIENCE_S = 10.0
# A warm-up is judged in pieces of at most this length, and no fewer than so many; it can end after the third.
_WARMUP_PIECE_S = 0.1
_WARMUP_PIECES = 8


class FreshProcesses:
    """A context manager: processes that were started for one measurement, and end with it."""

    def __init__(self) -> None:
        self.started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        self._workers: list[Worker] = []
        #: What the first process answered to the request to load.
        self.loaded: dict[str, Any] = {}
        #: From the start of the processes to the loaded model.
        self.ready_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            for worker in self._workers:
                worker.kill()
        for worker in self._workers:
            worker.close()

    def pause(self) -> None:
        """Stop all processes, so that they leave the CPUs to others: an idle engine may still spin."""
        for worker in self._workers:
            worker.pause()

    def resume(self) -> None:
        """Let paused processes go on."""
        for worker in self._workers:
            worker.resume()

    @property
    def versions(self) -> dict[str, str]:
        """Of all packages that take part."""
        return {"inferlab": __version__, "python": sys.version.split()[0], **self.loaded["versions"]}


class Children(FreshProcesses):
    """A context manager: inside it a cell's model is loaded in fresh processes that have its inputs.

    Ctrl-C during a window keeps what it has, and sets `interrupted`.
    """

    def __init__(self, prepared: PreparedCell, tick: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.prepared = prepared
        began = time.monotonic()
        job, layout = prepared.job, prepared.layout
        self._watched = _watched(layout)
        self._left = MOST_SAMPLES
        # Several processes take their requests from one file: reading moves an offset that all of them share.
        self._queue = tempfile.TemporaryFile() if len(layout.children) > 1 else None  # noqa: SIM115  see __exit__
        shared = () if self._queue is None else (self._queue.fileno(),)
        try:
            for groups in layout.children:
                cpus = sorted({cpu for group in groups for cpu in group})
                first = tick if not self._workers else None
                self._workers.append(Worker(prepared.launch, cpus, job.patience_s, first, shared))
            self.loaded = self._load()
            self.ready_s = time.monotonic() - began
            for inputs in job.inputs:
                heads, blocks = protocol.pack_arrays(inputs)
                for worker in self._workers:
                    worker.ask("inputs", blocks, arrays=heads)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        self._streams = [
            (worker, index)
            for worker, groups in zip(self._workers, layout.children, strict=True)
            for index in range(len(groups))
        ]
        self._standard = check.standard_for(job.model.precision, str(self.loaded["settings"].get("precision", "")))
        self._first_inference_s = 0.0
        self._differences: list[check.Difference | None] = []
        self._warmup: list[Window] = []
        self._windows: list[Window] = []
        #: What the processes said of themselves at the end of the last window.
        self._last: list[dict[str, Any]] = []
        #: Whether the user cut the last window short.
        self.interrupted = False
        #: About what one call takes, once it is known.
        self.call_s: float | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._queue is not None:
            self._queue.close()

    def _load(self) -> dict[str, Any]:
        """Load the model in every child, one after the other, so that each load time is undisturbed."""
        job, layout = self.prepared.job, self.prepared.layout
        replies = [
            worker.ask(
                "load",
                model=str(self.prepared.path),
                groups=[list(group) for group in groups],
                outputs=[spec.name for spec in job.model.outputs],
                **load_request(job, layout, self.prepared.decided),
            ).data
            for worker, groups in zip(self._workers, layout.children, strict=True)
        ]
        baselines = [reply["baseline_memory_bytes"] for reply in replies]
        return {**replies[0], "baseline_memory_bytes": None if None in baselines else sum(baselines)}

    @property
    def alone(self) -> bool:
        """Whether it is one process, which begins a window at once."""
        return len(self._workers) == 1

    @property
    def has_windows(self) -> bool:
        """Whether anything was measured yet."""
        return bool(self._windows)

    def check_outputs(self) -> list[check.Arrays]:
        """Run every stream on both sets of inputs and compare; gives the first stream's outputs."""
        reference = self.prepared.reference
        outputs: list[check.Arrays] = []
        for number in range(len(self.prepared.job.inputs)):
            for stream, (worker, index) in enumerate(self._streams):
                reply = worker.ask("infer", stream=index, set=number)
                self._first_inference_s = self._first_inference_s or reply.data["seconds"]
                arrays = reply.arrays()
                if stream == 0:
                    outputs.append(arrays)
                if reference.outputs:
                    self._differences.append(check.difference(arrays, reference.outputs[number], self._standard))
        return outputs

    def output_check(self) -> OutputCheck:
        """What all comparisons so far say together."""
        reference = self.prepared.reference
        if reference.reason:
            return OutputCheck("unchecked", reference=reference.label, detail=reference.reason)
        return check.judge(self._differences, reference.label)

    def warm_up(self, seconds: float) -> None:
        """Run before anything is measured until the calls are steady, for `seconds` at most."""
        end = time.monotonic() + seconds
        piece_s = min(_WARMUP_PIECE_S, seconds / _WARMUP_PIECES)
        medians: list[float] = []
        while (left_s := end - time.monotonic()) > 0 and not steady(medians):
            window = self.measure(min(left_s, piece_s))
            if self.interrupted:
                raise KeyboardInterrupt
            medians.append(float(np.median(np.concatenate([latencies_ns(stream) for stream in window.streams]))))
        self._warmup, self._windows = self._windows, []

    def measure(self, seconds: float, watched: bool = True) -> Window:
        """Measure one window: all streams call together, as fast as they can, for `seconds`.

        One that is not watched lets the next follow at once; what disturbed it is told with the next that is.
        """
        calls = 0 if not self.call_s else int(1.2 * seconds / self.call_s)
        start_ns = self._start_ns()
        for worker, groups, watch in zip(self._workers, self.prepared.layout.children, self._watched, strict=True):
            worker.send(
                "slice",
                start_ns=start_ns,
                seconds=seconds,
                expected=[calls] * len(groups),
                most=max(1, self._left),
                watch=watch,
                watched=watched,
            )
        window = self._collect("slice", seconds, ("starts_ns", "ends_ns"))
        self._windows.append(window)
        self._left -= max(map(len, window.streams))
        self.call_s = typical_call_s([window]) or self.call_s
        return window

    def serve(self, arrivals_ns: NDArray[np.int64], most_s: float) -> Window:
        """Measure one window of requests that arrive at these moments, one queue for all streams.

        What was not served after `most_s` is given up.
        """
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
        window = self._collect("serve", most_s, ("scheduled_ns", "starts_ns", "ends_ns"))
        due = arrived(window, arrivals_ns) if self.interrupted else len(arrivals_ns)
        self._windows.append(replace(window, arrivals=due))
        return self._windows[-1]

    def layers(self, seconds: float, imposed_sparsity: float | None = None) -> Reply:
        """What the engine says its layers take; afterwards only this can be asked again."""
        return self._workers[0].ask("layers", work_s=seconds, seconds=seconds, imposed_sparsity=imposed_sparsity)

    def peak_memory_bytes(self) -> int | None:
        """The peak of all processes together, as of the last window; None where the system does not tell."""
        return _sum_of(self._last, "peak_memory_bytes")

    def run(self, interrupted: bool = False) -> Run:
        """The record of all that was measured; `interrupted` says that more was to come."""
        job, last = self.prepared.job, self._last[0]
        return Run(
            cell_id=job.cell.id,
            started_at=self.started_at,
            windows=tuple(self._windows),
            warmup=tuple(self._warmup),
            stream_mode=self.prepared.layout.mode,
            ready_s=self.ready_s,
            load_s=self.loaded["load_s"],
            first_inference_s=self._first_inference_s,
            peak_memory_bytes=self.peak_memory_bytes(),
            baseline_memory_bytes=self.loaded["baseline_memory_bytes"],
            harness_ns=max(worker.harness_ns for worker in self._workers),
            check=self.output_check(),
            versions=self.versions,
            settings=last["settings"],
            model_path=str(self.prepared.path),
            machine=machine.describe(),
            pinned=all(worker.pinned for worker in self._workers),
            rewritten=job.rewrite_batch is not None,
            fraction_of_supported_ops=last["supported"],
            interrupted=interrupted or self.interrupted,
            steady_memory_bytes=_sum_of(self._last, "steady_memory_bytes"),
        )

    def settings(self) -> dict[str, Any]:
        """What is in force, in the words of DeepSparse's log."""
        cell, sets = self.prepared.job.cell, machine.describe().instruction_sets
        return {
            "engine": cell.engine,
            "version": next(iter(self.loaded["versions"].values()), ""),
            "onnx_file_path": str(self.prepared.path),
            "batch_size": cell.batch_size,
            "num_cores": cell.num_cores,
            "num_streams": cell.num_streams,
            **({"instances": cell.instances} if cell.instances > 1 else {}),
            "stream_mode": self.prepared.layout.mode,
            "scheduler": SCHEDULERS[cell.scenario],
            "cpu_avx_type": machine.vector_width(sets),
            "cpu_vnni": machine.has_vnni(sets),
            **self.loaded["settings"],
        }

    def _start_ns(self) -> int:
        """When all begin together; one process alone begins at once."""
        return time.perf_counter_ns() + _LEAD_NS if len(self._workers) > 1 else 0

    def _collect(self, do: str, seconds: float, arrays: Sequence[str]) -> Window:
        """Wait for all answers to a request; Ctrl-C cuts the work short."""
        replies: list[Reply] = []
        self.interrupted = False
        try:
            for worker in self._workers:
                replies.append(worker.wait(do, seconds))
        except KeyboardInterrupt:
            self.interrupted = True
            waiting = self._workers[len(replies) :]
            for worker in waiting:
                worker.cut_short()
            try:
                replies += [worker.wait(do, patience_s=_CUT_SHORT_PATIENCE_S) for worker in waiting]
            except EngineFailed as error:
                raise KeyboardInterrupt from error
        if "counters" in replies[0].data:
            self._last = [reply.data for reply in replies]
        try:
            return _joined(replies, arrays)
        except (TypeError, ValueError) as error:
            raise EngineFailed(
                f"An engine's process answered with samples that cannot be read: {error}."
            ) from error


def load_request(job: Job, layout: Layout, decided: Mapping[str, str]) -> dict[str, Any]:
    """How a job's model is loaded, as its engine is asked for it; `decided` are options that were left to us."""
    cell = job.cell
    return {
        "kind": job.model.kind,
        "layout": "one" if layout.shared else "each",
        "threads": layout.threads,
        "cores": layout.cores_each,
        "scheduler": SCHEDULERS[cell.scenario],
        "pinning": cell.thread_pinning,
        "batch_size": cell.batch_size,
        "shapes": {name: list(shape) for name, shape in cell.shapes},
        "options": {**dict(cell.engine_options), **decided},
    }


def _watched(layout: Layout) -> list[list[int]]:
    """The CPUs whose steal each process reports, every CPU once; unpinned, the first reports all."""
    seen: set[int] = set()
    watched = []
    for groups in layout.children:
        own = {cpu for group in groups for cpu in group} or {cpu for core in machine.cores() for cpu in core.cpus}
        watched.append(sorted(own - seen))
        seen |= own
    return watched


def arrived(window: Window, arrivals_ns: NDArray[np.int64]) -> int:
    """How many requests had arrived when the last one was done, where the user cut the rest off."""
    streams = [stream for stream in window.streams if stream.scheduled_ns]
    if not streams:
        return 0
    begin_ns = min(stream.scheduled_ns[0] for stream in streams if stream.scheduled_ns) - int(arrivals_ns[0])
    return int(np.searchsorted(arrivals_ns, max(stream.ends_ns[-1] for stream in streams) - begin_ns, "right"))


def _joined(replies: Sequence[Reply], arrays: Sequence[str]) -> Window:
    streams: list[Samples] = []
    counters: Counter[str] = Counter()
    for reply in replies:
        numbers = [protocol.numbers(block) for block in reply.blocks]
        for first in range(0, len(numbers), len(arrays)):
            streams.append(Samples(**dict(zip(arrays, numbers[first:], strict=False))))
        counters.update(reply.data.get("counters", {}))
    # These are the whole machine's, so every child has read the same.
    for name in ("cpu_pressure_s", "throttled_s"):
        if name in counters:
            counters[name] /= len(replies)  # type: ignore[assignment]
    return Window(
        streams=tuple(streams),
        counters=dict(counters),
        canary_ns=max((reply.data["canary_ns"] for reply in replies if "canary_ns" in reply.data), default=None),
        full=any(reply.data["full"] for reply in replies),
    )


def _sum_of(states: Sequence[dict[str, Any]], name: str) -> int | None:
    values = [state[name] for state in states]
    return None if None in values else sum(values)
