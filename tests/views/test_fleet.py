"""Tables, files and charts of cells that were measured on the machine types of a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from inferlab.errors import BadInput
from inferlab.fleet.executor import fleet_recommendation
from inferlab.measure.queueing import parse_objective
from inferlab.records import (
    Benchmark,
    Candidate,
    Contender,
    Estimate,
    Failure,
    Figures,
    Outcome,
    OutputCheck,
    Recommendation,
    Round,
)
from inferlab.views import benchmark as view
from inferlab.views import benchmark_file, results, tables
from inferlab.views.charts import sweeps
from inferlab.views.charts.points import from_row
from tests.helpers.outcomes import benchmark, outcome
from tests.helpers.runs import a_cell
from tests.helpers.stored import MODEL

#: 0.36 an hour at 1,000 a second is 0.1 a million.
PRICES = (("c7i", 0.36), ("c7g", 0.09))


def on(machine_type: str, *times_ms: float, **cell: Any) -> Outcome:
    return outcome(times_ms or (1.0, 1.0), machine_type=machine_type, **cell)


def priced(*outcomes: Outcome) -> Benchmark:
    found = benchmark(*outcomes)
    return replace(found, plan=replace(found.plan, cluster="auto", prices=PRICES))


def test_a_cell_that_has_no_cluster_is_called_as_it_always_was() -> None:
    assert a_cell().id == "076dbe9bd5f5a161"
    ids = {a_cell(machine_type=kind, machine_number=number).id for kind in ("a", "b") for number in (None, 1, 2)}
    assert len(ids | {a_cell().id}) == 7


def test_the_table_has_machine_percentiles_and_cost_and_names_the_cheapest() -> None:
    found = priced(on("c7i", 1.0, 1.0), on("c7g", 2.0, 2.0), on("m7a", 0.5, 0.5))
    lines = results.lines(found)
    head, *rows = [line.split() for line in lines[1:5]]
    assert head[:5] == ["#", "machine", "engine", "cores", "batch"]
    cost = lines[1].index("cost/million") + len("cost/million")
    assert [line[:cost].split()[-1] for line in lines[2:5]] == ["0.1", "0.05", "-"]
    assert [row[1] for row in rows] == ["c7i", "c7g", "m7a"]
    assert "Best (lowest median latency per item): #3, m7a, fake, sync, 1 core, batch 1." in lines
    assert "Cheapest: #2, c7g, fake, sync, 1 core, batch 1: 0.05 per million inferences (0.05 to 0.05)." in lines


def test_percentiles_that_too_few_samples_carry_are_not_shown() -> None:
    lines = ["", *tables.text(view.table_blocks(priced(on("c7i"))))]
    assert lines[1].split()[8:14] == ["median", "ms", "p90", "ms", "p99", "ms"]
    # 200 samples carry a p90 but no p99.
    assert lines[2].split()[8:11] == ["1.000", "1.000", "-"]


def test_machines_of_a_type_are_rows_of_their_own_and_told_of_together() -> None:
    found = priced(on("c7i", 1.0, 1.0, machine_number=1), on("c7i", 1.0, 1.0, machine_number=2))
    lines = results.lines(found)
    assert lines[1].split()[:3] == ["#", "machine", "number"]
    assert (
        "2 machines of c7i, fake, sync, 1 core, batch 1: 1000 items/s ±0 %, median 1.000 ms ±0 %, 0.1 per million"
        "; the intervals include what machines differ by (0 % in throughput; processes of one machine: 0 %)."
    ) in lines


def test_files_have_the_machine_type_and_the_cost_with_its_ends() -> None:
    found = priced(on("c7i", 1.0, 1.0), on("m7a"))
    first, second = (benchmark_file.cell_content(found, one) for one in found.outcomes)
    assert (first["machine_type"], first["price_per_hour"]) == ("c7i", 0.36)
    assert first["cost_per_million"] == pytest.approx(0.1)
    assert first["cost_per_million_low"] == pytest.approx(0.1)
    assert (second["price_per_hour"], second["cost_per_million"]) == (None, None)
    assert "machine_type" not in benchmark_file.cell_content(benchmark(outcome((1.0,))), outcome((1.0,)))
    rows = benchmark_file.rows(found)
    assert [(row["machine_type"], row["machine_number"]) for row in rows] == [("c7i", None), ("m7a", None)]


def test_a_chart_has_a_line_for_each_machine_type_and_engine() -> None:
    found = priced(*(on(kind, batch_size=batch) for kind in ("c7i", "c7g") for batch in (1, 2)))
    points = [from_row(row) for row in benchmark_file.rows(found)]
    figure = sweeps.chart(points, y="cost_per_million")
    assert sorted(str(trace.name) for trace in figure.data) == ["c7g", "c7i"]
    assert sorted(round(float(value), 6) for trace in figure.data for value in trace.y) == [
        0.0125,
        0.025,
        0.05,
        0.1,
    ]
    unpriced = [from_row(row) for row in benchmark_file.rows(benchmark(on("c7i")))]
    with pytest.raises(BadInput, match="has a price"):
        sweeps.chart(unpriced, y="cost_per_million")


def recommended(items_per_sec: float, ends: tuple[float, float] | None) -> Recommendation:
    low, high = ends or (None, None)
    rate = Estimate(items_per_sec, low, high, 0.95, "student")
    figures = Figures(rate, 0.002, 0.003, 1000, OutputCheck("match"), 0.0)
    rounds = (Round("2026-01-01", items_per_sec, 2.0, None, 0.1),) * 3
    return searched(Contender(Candidate("onnxruntime", 2, 1, 1), "recommended", rounds, figures))


def searched(*contenders: Contender) -> Recommendation:
    objective = parse_objective("p99<5ms")
    return Recommendation(MODEL, objective, contenders, (), (), False, None, {}, 60.0, 50.0, False)


def test_machine_types_are_recommended_the_cheapest_first_and_rivals_are_named() -> None:
    answers: dict[str, Recommendation | Failure] = {
        "big": recommended(1000.0, (900.0, 1100.0)),
        "lost": Failure("lost", "The node n4 was lost."),
        "late": searched(),
        "cheap": recommended(400.0, (300.0, 500.0)),
        "free": recommended(9000.0, None),
    }
    prices = {"big": 0.36, "cheap": 0.108, "late": 0.01}
    found = fleet_recommendation(MODEL, parse_objective("p99<5ms"), prices, answers, False)
    told = results.content_of(found)
    assert [one["machine_type"] for one in told["machines"]] == ["cheap", "big", "free", "lost", "late"]
    first, second = told["machines"][:2]
    assert (first["cost_per_million"], second["cost_per_million"]) == pytest.approx((0.075, 0.1))
    assert first["cost_per_million_interval"] == pytest.approx([0.06, 0.1])
    lines = results.lines(found)
    assert lines[1] == (
        "Recommended: cheap: onnxruntime, 2 cores, 1 stream, batch 1: 400 items/s, p99 3 ms, "
        "0.075 per million inferences"
    )
    text = "\n".join(lines)
    assert "nothing meets p99<5ms" in text and "failed: The node n4 was lost." in text
    assert "Note: big may cost as little: the intervals overlap, or there is none." in lines
    nothing = fleet_recommendation(MODEL, parse_objective("p99<5ms"), prices, {"late": searched()}, False)
    assert "no configuration on any machine type meets p99<5ms" in results.lines(nothing)[1]


def test_intervals_that_say_nothing_are_words_and_one_note_says_what_to_do() -> None:
    answers = {"big": recommended(1000.0, (5.0, 184480.0))}
    lines = results.lines(fleet_recommendation(MODEL, parse_objective("p99<5ms"), {"big": 0.36}, answers, False))
    assert sum(line.count("too noisy for an interval (3 processes)") for line in lines) == 2
    assert not any("184480" in line for line in lines)
    (note,) = [line for line in lines if "too noisy for an interval means" in line]
    assert "Close other programs" in note
    found = priced(on("c7i", 1.0, 400.0), on("c7i", 2.0, 900.0, batch_size=2))
    cheapest = next(line for line in results.lines(found) if line.startswith("Cheapest: "))
    assert cheapest.endswith("per million inferences (too noisy for an interval (2 processes)).")
