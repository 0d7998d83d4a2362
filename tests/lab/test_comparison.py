"""The same two arms at several core counts and batch sizes, on the fake engine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inferlab.errors import BadInput, EngineFailed
from inferlab.lab import Lab
from inferlab.lab.comparison import split
from inferlab.lab.executor import Local
from inferlab.machine import Core, host_name
from inferlab.measure.paired import BUILT_IN_PRIOR, ComparisonJob, PairedComparison
from inferlab.plotting import plot
from inferlab.records import (
    Comparison,
    ComparisonFailure,
    ComparisonSweep,
    Estimate,
    Listener,
    Plan,
    SpreadPrior,
)
from inferlab.records.generation import GenerationPlan
from inferlab.store import Document, open_store
from inferlab.store.formats import record_of
from inferlab.store.store import Store
from tests.helpers.sweeps import a_comparison

A = Plan("demo:mlp", engines=("onnxruntime",), scenarios=("sync",), num_cores=(1,), batch_sizes=(1, 4))
B = Plan("demo:mlp", engines=("openvino",), scenarios=("sync",), num_cores=(1,), batch_sizes=(1, 4))


class Scripted(Local):
    """Compares by a script: what comes out at each batch size, or what is raised."""

    def __init__(self, **script: object) -> None:
        self.script = script
        self.asked: list[int] = []
        self.cores: list[int] = []
        self.fresh: list[bool] = []

    def compare(self, job: ComparisonJob, listener: Listener) -> Comparison:
        batch_size = job.a.cell.batch_size
        self.asked.append(batch_size)
        self.cores.append(job.a.cell.num_cores)
        self.fresh.append(job.fresh)
        found = self.script.get(f"batch_{batch_size}")
        if isinstance(found, BaseException):
            raise found
        cells = (job.a.cell, job.b.cell)
        models = (job.a.model, job.b.model)
        return a_comparison(1.5, labels=job.labels, cells=cells, models=models, interrupted=found == "cut")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "lab.db")) as opened:
        yield opened


def _document(store: Store, entry_id: str) -> Document:
    found = store.get(entry_id)
    assert isinstance(found, Document)
    return found


def test_both_arms_are_split_in_the_same_way() -> None:
    several = Plan("m", num_cores=(1, 2), batch_sizes=(1, 8))
    assert [(one.num_cores, one.batch_sizes) for one, _ in split(several, several)] == [
        ((1,), (1,)),
        ((1,), (8,)),
        ((2,), (1,)),
        ((2,), (8,)),
    ]
    with pytest.raises(BadInput, match="equally many core counts"):
        split(several, Plan("m"))


def _interrupted(store: Store, entry_id: str) -> list[bool]:
    sweep = record_of(_document(store, entry_id))
    assert isinstance(sweep, ComparisonSweep)
    return [result.interrupted for result in sweep.results]


def test_every_comparison_is_kept_with_its_cells_in_one_entry(store: Store) -> None:
    series = Lab(store, Scripted()).compare_all(A, B, labels=("ort", "ov"))
    found = _document(store, series.id)
    sweep = record_of(found)
    assert replace(series, id=found.id) == sweep
    assert [result.cells[0].batch_size for result in series.results if result.cells] == [1, 4]
    assert [(outcome.cell.engine, outcome.cell.batch_size) for outcome in found.outcomes] == [
        ("onnxruntime", 1),
        ("openvino", 1),
        ("onnxruntime", 4),
        ("openvino", 4),
    ]
    models = series.results[0].models
    assert models and store.entry(series.id).model_digest == models[0].digest


@pytest.mark.parametrize("fresh", [False, True])
def test_all_comparisons_are_of_fresh_processes_where_that_is_asked(store: Store, fresh: bool) -> None:
    executor = Scripted()
    Lab(store, executor).compare_all(A, B, fresh=fresh)
    assert executor.fresh == [fresh, fresh]


def test_one_comparison_alone_is_kept_as_one_of_several_is(store: Store) -> None:
    lab = Lab(store, Scripted())
    one = Plan("demo:mlp", scenarios=("sync",), num_cores=(1,))
    series = lab.compare_all(one, one)
    lab.compare(one, one)
    assert _document(store, store.history()[0].id).content == _document(store, series.id).content


class Expecting(Local):
    """Compares six pairs that differ by 1 % (a standard deviation), and notes what was expected of them."""

    def __init__(self) -> None:
        self.priors: list[SpreadPrior] = []

    def compare(self, job: ComparisonJob, listener: Listener) -> Comparison:
        self.priors.append(job.prior)
        ratios = [math.exp(0.01 * math.sqrt(5 / 6) * sign) for sign in (-1, 1) * 3]
        cells, ratio = (job.a.cell, job.b.cell), Estimate(1.0, 0.99, 1.01, 0.98, "moderated")
        return a_comparison(*ratios, cells=cells, models=(job.a.model, job.b.model), ratio=ratio)


def test_pairs_are_expected_to_differ_as_those_on_as_many_cores_did_before(store: Store) -> None:
    executor = Expecting()
    lab = Lab(store, executor)
    plan = replace(A, batch_sizes=(1,))
    for _ in range(6):
        lab.compare(plan, plan)
    assert executor.priors[:5] == [BUILT_IN_PRIOR] * 5
    (known,) = executor.priors[5:]
    assert known.sd == pytest.approx(0.0125)
    assert (known.freedom, known.comparisons) == (2.0, 5)
    assert list(lab.machine_spreads()[host_name()]) == [1] and Lab().expected_spreads() == {}
    # What other machines saved in the same store is not about this one, but about them.
    with store._database.writing() as connection:
        connection.rows("UPDATE entry SET node = :node", node="elsewhere")
    assert lab.expected_spreads() == {} and lab.machine_spreads()["elsewhere"][1].comparisons == 6


def test_comparisons_of_generations_expect_what_those_before_them_showed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = GenerationPlan("demo:llama_tiny", engines=("fake",), num_cores=(1,), verify=False)
    lab = Lab(store)
    lab.compare_generations(plan, plan, time_s=0.1)
    content = dict(_document(store, store.history()[0].id).content)
    content["log_ratios"] = [0.01 * math.sqrt(5 / 6) * sign for sign in (-1, 1) * 3]
    content["ratio"] = {**content["ratio"], "method": "moderated"}
    for _ in range(5):
        store.add_document("generation-comparison", "a / b", content)
    seen: list[SpreadPrior] = []
    whole = PairedComparison.run

    def noted(self: PairedComparison) -> dict[str, Any]:
        seen.append(self._job.prior)
        return whole(self)

    monkeypatch.setattr(PairedComparison, "run", noted)
    found = lab.compare_generations(plan, plan, time_s=0.1)
    assert [round(prior.sd, 6) for prior in seen] == [0.0125] and found.spread.prior.comparisons == 5
    # Calls differ by other amounts than generations: neither says anything of the other.
    assert lab.expected_spreads() == {}


@pytest.mark.parametrize(
    "brief", ['{"results": 3}', '{"results": [{"num_cores": 1}]}', '{"results": ["x"]}', "[1]"]
)
def test_a_store_with_odd_content_is_no_reason_not_to_compare(store: Store, brief: str) -> None:
    plan = replace(A, batch_sizes=(1,))
    lab = Lab(store, Expecting())
    lab.compare(plan, plan)
    with store._database.writing() as connection:
        connection.rows("UPDATE entry SET brief = :brief", brief=brief)
    assert lab.compare(plan, plan).ratio.value == 1.0


def test_an_engine_that_fails_at_one_place_does_not_touch_the_others(store: Store) -> None:
    series = Lab(store, Scripted(batch_1=EngineFailed("It died."))).compare_all(A, B)
    assert [result.cells[0].batch_size for result in series.results if result.cells] == [4]
    assert series.failures == (ComparisonFailure(1, 1, "It died."),)
    assert record_of(_document(store, series.id)) == series


def test_what_was_cut_off_is_measured_again_and_what_was_done_is_not(store: Store) -> None:
    first = Scripted(batch_4="cut")
    series = Lab(store, first).compare_all(A, B)
    assert series.interrupted
    store.rename(series.id, "Before the change")
    assert _interrupted(store, series.id) == [False, True]
    second = Scripted()
    again = Lab(store, second).compare_all(A, B, entry_id=series.id)
    assert (again.id, first.asked, second.asked) == (series.id, [1, 4], [4])
    found = _document(store, series.id)
    assert _interrupted(store, series.id) == [False, False]
    assert len(found.outcomes) == 4
    assert store.entry(series.id).brief["name"] == "Before the change"


@pytest.mark.parametrize("num_cores", [(1, None), (None, 1)])
def test_one_core_and_all_cores_are_both_compared(
    store: Store, monkeypatch: pytest.MonkeyPatch, num_cores: tuple[int | None, ...]
) -> None:
    monkeypatch.setattr("inferlab.machine.cores", lambda: tuple(Core((cpu,), 0) for cpu in range(2)))
    a, b = (replace(plan, num_cores=num_cores, batch_sizes=(1,)) for plan in (A, B))
    wanted = [cores or 2 for cores in num_cores]
    first = Scripted()
    series = Lab(store, first).compare_all(a, b)
    assert first.cores == wanted
    assert [result.cells[0].num_cores for result in series.results if result.cells] == wanted
    # Both are known when it goes on, and a third one is not.
    second = Scripted()
    a, b = (replace(plan, num_cores=(*num_cores, 2)) for plan in (a, b))
    again = Lab(store, second).compare_all(a, b, entry_id=series.id)
    assert second.cores == [2]
    assert len(again.results) == 3


def test_ctrl_c_before_anything_is_measured_leaves_nothing(store: Store) -> None:
    series = Lab(store, Scripted(batch_1=KeyboardInterrupt())).compare_all(A, B)
    assert (series.interrupted, series.id, store.history()) == (True, "", [])


def test_several_comparisons_are_shown_one_after_the_other(store: Store) -> None:
    from inferlab.views import results

    series = Lab(store, Scripted()).compare_all(A, B, labels=("ort", "ov"))
    lines = results.entry_lines(_document(store, series.id))
    assert lines.count("B: ov: 3.0000 ms (median latency per item)") == 2
    assert [line for line in lines if line.startswith("1 core")] == [
        "1 core, batch size 1",
        "1 core, batch size 4",
    ]


def test_each_comparison_of_several_is_drawn_by_its_number(store: Store) -> None:
    series = Lab(store, Scripted()).compare_all(A, B, labels=("ort", "ov"))
    figure = plot(f"{series.id}#2", store=store)
    assert list(figure.data[0].y) == pytest.approx([1.5])
    places = f"{series.id}#1: 1 core, batch 1; {series.id}#2: 1 core, batch 4"
    with pytest.raises(BadInput) as raised:
        plot(series.id, store=store)
    assert str(raised.value) == (
        f"{series.id} has 2 comparisons, and each has a chart of its own. Name one: {places}."
    )
    with pytest.raises(BadInput, match="there is no result 3 among 2"):
        plot(f"{series.id}#3", store=store)


@pytest.mark.parametrize("results", ["[[]]", '[{"a": 5}]', '[{"a": {"cell": {"num_cores": []}}}, {}]', "7"])
def test_a_damaged_file_of_comparisons_is_refused_in_a_sentence(tmp_path: Path, results: str) -> None:
    file = tmp_path / "out.json"
    file.write_text(f'{{"format": "inferlab-comparison/1", "results": {results}}}')
    with pytest.raises(BadInput, match="damaged"):
        plot(str(file))
