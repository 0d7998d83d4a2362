"""The child processes of one cell, spoken to as one: load, infer, measure a slice together."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from inferlab.child import protocol
from inferlab.errors import EngineFailed
from inferlab.measure.check import Arrays
from inferlab.measure.streams import Layout
from inferlab.records import Samples
from inferlab.worker import Launch, Reply, Worker

# Long enough for every child to read its request and get ready.
_LEAD_NS = 30_000_000
# A slice that was cut short answers as soon as its inference is over.
_CUT_SHORT_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Slice:
    """What all streams measured in one slice of time."""

    streams: tuple[Samples, ...]
    counters: Mapping[str, float]
    peak_memory_bytes: int | None
    full: bool
    interrupted: bool
    fraction_of_supported_ops: float | None


class Crew:
    """A context manager over the children of a cell."""

    def __init__(
        self, launch: Launch, layout: Layout, patience_s: float, tick: Callable[[], None] | None = None
    ) -> None:
        self._layout = layout
        self._workers: list[Worker] = []
        try:
            for groups in layout.children:
                cpus = sorted({cpu for group in groups for cpu in group})
                self._workers.append(Worker(launch, cpus, patience_s, tick if not self._workers else None))
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

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return len(self._homes)

    def load(self, num_cores: int, request: Mapping[str, Any]) -> dict[str, Any]:
        """Load the model in every child, one after the other, so that each load time is undisturbed."""
        replies = [
            worker.ask(
                "load",
                groups=[list(group) for group in groups],
                layout="one" if self._layout.shared else "each",
                threads=self._layout.threads,
                cores=num_cores if self._layout.shared else self._layout.threads,
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

    def slice(self, seconds: float, expected_s: float | None = None) -> Slice:
        """Let all streams run together for `seconds`; `expected_s` is about what one call takes.

        Ctrl-C ends the slice early and keeps what it has.
        """
        start_ns = time.perf_counter_ns() + _LEAD_NS
        calls = 0 if not expected_s else int(1.2 * seconds / expected_s)
        for worker, groups in zip(self._workers, self._layout.children, strict=True):
            worker.send("slice", start_ns=start_ns, seconds=seconds, expected=[calls] * len(groups))
        replies: list[Reply] = []
        interrupted = False
        try:
            for worker in self._workers:
                replies.append(worker.wait("slice", seconds))
        except KeyboardInterrupt:
            interrupted = True
            replies = self._cut_short(replies)
        return _joined(replies, interrupted)

    def _cut_short(self, done: list[Reply]) -> list[Reply]:
        waiting = self._workers[len(done) :]
        for worker in waiting:
            worker.cut_short()
        try:
            return done + [worker.wait("slice", patience_s=_CUT_SHORT_PATIENCE_S) for worker in waiting]
        except EngineFailed as error:
            raise KeyboardInterrupt from error

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()


def _joined(replies: list[Reply], interrupted: bool) -> Slice:
    streams: list[Samples] = []
    counters: Counter[str] = Counter()
    for reply in replies:
        numbers = [_array(block) for block in reply.blocks]
        streams += [Samples(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]
        counters.update(reply.data["counters"])
    # These are the whole machine's, so every child has read the same.
    for name in ("steal_s", "cpu_pressure_s", "throttled_s"):
        if name in counters:
            counters[name] /= len(replies)  # type: ignore[assignment]
    peaks = [reply.data["peak_memory_bytes"] for reply in replies]
    return Slice(
        streams=tuple(streams),
        counters=dict(counters),
        peak_memory_bytes=None if None in peaks else sum(peaks),
        full=any(reply.data["full"] for reply in replies),
        interrupted=interrupted,
        fraction_of_supported_ops=replies[0].data["supported"],
    )


def _array(block: bytes) -> array[int]:
    numbers = array("q")
    numbers.frombytes(block)
    return numbers
