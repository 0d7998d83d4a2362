"""Let several children try changes of weights, one at a time, and gather what they find."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from inferlab import machine
from inferlab.child import protocol
from inferlab.errors import EngineFailed, InferlabError
from inferlab.model.inputs import Data
from inferlab.records import Model
from inferlab.transform.channels import RemovableChannels
from inferlab.worker import ONNXRUNTIME, Worker, timeout_s

#: Sums over inputs, by output or by kind; None where one is not finite.
Sums = Mapping[str, float] | None
#: What is tried as one: weights, and of channels that they stop reading where those stand; the child's `Change`.
Change = Mapping[str, Any]
#: Told of each change that is done with, and the share of all work that is.
Progress = Callable[[str, float], None]

Request = tuple[dict[str, Any], list[Any]]

_NO_TIME = "no time was left for it"
_MISSING = "its weight is not a plain constant of the main graph"
# What all children together may keep of the dense model's values.
CACHE_BYTES = 2_000_000_000
_PATIENCE_S = 1800.0
_MOST_DEATHS = 3
# A child holds the model in its sessions and in what they are built from, beside the interpreter.
_COPIES, _INTERPRETER_BYTES = 3, 300_000_000


@dataclass(frozen=True, slots=True)
class TrialResults:
    """The sums of each change by level, those of the dense model, and why a change has none."""

    #: Of the dense outputs' squares; with labels the score too.
    powers: Mapping[str, float]
    score: Sums
    items: int
    #: Of fewer levels where higher ones were not worth trying.
    sums: Mapping[str, Sequence[Sums]]
    #: How many classes the labels are of; 0 without labels.
    classes: int = 0
    #: Changes of weights that hold values which are not numbers.
    nan: frozenset[str] = frozenset()
    left_out: Mapping[str, str] = field(default_factory=dict)
    #: Time was over before all changes had their turn.
    late: bool = False


def smallest_of(weight: str) -> Change:
    """That the smallest elements of one weight become zero."""
    return {"weights": {weight: None}, "order": ()}


def without(channels: RemovableChannels) -> Change:
    """That nobody reads the first of these channels any more, which is what removing them does to the outputs."""
    readers = {name: (reader.axis, reader.stretches) for name, reader in channels.readers.items()}
    return {"weights": readers, "order": channels.order}


def run_trials(
    model: Model,
    changes: Mapping[str, Change],
    data: Data,
    levels: Sequence[float],
    num_cores: int,
    seconds: float | None,
    progress: Progress,
    limit: float | None = None,
) -> TrialResults:
    """Try each change alone at each level, on all of the data or on what of it the time allows.

    One that has reached the limit, in relative power, is not tried at higher levels.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    total: TrialResults | None = None
    done = 0
    with Pool(model, changes, levels, num_cores) as pool:
        for alike in _alike(data):
            opened = pool.open(data, alike[0], several=len(alike) > 1)
            size = max(1, CACHE_BYTES // pool.size // opened["bytes"]) if opened["bytes"] else 1
            for start in range(0, len(alike), size):
                numbers = alike[start : start + size]
                dense = opened if numbers == alike[:1] else pool.begin(data, numbers)

                def tell(change: str, share: float, done: int = done, part: int = len(numbers)) -> None:
                    progress(change, (done + share * part) / len(data.sets))

                items = sum(data.rows[number] for number in numbers)
                # What one portion says of the limit, another may not.
                whole = limit if len(numbers) == len(data.sets) else None
                tried = _portion(pool, dense, opened, items, limit=whole, deadline=deadline, progress=tell)
                done += len(numbers)
                if total is not None and tried.late:
                    return total
                total = tried if total is None else _added(total, tried)
    assert total is not None
    return total


class Pool:
    """Children that have the same model open; a context manager that leaves none of them behind."""

    def __init__(
        self, model: Model, changes: Mapping[str, Change], levels: Sequence[float], num_cores: int
    ) -> None:
        self._model, self._changes, self._levels = model, dict(changes), list(levels)
        self.size = _how_many(model, len(changes), num_cores)
        self._threads = max(1, num_cores // self.size)
        cpus = machine.choose_cpus(num_cores, "core")
        self._shares = [cpus[number * self._threads : (number + 1) * self._threads] for number in range(self.size)]
        self._workers: list[Worker] = []
        self._deaths: list[str] = []
        #: What brings a fresh child to where the others are.
        self._history: list[Request] = []

    def __enter__(self) -> Self:
        try:
            for cpus in self._shares:
                self._workers.append(self._start(cpus))
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def open(self, data: Data, number: int, several: bool) -> dict[str, Any]:
        """Cut the model up for sets like this one and run it; every child answers the same."""
        more = {"step": "open", "model": self._model.path, "changes": self._changes, "threads": self._threads}
        self._history = [_request(data, [number], {**more, "probe": several})]
        return self._ask_all(self._history[0])

    def begin(self, data: Data, numbers: Sequence[int]) -> dict[str, Any]:
        """Run the dense model on these sets, which are like the one that was opened."""
        self._history[1:] = [_request(data, numbers, {"step": "begin"})]
        return self._ask_all(self._history[1])

    def try_all(
        self, spans: Mapping[str, Sequence[int]], limit: float | None, deadline: float | None, progress: Progress
    ) -> tuple[dict[str, dict[str, Any]], dict[str, str], bool]:
        """The children's answers by change, the reasons of those without one, and whether time was over."""
        queue = _Queue(spans)
        answers: dict[str, dict[str, Any]] = {}
        faults: dict[str, str] = {}
        busy: dict[Worker, str] = {}
        late = False
        while True:
            late = late or (deadline is not None and time.monotonic() > deadline)
            for worker in [worker for worker in self._workers if worker not in busy and not late]:
                if change := queue.next_for(worker):
                    arguments = {"step": "change", "change": change, "levels": self._levels, "limit": limit}
                    try:
                        worker.send("task", task="sensitivity", arguments=arguments)
                        busy[worker] = change
                    except EngineFailed as error:
                        faults[change] = str(error)
                        self._replace(worker, str(error))
            if not busy:
                if late or not self._workers or queue.is_empty():
                    break
                continue
            # Those that begin to answer, or all if they have been silent for too long.
            answering = select.select(list(busy), [], [], timeout_s(_PATIENCE_S))[0]
            for worker in answering or list(busy):
                change = busy.pop(worker)
                try:
                    left_s = timeout_s(_PATIENCE_S) if answering else 0.1
                    answers[change] = worker.wait("task", patience_s=left_s).data
                except EngineFailed as error:
                    faults[change] = str(error)
                    self._replace(worker, str(error))
                except InferlabError as error:
                    faults[change] = str(error)
                progress(change, (len(answers) + len(faults)) / len(spans))
        rest = queue.rest()
        faults.update(dict.fromkeys(rest, _NO_TIME if late else "; ".join(self._deaths[-1:])))
        return answers, faults, late and bool(rest)

    def _start(self, cpus: Sequence[int]) -> Worker:
        return Worker(ONNXRUNTIME, cpus, timeout_s(_PATIENCE_S))

    def _ask_all(self, request: Request) -> dict[str, Any]:
        arguments, blocks = request
        for worker in self._workers:
            worker.send("task", blocks, task="sensitivity", arguments=arguments)
        first, *_ = [worker.wait("task").data for worker in self._workers]
        return first

    def _replace(self, worker: Worker, reason: str) -> None:
        """A fresh child for one that died, unless too many of them do."""
        place = self._workers.index(worker)
        # One that is out of memory may be alive, and still hold what the next one needs.
        worker.kill()
        self._deaths.append(reason)
        if len(self._deaths) <= _MOST_DEATHS:
            try:
                self._workers[place] = self._start(self._shares[place])
                for arguments, blocks in self._history:
                    self._workers[place].ask("task", blocks, task="sensitivity", arguments=arguments)
                return
            except InferlabError as error:
                self._deaths.append(str(error))
        self._workers.pop(place).kill()
        del self._shares[place]

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()


class _Queue:
    """Changes by the stretch of the graph that they lie in; a child keeps to its own stretch while it can."""

    def __init__(self, spans: Mapping[str, Sequence[int]]) -> None:
        self._waiting: dict[tuple[int, ...], deque[str]] = {}
        for change, span in sorted(spans.items(), key=lambda item: tuple(item[1])):
            self._waiting.setdefault(tuple(span), deque()).append(change)
        self._at: dict[Worker, tuple[int, ...]] = {}

    def next_for(self, worker: Worker) -> str:
        """The next change; the first stretch that nobody is at, or else the longest, where its own is done."""
        left = {span: changes for span, changes in self._waiting.items() if changes}
        if not left:
            return ""
        if self._at.get(worker) not in left:
            fresh = [span for span in left if span not in self._at.values()]
            self._at[worker] = fresh[0] if fresh else max(left, key=lambda span: len(left[span]))
        return left[self._at[worker]].popleft()

    def is_empty(self) -> bool:
        """Whether every change was taken."""
        return not any(self._waiting.values())

    def rest(self) -> list[str]:
        """The changes that nobody took."""
        return [change for changes in self._waiting.values() for change in changes]


def _portion(
    pool: Pool, dense: Mapping[str, Any], opened: Mapping[str, Any], items: int, **more: Any
) -> TrialResults:
    answers, faults, late = pool.try_all(opened["spans"], **more)
    return TrialResults(
        powers=dense["powers"],
        score=dense.get("score"),
        items=items,
        classes=dense.get("classes", 0),
        sums={change: answer["levels"] for change, answer in answers.items()},
        nan=frozenset(change for change, answer in answers.items() if answer["nan"]),
        left_out={**dict.fromkeys(opened["missing"], _MISSING), **faults},
        late=late,
    )


def _alike(data: Data) -> list[list[int]]:
    """The numbers of the sets, those of equal shapes together."""
    by_shape: dict[tuple[Any, ...], list[int]] = {}
    for number, inputs in enumerate(data.sets):
        by_shape.setdefault(tuple(value.shape for value in inputs.values()), []).append(number)
    return list(by_shape.values())


def _added(first: TrialResults, other: TrialResults) -> TrialResults:
    """Both together; a change counts only if both have it."""
    return TrialResults(
        powers=_sum(first.powers, other.powers) or {},
        score=_sum(first.score, other.score),
        items=first.items + other.items,
        classes=first.classes,
        sums={
            change: [_sum(*both) for both in zip(levels, other.sums[change], strict=True)]
            for change, levels in first.sums.items()
            if change in other.sums
        },
        nan=first.nan | other.nan,
        left_out={**first.left_out, **other.left_out},
    )


def _sum(first: Sums, other: Sums) -> Sums:
    if first is None or other is None:
        return None
    return {name: value + other[name] for name, value in first.items() if name in other}


def _request(data: Data, numbers: Sequence[int], more: Mapping[str, Any]) -> Request:
    labels = None if data.labels is None else [data.labels[number] for number in numbers]
    arguments, blocks = protocol.pack_sets([data.sets[number] for number in numbers], labels)
    return {**arguments, **more}, blocks


def _how_many(model: Model, changes: int, num_cores: int) -> int:
    """How many children: one for each core, unless changes or memory are too few for that."""
    memory = machine.available_memory_bytes()
    each = _COPIES * model.size_bytes + _INTERPRETER_BYTES
    fitting = num_cores if memory is None else int(0.7 * memory / each)
    return max(1, min(num_cores, changes, fitting))
