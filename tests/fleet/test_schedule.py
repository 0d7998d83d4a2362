"""Which node gets which cell, with nodes that follow a script."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from inferlab.fleet.nodes import Crashed, Ended, Lost, Measured, Message, Node, Progress, Ready
from inferlab.fleet.schedule import Schedule, Slot
from inferlab.records import Cell, Event, Failure, Outcome, Run, ignore
from inferlab.store import Saver
from tests.helpers.nodes import MACHINE, a_node
from tests.helpers.runs import a_cell, steady_run

Script = dict[tuple[str, int], list[Callable[[str], Message]]]


class Scripted:
    """Nodes that measure two runs of a cell at once, or do what the script says for a node and a batch size."""

    def __init__(self, spares: Sequence[Node] = (), script: Script | None = None) -> None:
        self.script, self._spares = script or {}, spares
        self.messages: list[Message] = []
        self.did: list[tuple[str, int, int]] = []
        self.problems: dict[str, str] = {}
        self.interrupt = False

    def make_ready(self, node: Node) -> None:
        self.messages.append(Ready(node.id, self.problems))

    def measure(self, node: Node, one: Cell, before: Sequence[Run]) -> None:
        self.did.append((node.name, one.batch_size, len(before)))
        usual = [lambda name: measured(name) for _ in range(2 - len(before))]
        script = self.script.pop((node.name, one.batch_size), [*usual, lambda name: Ended(name, None)])
        self.messages += [make(node.id) for make in script]

    def wait(self, timeout_s: float) -> list[Message]:
        if self.interrupt and not self.messages:
            raise KeyboardInterrupt
        found, self.messages = self.messages[:1], self.messages[1:]
        return found

    def cancel(self) -> list[Message]:
        return []

    def spares(self, machine_type: str) -> list[Node]:
        return list(self._spares)


def measured(node: str) -> Measured:
    return Measured(node, replace(steady_run(1.0), machine=replace(MACHINE, node=node)))


def lost(node: str) -> Lost:
    return Lost(node, "The node was lost.")


def cells(*batches: int) -> list[Cell]:
    return [a_cell(batch_size=batch, machine_type="a") for batch in batches]


def run(nodes: Scripted, *slots: Slot, listener: Callable[[Event], None] = ignore) -> list[Outcome]:
    planned = [one for slot in slots for one in slot.waiting]
    schedule = Schedule(nodes, Saver(None, listener), listener, 0)
    return list(schedule.run(slots, [Outcome(one, "pending") for one in planned]))


def a_slot(name: str, *batches: int) -> Slot:
    return Slot("a", a_node(name), deque(cells(*batches)))


def told(outcomes: Sequence[Outcome]) -> list[tuple[int, str, int]]:
    return [(outcome.cell.batch_size, outcome.status, len(outcome.runs)) for outcome in outcomes]


def test_a_lost_nodes_cell_goes_on_where_it_was_on_a_node_that_is_alike() -> None:
    unlike = a_node("n2", replace(MACHINE, cpu="another"))
    nodes = Scripted([a_node("n1"), unlike, a_node("n3")], {("n1", 8): [measured, lost]})
    assert told(run(nodes, a_slot("n1", 8))) == [(8, "done", 2)]
    assert nodes.did == [("n1", 8, 0), ("n3", 8, 1)]


def test_without_another_node_all_its_cells_are_marked_with_the_cause() -> None:
    nodes = Scripted(script={("n1", 1): [measured, lost], ("n1", 2): [lost]})
    outcomes = run(nodes, a_slot("n1", 1, 2), a_slot("n2", 4))
    # In random order, the cell of two came first.
    assert told(outcomes) == [(1, "failed", 0), (2, "failed", 0), (4, "done", 2)]
    failures = {outcome.failure for outcome in outcomes if outcome.failure}
    assert failures == {Failure("lost", "The node was lost. No other node of a was free. (Node n1.)")}


def test_a_node_that_measures_for_another_slot_is_not_taken() -> None:
    spare = a_node("n2")
    nodes = Scripted([spare], {("n1", 1): [lost]})
    assert told(run(nodes, a_slot("n1", 1), a_slot("n2", 2))) == [(1, "failed", 0), (2, "done", 2)]


def test_a_cell_that_kills_its_worker_is_tried_once_more() -> None:
    def crash(name: str) -> Message:
        return Crashed(name, "The worker died.")

    nodes = Scripted(script={("n1", 1): [measured, crash]})
    assert told(run(nodes, a_slot("n1", 1))) == [(1, "done", 2)]
    again = Scripted()
    again.measure = lambda node, one, before: again.messages.append(crash(node.id))  # type: ignore[method-assign]
    (outcome,) = run(again, a_slot("n1", 1))
    assert outcome.failure == Failure("died", "The worker died. (Node n1.)")


def test_nodes_that_cannot_get_ready_are_given_up_one_by_one() -> None:
    """Such as those whose disks are full; they stay in the cluster's list."""
    nodes = Scripted([a_node("n1"), a_node("n2")])
    tried: list[str] = []

    def fail(node: Node) -> None:
        tried.append(node.name)
        nodes.messages.append(Ended(node.id, Failure("died", f"The disk of {node.name} is full.")))

    nodes.make_ready = fail  # type: ignore[method-assign]
    (outcome,) = run(nodes, a_slot("n1", 1))
    assert tried == ["n1", "n2"]
    message = "The disk of n2 is full. No other node of a was free. (Node n2.)"
    assert outcome.failure == Failure("lost", message)


def test_ctrl_c_leaves_what_was_not_begun_pending() -> None:
    nodes = Scripted(script={("n1", 1): [measured], ("n1", 2): [measured]})
    nodes.interrupt = True
    outcomes = run(nodes, a_slot("n1", 1, 2))
    assert sorted((outcome.status, len(outcome.runs)) for outcome in outcomes) == [
        ("cancelled", 1),
        ("pending", 0),
    ]


def test_a_cell_whose_last_run_was_cut_short_is_cancelled() -> None:
    def cut(name: str) -> Message:
        return Measured(name, replace(measured(name).run, interrupted=True))

    nodes = Scripted(script={("n1", 1): [measured, cut, lambda name: Ended(name, None)]})
    assert told(run(nodes, a_slot("n1", 1))) == [(1, "cancelled", 2)]


def test_an_engine_that_could_not_be_installed_costs_its_cells() -> None:
    nodes = Scripted()
    nodes.problems = {"fake": "pip said no."}
    (outcome,) = run(nodes, a_slot("n1", 1))
    assert outcome.failure == Failure("refused", "pip said no. (Node n1.)") and nodes.did == []


def test_runs_of_another_version_are_not_pooled_with_those_of_the_lost_node() -> None:
    def newer(name: str) -> Message:
        return Measured(name, replace(measured(name).run, versions={"fake": "2"}))

    nodes = Scripted([a_node("n2")], {("n1", 1): [measured, lost]})
    nodes.script["n2", 1] = [newer, lambda name: Ended(name, None)]
    (outcome,) = run(nodes, a_slot("n1", 1))
    assert outcome.status == "failed" and len(outcome.runs) == 1
    assert outcome.failure and "another version of the engine" in outcome.failure.message


def test_progress_is_of_all_nodes_together() -> None:
    def half(name: str) -> Message:
        return Progress(name, Event("measuring", {}, 0.5))

    events: list[Event] = []
    nodes = Scripted(script={("n1", 1): [half, measured, measured, lambda name: Ended(name, None)]})
    run(nodes, a_slot("n1", 1), a_slot("n2", 2), listener=events.append)
    (progress,) = [event for event in events if event.fraction is not None]
    assert progress.fraction == pytest.approx(0.25)
    assert progress.data["nodes"]["n1"] == ("measuring", 0.5)
