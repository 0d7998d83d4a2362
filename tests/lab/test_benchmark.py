"""Sweeps through the front door: what is saved when, what a failure touches, how a cut-off one goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inferlab.errors import BadInput, EngineFailed, EngineHung, InferlabError
from inferlab.lab import Lab
from inferlab.lab.executor import Local
from inferlab.measure.cells import Job
from inferlab.records import Benchmark, Event, Listener, Plan, Run
from inferlab.store import Stored, open_store
from inferlab.store.store import Store
from tests.helpers.onnx_files import save_linear
from tests.helpers.runs import steady_run


class Scripted(Local):
    """Measures nothing: gives two runs for each job, or does what the script says for its batch size."""

    def __init__(self, script: dict[int, Callable[[], Iterator[Run]]] | None = None, processes: int = 2) -> None:
        self.script, self.processes = script or {}, processes
        self.order: list[int] = []
        self.before: list[int] = []

    def measure(self, job: Job, before: Sequence[Run], listener: Listener) -> Iterator[Run]:
        self.order.append(job.cell.batch_size)
        self.before.append(len(before))
        if job.cell.batch_size in self.script:
            yield from self.script[job.cell.batch_size]()
            return
        for _ in range(self.processes - len(before)):
            yield replace(steady_run(float(job.cell.batch_size)), cell_id=job.cell.id)


def then(error: BaseException, *runs: Run) -> Callable[[], Iterator[Run]]:
    def measure() -> Iterator[Run]:
        yield from runs
        raise error

    return measure


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_linear(tmp_path / "linear.onnx", "batch")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "lab.db")) as opened:
        yield opened


def a_plan(model: Path, *batches: int, **fields: Any) -> Plan:
    return Plan(str(model), engines=("fake",), scenarios=("sync",), num_cores=(1,), batch_sizes=batches, **fields)


def stored(store: Store, entry_id: str) -> Benchmark:
    found = store.get(entry_id)
    assert isinstance(found, Stored)
    return found.benchmark


def states(benchmark: Benchmark) -> list[str]:
    return [outcome.status for outcome in benchmark.outcomes]


def test_cells_are_measured_by_lot_and_shown_in_the_plans_order(model: Path) -> None:
    executor, again = Scripted(), Scripted()
    found = Lab(executor=executor).benchmark(a_plan(model, *range(1, 9)))
    assert [outcome.cell.batch_size for outcome in found.outcomes] == list(range(1, 9))
    assert executor.order != list(range(1, 9)) and sorted(executor.order) == list(range(1, 9))
    Lab(executor=again).benchmark(a_plan(model, *range(1, 9)))
    assert again.order == executor.order


def test_a_cell_that_fails_does_not_touch_the_others_and_keeps_its_runs(model: Path, store: Store) -> None:
    script = {
        2: then(EngineFailed("It died.")),
        3: then(EngineHung("It hung."), steady_run(1.0)),
        4: then(BadInput("No.")),
    }
    found = Lab(store, Scripted(script)).benchmark(a_plan(model, 1, 2, 3, 4, 5))
    assert states(found) == ["done", "failed", "failed", "failed", "done"]
    failures = [outcome.failure for outcome in found.outcomes if outcome.failure]
    assert [(failure.code, failure.message) for failure in failures] == [
        ("died", "It died."),
        ("hung", "It hung."),
        ("refused", "No."),
    ]
    assert [len(outcome.runs) for outcome in found.outcomes] == [2, 0, 1, 0, 2]
    assert stored(store, found.id).outcomes == found.outcomes


def test_every_run_is_saved_before_the_next_begins(model: Path, store: Store) -> None:
    counts: list[int] = []

    def measure() -> Iterator[Run]:
        for _ in range(3):
            counts.append(len(stored(store, store.history()[0].id).outcomes[0].runs))
            yield steady_run(1.0)

    Lab(store, Scripted({1: measure})).benchmark(a_plan(model, 1))
    assert counts == [0, 1, 2]


def test_an_interrupted_sweep_keeps_what_it_has_and_goes_on(model: Path, store: Store) -> None:
    stopped = Scripted({3: then(KeyboardInterrupt(), steady_run(1.0))})
    first = Lab(store, stopped).benchmark(a_plan(model, 1, 2, 3, 4))
    assert stopped.order[-1] == 3
    assert states(first)[2] == "cancelled" and states(first).count("pending") == 4 - len(stopped.order)
    going_on = Scripted()
    second = Lab(store, going_on).resume()
    assert second.id == first.id and states(second) == ["done"] * 4
    # The whole run of the cell in progress counts; what was done is not measured again.
    assert set(going_on.order) == {1, 2, 3, 4} - set(stopped.order[:-1])
    assert going_on.before[going_on.order.index(3)] == 1
    assert stored(store, first.id).outcomes == second.outcomes
    with pytest.raises(BadInput, match="Nothing is unfinished in the store"):
        Lab(store, Scripted()).resume()


def test_a_run_that_was_cut_short_is_measured_again(model: Path, store: Store) -> None:
    cut = replace(steady_run(9.0), interrupted=True)
    first = Lab(store, Scripted({1: lambda: iter([steady_run(1.0), cut])})).benchmark(a_plan(model, 1))
    assert states(first) == ["cancelled"] and len(first.outcomes[0].runs) == 2
    second = Lab(store, Scripted()).resume(first.id)
    assert [run.interrupted for run in second.outcomes[0].runs] == [False, False]
    assert stored(store, first.id).outcomes == second.outcomes


def test_runs_under_other_conditions_are_not_pooled_with_those_before(model: Path, store: Store) -> None:
    first = Lab(store, Scripted({1: then(KeyboardInterrupt(), steady_run(1.0))})).benchmark(a_plan(model, 1))
    newer = replace(steady_run(1.0), versions={"onnxruntime": "2"})
    second = Lab(store, Scripted({1: lambda: iter([newer])})).resume(first.id)
    (outcome,) = second.outcomes
    assert outcome.failure is not None and len(outcome.runs) == 1
    assert "begun with another version of the engine or of inferlab" in outcome.failure.message


def test_a_model_that_changed_is_not_gone_on_with(model: Path, store: Store) -> None:
    first = Lab(store, Scripted({1: then(KeyboardInterrupt())})).benchmark(a_plan(model, 1))
    save_linear(model, "batch", width=8)
    for again in (Lab(store).resume, Lab(store).rerun):
        with pytest.raises(BadInput, match="has changed since it was measured"):
            again(first.id)


def test_a_rerun_has_the_same_conditions_and_is_a_new_entry(model: Path, store: Store) -> None:
    first = Lab(store, Scripted()).benchmark(a_plan(model, 1, 2, time_s=3.0))
    second = Lab(store, Scripted()).rerun(first.id)
    assert second.id != first.id and second.plan == first.plan
    assert [outcome.cell.id for outcome in second.outcomes] == [outcome.cell.id for outcome in first.outcomes]


def test_what_is_no_benchmark_cannot_be_measured_again(store: Store) -> None:
    found = store.add_document("comparison", "a / b", {"verdict": "same"})
    with pytest.raises(BadInput, match="is a comparison, not a benchmark"):
        Lab(store).rerun(found)


def test_a_store_that_fails_costs_the_saving_and_not_the_measuring(
    model: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise InferlabError("The disk of the store is full.")

    monkeypatch.setattr(store, "add_run", full)
    events: list[Event] = []
    found = Lab(store, Scripted()).benchmark(a_plan(model, 1, 2), events.append)
    assert states(found) == ["done", "done"] and [len(outcome.runs) for outcome in found.outcomes] == [2, 2]
    assert [event.data for event in events if event.code == "unsaved"] == [
        {"reason": "The disk of the store is full."}
    ]


def test_a_sweep_tells_of_its_cells_and_how_much_of_the_whole_is_done(model: Path) -> None:
    class Live(Scripted):
        def measure(self, job: Job, before: Sequence[Run], listener: Listener) -> Iterator[Run]:
            listener(Event("measuring", fraction=0.5))
            listener(Event("engine", {"engine": "fake"}))
            return super().measure(job, before, listener)

    events: list[Event] = []
    Lab(executor=Live()).benchmark(a_plan(model, 1, 2), events.append, live=True)
    assert [event.code for event in events] == ["cell", "measuring", "measured"] * 2
    assert [event.fraction for event in events if event.code == "measuring"] == [0.25, 0.75]


def test_cells_that_come_out_alike_are_measured_once(model: Path) -> None:
    plan = replace(a_plan(model, 1), num_cores=(1, None, 1), scenarios=("sync", "sync"))
    assert len(Lab().cells(plan)) == len({1, Lab().cells(replace(plan, num_cores=(None,)))[0].num_cores})


def test_of_several_scenarios_each_takes_what_concerns_it(model: Path) -> None:
    plan = replace(a_plan(model, 1), scenarios=("sync", "async", "server"), rates=(50.0,), num_streams=(1, 2))
    found = [(cell.scenario, cell.num_streams, cell.rate) for cell in Lab().cells(plan)]
    assert found == [
        ("sync", 1, None),
        ("async", 1, None),
        ("async", 2, None),
        ("server", 1, 50.0),
        ("server", 2, 50.0),
    ]
    with pytest.raises(BadInput, match="sync has one stream, not 2"):
        Lab().cells(replace(plan, scenarios=("sync",), rates=(None,)))


def test_a_model_named_by_a_relative_path_is_found_again_from_elsewhere(
    model: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    first = Lab(store, Scripted()).benchmark(replace(a_plan(model, 1), model=model.name))
    assert first.model.source == store.history()[0].title == model.name
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert states(Lab(store, Scripted()).rerun(first.id)) == ["done"]
