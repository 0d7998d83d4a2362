"""What is called the best is the same in every view, also where the median and the mean disagree."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferlab.measure.exploration import undisturbed_rate
from inferlab.measure.stats import best_is, ms_per_item, statistic
from inferlab.records import Benchmark, Candidate, Outcome
from inferlab.results import BenchmarkResult
from inferlab.store import open_store
from inferlab.views import benchmark as view
from inferlab.views import benchmark_file, history
from inferlab.views.charts import sweeps
from inferlab.views.charts.cards import best_and_worst
from inferlab.views.charts.points import from_row
from inferlab.views.reports.benchmark import report
from inferlab.web.pages import start
from tests.helpers.runs import a_cell, a_run, a_window, back_to_back
from tests.helpers.sweeps import a_sweep


def disagreeing(scenario: str) -> Benchmark:
    """The first cell has the lower median (1 ms, mean 2.8 ms), the second the higher throughput (2 ms always)."""
    latencies = {"onnxruntime": [1.0] * 8 + [10.0] * 2, "openvino": [2.0] * 10}
    outcomes = []
    for engine, calls in latencies.items():
        runs = [a_run(a_window(back_to_back(*calls)), versions={engine: "1.0"}) for _ in range(3)]
        outcomes.append(Outcome(a_cell(engine=engine, scenario=scenario), "done", tuple(runs)))
    return a_sweep(*outcomes)


@pytest.mark.parametrize(
    ("scenario", "best", "said", "shown"),
    [
        ("sync", "onnxruntime", "lowest median latency per item", "median 1 ms"),
        ("offline", "openvino", "highest throughput", "500 items/s"),
    ],
)
def test_every_view_calls_the_same_cell_the_best(
    tmp_path: Path, scenario: str, best: str, said: str, shown: str
) -> None:
    benchmark = disagreeing(scenario)
    streams = 1 if scenario == "sync" else 2
    number = 1 if best == "onnxruntime" else 2
    points = [from_row(row) for row in benchmark_file.rows(benchmark)]
    assert view.remarks(benchmark.outcomes)[number - 1] == "best"
    assert view.verdict(benchmark)[0].startswith(f"Best ({said}): #{number}, {best}")
    # The other one's speed-up is below 1, whichever is the baseline.
    (other,) = [one for one in benchmark.outcomes if one.cell.engine != best]
    assert view.speed_up(other, benchmark.outcomes[number - 1]).value < 1
    ends = best_and_worst(points)
    assert ends is not None
    assert ends[0].engine == best
    chosen = BenchmarkResult(benchmark).best
    assert chosen is not None
    assert chosen.record.outcomes[0].cell.engine == best
    bars = sweeps.bars(points)
    names = list(bars.layout.yaxis.ticktext)
    assert [name for name, opacity in zip(names, bars.data[0].marker.opacity, strict=True) if opacity > 0.8] == [
        best
    ]
    page = report(benchmark)
    word = statistic(scenario)
    assert f"Best time per item (ms, {word})" in page
    assert f"{best}, {scenario}" in page.partition("Best time per item")[2][:400]
    with open_store(str(tmp_path / "lab.db")) as store:
        store.projects.add("p", "", benchmark.model)
        kept = store.begin(benchmark.plan, benchmark.model, [one.cell for one in benchmark.outcomes])
        for outcome in benchmark.outcomes:
            for run in outcome.runs:
                store.add_run(kept, outcome.cell.id, run)
            store.finish_cell(kept, outcome.cell.id, "done", None)
        (entry,) = store.history()
        (line,) = store.projects.lines()
    assert history.best(entry.cells).startswith(shown)
    assert line.best is not None
    assert line.best.cell.engine == best
    assert start.best(line.best)[0].startswith(shown)
    # A search for the best configuration ranks its candidates by the same number.
    rates = {
        one.cell.engine: undisturbed_rate(one.runs[0], Candidate(one.cell.engine, 1, streams, 1))
        for one in benchmark.outcomes
    }
    assert max(rates, key=lambda name: rates[name]) == best


def test_the_time_per_item_is_of_the_median_batch_or_of_the_throughput() -> None:
    assert ms_per_item("sync", 4, 8.0, 100.0) == 2.0
    assert ms_per_item("server", 1, 8.0, 100.0) == 8.0
    assert [ms_per_item(name, 4, 8.0, 100.0) for name in ("async", "elastic", "offline")] == [10.0] * 3
    assert ms_per_item("sync", None, 8.0, 100.0) is None
    assert ms_per_item("async", 1, 8.0, 0.0) is None
    assert best_is(["sync", "async"]) == "lowest time per item"
