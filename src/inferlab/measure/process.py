"""One set of fresh processes with a cell's model loaded: checked, warmed up, measured window by window."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from inferlab import machine
from inferlab.measure import check, setup, streams
from inferlab.measure.crew import Crew, Slice
from inferlab.measure.intervals import steady
from inferlab.measure.setup import Setup
from inferlab.measure.stats import latencies_ns, typical_call_s
from inferlab.records import OutputCheck, Run, Window
from inferlab.version import __version__
from inferlab.worker import Reply

# A warm-up is judged in pieces of at most this length, and no fewer than so many; it can end after the third.
_WARMUP_PIECE_S = 0.1
_WARMUP_PIECES = 8


class Process:
    """A context manager: inside it the model is loaded; Ctrl-C during a window keeps what it has."""

    def __init__(self, prepared: Setup, tick: Callable[[], None] | None = None) -> None:
        self.setup = prepared
        self._started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        began = time.monotonic()
        job = prepared.job
        self._crew = Crew(prepared.launch, prepared.layout, job.patience_s, tick)
        try:
            self.loaded: dict[str, Any] = setup.load(self._crew, job, prepared.path)
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
        "scheduler": streams.SCHEDULERS[cell.scenario],
        "cpu_avx_type": machine.vector_width(sets),
        "cpu_vnni": machine.has_vnni(sets),
        **process.loaded["settings"],
    }
