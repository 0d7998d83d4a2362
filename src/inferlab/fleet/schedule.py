"""Which node measures which cell: nodes side by side, one cell at a time each; another takes over what is lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from inferlab.errors import BadInput
from inferlab.fleet.nodes import Crashed, Ended, Lost, Measured, Message, Node, Progress, Ready, unlike
from inferlab.measure.cell import check_alike
from inferlab.measure.cells import in_random_order
from inferlab.records import Cell, Event, Failure, Listener, Outcome, Run, Status
from inferlab.store import Saver

# A worker that dies while its node lives may have been killed by chance once.
_MOST_CRASHES = 2
#: So long a look at what the nodes say may take.
LOOK_S = 1.0


class Workforce(Protocol):
    """Nodes that work when told to, one thing at a time each."""

    def make_ready(self, node: Node) -> None:
        """Send a node what it lacks; it answers that it is ready."""

    def measure(self, node: Node, cell: Cell, before: Sequence[Run]) -> None:
        """Let a node measure a cell; it answers with each run, and that it has ended."""

    def wait(self, timeout_s: float) -> list[Message]:
        """What the nodes say within this time."""

    def cancel(self) -> list[Message]:
        """Stop all work, and hand over what was measured by then."""

    def spares(self, machine_type: str) -> list[Node]:
        """The nodes of a type that there are now."""


@dataclass(slots=True)
class Slot:
    """One machine of a type: the node that stands for it now, and the cells that wait for it."""

    machine_type: str
    node: Node
    waiting: deque[Cell]
    current: Cell | None = None
    #: How much of the current cell is done.
    fraction: float = 0.0
    stage: str = "getting ready"
    #: Engines that the node lacks, and why.
    problems: dict[str, str] = field(default_factory=dict)
    #: Why what was measured of the current cell cannot count.
    refusal: Failure | None = None


class Schedule:
    """A plan on its way through a cluster: what became of each cell so far."""

    def __init__(self, workforce: Workforce, saver: Saver, listener: Listener, seed: int) -> None:
        self._workforce, self._saver, self._listen, self._seed = workforce, saver, listener, seed
        self._slots: dict[str, Slot] = {}
        self._runs: dict[str, list[Run]] = {}
        self._crashes: dict[str, int] = {}
        #: Nodes that were lost, or could not get ready; they may still be listed.
        self._given_up: set[str] = set()
        self.outcomes: dict[str, Outcome] = {}

    def run(self, slots: Sequence[Slot], before: Sequence[Outcome]) -> tuple[Outcome, ...]:
        """Measure what waits in the slots; Ctrl-C leaves the rest pending."""
        self.outcomes = {outcome.cell.id: outcome for outcome in before}
        for slot in slots:
            # Each machine has an order of its own.
            slot.waiting = deque(in_random_order(slot.waiting, f"{self._seed} {slot.node.name}"))
        try:
            for slot in slots:
                self._place(slot, slot.node)
            while self._slots:
                for message in self._workforce.wait(LOOK_S):
                    self._take(message)
        except KeyboardInterrupt:
            for message in self._workforce.cancel():
                if isinstance(message, Measured | Ended):
                    self._take_last(message)
            for slot in self._slots.values():
                if slot.current is not None:
                    self._finish(slot, "cancelled")
        return tuple(self.outcomes.values())

    def _place(self, slot: Slot, node: Node) -> None:
        slot.node, slot.stage = node, "getting ready"
        self._slots[node.id] = slot
        self._workforce.make_ready(node)

    def _take(self, message: Message) -> None:
        if isinstance(message, Progress):
            self._hear(message)
            return
        slot = self._slots.get(message.node_id)
        if slot is None:
            return  # a last word of a node that was given up
        if isinstance(message, Ready):
            slot.problems = message.problems
            self._next(slot)
        elif isinstance(message, Measured):
            self._measured(slot, message.run)
        elif isinstance(message, Ended) and slot.current is None:
            assert message.failure is not None, "what a node does to get ready ends with Ready, or fails"
            self._lost(slot, message.failure.message)
        elif isinstance(message, Ended):
            self._ended(slot, message)
            self._next(slot)
        elif isinstance(message, Crashed):
            self._crashed(slot, message.cause)
        elif isinstance(message, Lost):
            self._lost(slot, message.cause)

    def _take_last(self, message: Measured | Ended) -> None:
        slot = self._slots.get(message.node_id)
        if slot is None or slot.current is None:
            return
        if isinstance(message, Measured):
            self._measured(slot, message.run)
        else:
            self._ended(slot, message)

    def _ended(self, slot: Slot, message: Ended) -> None:
        assert slot.current is not None
        failure = slot.refusal or message.failure
        if failure is not None:
            self._finish(slot, "failed", failure)
        elif any(run.interrupted for run in self._runs_of(slot.current)):
            self._finish(slot, "cancelled")
        else:
            self._finish(slot, "done")

    def _next(self, slot: Slot) -> None:
        """Begin the slot's next cell; without one it gives its node free."""
        while slot.waiting:
            cell = slot.current = slot.waiting.popleft()
            slot.fraction, slot.stage, slot.refusal = 0.0, "waiting", None
            self._tell(Event("cell", {"cell": cell, "number": self._done + 1, "of": len(self.outcomes)}), slot)
            if problem := slot.problems.get(cell.engine):
                self._finish(slot, "failed", Failure("refused", problem))
                continue
            self._workforce.measure(slot.node, cell, self._runs_of(cell))
            return
        slot.current = None
        del self._slots[slot.node.id]

    def _measured(self, slot: Slot, run: Run) -> None:
        assert slot.current is not None
        runs = self._runs_of(slot.current)
        try:
            check_alike(runs, run, across_machines=True)
        except BadInput as error:
            slot.refusal = Failure("refused", str(error))
            return
        runs.append(run)
        self._saver.run(slot.current, run)

    def _runs_of(self, cell: Cell) -> list[Run]:
        return self._runs.setdefault(cell.id, list(self.outcomes[cell.id].runs))

    def _finish(self, slot: Slot, status: Status, failure: Failure | None = None) -> None:
        assert slot.current is not None
        cell, slot.current = slot.current, None
        if failure is not None:
            failure = Failure(failure.code, f"{failure.message} (Node {slot.node.name}.)")
        outcome = Outcome(cell, status, tuple(self._runs.get(cell.id, self.outcomes[cell.id].runs)), failure)
        self.outcomes[cell.id] = outcome
        self._runs.pop(cell.id, None)
        self._saver.finish(outcome)
        self._tell(Event("measured", {"outcome": outcome}), slot)

    def _crashed(self, slot: Slot, cause: str) -> None:
        """Try a cell again whose worker died; a cell that kills its worker again is at fault itself."""
        if slot.current is None:  # it was getting ready
            self._lost(slot, cause)
            return
        cell = slot.current
        self._crashes[cell.id] = self._crashes.get(cell.id, 0) + 1
        if self._crashes[cell.id] >= _MOST_CRASHES:
            self._finish(slot, "failed", Failure("died", cause))
        else:
            slot.waiting.appendleft(cell)
        self._next(slot)

    def _lost(self, slot: Slot, cause: str) -> None:
        """Give the slot another node that is alike, or say of all its cells why they have no result."""
        self._tell(Event("node-lost", {"node": slot.node.name, "cause": cause}))
        del self._slots[slot.node.id]
        gone = slot.node
        self._given_up.add(gone.id)
        if slot.current is not None:
            slot.waiting.appendleft(slot.current)
            slot.current = None
        try:
            spares = self._workforce.spares(slot.machine_type)
        except BadInput as error:
            spares, cause = [], f"{cause} {error}"
        for spare in spares:
            if spare.id not in (*self._given_up, *self._slots) and not unlike(spare.machine, gone.machine):
                self._place(slot, spare)
                return
        failure = Failure("lost", f"{cause} No other node of {slot.machine_type} was free.")
        while slot.waiting:
            slot.current = slot.waiting.popleft()
            self._finish(slot, "failed", failure)

    # Telling.

    @property
    def _done(self) -> int:
        return sum(outcome.status in ("done", "failed") for outcome in self.outcomes.values())

    def _hear(self, message: Progress) -> None:
        sender = next((slot for slot in self._slots.values() if slot.node.name == message.node), None)
        if message.event.fraction is None or sender is None:
            self._tell(message.event, sender)
            return
        sender.fraction, sender.stage = message.event.fraction, message.event.code
        busy = [slot for slot in self._slots.values() if slot.current is not None]
        whole = (self._done + sum(slot.fraction for slot in busy)) / len(self.outcomes)
        states = {slot.node.name: (slot.stage, slot.fraction) for slot in self._slots.values()}
        self._listen(Event("nodes", {"nodes": states}, min(1.0, whole)))

    def _tell(self, event: Event, sender: Slot | None = None) -> None:
        if sender is None:
            self._listen(event)
        else:
            self._listen(Event("on-node", {"node": sender.node.name, "event": event}))
