"""What a card shows, from entries made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inferlab.records import Outcome
from inferlab.store import open_store
from inferlab.store.formats import content_of, kind_of
from inferlab.store.store import Store
from inferlab.views.tables import Table, text
from inferlab.views.text import output_check
from inferlab.workspace.cards import Card, arms_of, card_cell, open_card
from tests.helpers.answers import a_capacity, a_recommendation
from tests.helpers.runs import a_cell, a_run, a_window, samples, steady_run
from tests.helpers.stored import MODEL, PLAN, save, save_comparison
from tests.helpers.sweeps import HIGH, LOW, a_comparison, a_sweep, an_outcome


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "lab.db")) as opened:
        yield opened


def _card(store: Store, *outcomes: Outcome) -> Card:
    return open_card(store, save(store, a_sweep(*outcomes)))


def test_a_benchmark_has_one_arm_with_all_its_cells(store: Store) -> None:
    places = [(1, 1), (1, 8), (2, 1), (2, 8)]
    card = _card(store, *(an_outcome(num_cores=cores, batch_size=batch) for cores, batch in places))
    (arm,) = card.arms
    assert (card.core_counts, card.batch_sizes, card.duels) == ([1, 2], [1, 8], ())
    found = arm.at(2, 8)
    assert found is not None
    assert (found.cell.num_cores, found.cell.batch_size) == (2, 8)
    assert arm.at(4, 1) is None


def test_the_numbers_are_of_the_typical_process_with_their_interval() -> None:
    cell = card_cell(an_outcome(batch_size=4))
    found = cell.numbers
    assert found is not None
    assert found.ms_per_batch.value == pytest.approx(2.0)
    assert found.ms_per_batch.ends == pytest.approx((LOW, HIGH))
    assert found.ms_per_item.value == pytest.approx(0.5)
    assert found.ms_per_item.ends == pytest.approx((LOW / 4, HIGH / 4))
    assert found.items_per_second.value == pytest.approx(2000.0)
    assert (found.processes, found.iterations, cell.wrong) == (3, 30, False)


def test_time_an_item_of_many_streams_is_what_throughput_comes_to() -> None:
    found = card_cell(an_outcome(batch_size=2, scenario="async")).numbers
    assert found is not None
    assert found.ms_per_item.value == pytest.approx(1e3 / found.items_per_second.value)
    low, high = found.items_per_second.ends or (0.0, 0.0)
    assert found.ms_per_item.ends == pytest.approx((1e3 / high, 1e3 / low))


def test_time_an_item_of_requests_at_a_rate_is_their_latency() -> None:
    found = card_cell(an_outcome(batch_size=4, scenario="server")).numbers
    assert found is not None
    assert found.ms_per_item.value == found.ms_per_batch.value / 4


def test_wrong_outputs_are_marked_and_a_cell_that_failed_has_no_numbers() -> None:
    wrong = card_cell(an_outcome(wrong=True))
    assert wrong.numbers is not None
    assert wrong.wrong
    assert wrong.output_check is not None
    assert output_check(wrong.output_check).startswith("WRONG")
    assert card_cell(an_outcome(())).numbers is None


def test_engines_are_arms_and_the_first_is_compared_with_each_other(store: Store) -> None:
    card = _card(
        store,
        an_outcome((2.0, 2.0, 2.0), engine="onnxruntime"),
        an_outcome((4.0, 4.0, 4.0), engine="openvino"),
        an_outcome((1.0, 1.0, 1.0), engine="torch"),
    )
    assert [arm.label for arm in card.arms] == ["ONNX Runtime", "OpenVINO", "PyTorch"]
    speedups = [duel.speedup.value for duel in card.duels]
    assert speedups == pytest.approx([2.0, 0.5])
    assert [duel.verdict for duel in card.duels] == ["faster", "slower"]
    assert not any(duel.paired for duel in card.duels)
    assert (card.duel(0, 1, 1), card.duel(2, 1, 1)) == card.duels


def test_streams_that_follow_the_cores_make_no_arms_of_their_own() -> None:
    followed = [an_outcome(num_cores=n, num_streams=n, scenario="async") for n in (1, 2)]
    assert len(arms_of(followed)) == 1
    varied = [an_outcome(num_cores=2, num_streams=n, scenario="async") for n in (1, 2)]
    assert [arm.label for arm in arms_of(varied)] == [
        "Fake (scripted), num streams 1",
        "Fake (scripted), num streams 2",
    ]
    scenarios = [an_outcome(scenario=name) for name in ("sync", "async")]
    assert [arm.label for arm in arms_of(scenarios)] == ["Fake (scripted), sync", "Fake (scripted), async"]


def test_machines_of_a_cluster_are_arms_of_their_own_and_can_be_told_apart(store: Store) -> None:
    cells: list[dict[str, Any]] = [
        {"engine": engine, "machine_type": kind, "machine_number": number}
        for kind, number in (("c7i", None), ("c7g", 1), ("c7g", 2))
        for engine in ("onnxruntime", "openvino")
    ]
    card = _card(store, *(an_outcome(**cell) for cell in cells))
    assert card.machines == ["c7i", "c7g 1", "c7g 2"]
    assert [(arm.label, arm.machine) for arm in card.arms[:4]] == [
        ("ONNX Runtime, c7i", "c7i"),
        ("OpenVINO, c7i", "c7i"),
        ("ONNX Runtime, c7g 1", "c7g 1"),
        ("OpenVINO, c7g 1", "c7g 1"),
    ]
    assert _card(store, an_outcome()).machines == []


def test_a_comparison_shows_b_first_with_its_speed_up_over_a(store: Store) -> None:
    found = a_comparison(1.5, 1.25, cells=(a_cell(engine="onnxruntime"), a_cell(engine="openvino")))
    entry_id = save_comparison(store, found)
    card = open_card(store, entry_id)
    assert [(arm.label, arm.engine) for arm in card.arms] == [
        ("OpenVINO", "openvino"),
        ("ONNX Runtime", "onnxruntime"),
    ]
    (duel,) = card.duels
    assert (duel.verdict, duel.paired, duel.num_cores, duel.batch_size) == ("slower", True, 1, 1)
    assert duel.speedup.value == pytest.approx(1 / 1.5)
    assert duel.speedup.ends == pytest.approx((1 / 1.75, 1 / 1.25))
    assert [len(arm.outcomes[0].runs) for arm in card.arms] == [2, 2]


def test_a_benchmark_is_shown_beside_the_one_it_is_compared_with(store: Store) -> None:
    older = save(store, a_sweep(an_outcome((4.0, 4.0, 4.0))))
    cell = a_cell()
    newer = store.begin(PLAN, MODEL, [cell], against=older)
    for _ in range(3):
        store.add_run(newer, cell.id, steady_run(2.0))
    store.finish_cell(newer, cell.id, "done")
    card = open_card(store, newer)
    moment = f"{store.entry(older).created_at.astimezone():%d %b %H:%M}"
    assert [arm.label for arm in card.arms] == ["Fake (scripted)", f"Fake (scripted), 1 core, batch 1, {moment}"]
    store.rename(older, "Before the change")
    assert open_card(store, newer).arms[1].label == "Before the change"
    (duel,) = card.duels
    assert duel.speedup.value == pytest.approx(2.0)
    assert (duel.verdict, duel.paired) == ("faster", False)
    store.remove(older)
    alone = open_card(store, newer)
    assert len(alone.arms) == 1
    assert alone.problems == ("The benchmark that it was compared with has been removed.",)


def test_other_documents_are_shown_as_text(store: Store) -> None:
    entry_id = store.add_document("capacity", "m p99<1ms", {"rate": 12})
    card = open_card(store, entry_id)
    assert (card.arms, card.blocks) == ((), ())
    assert "rate: 12" in card.lines


def test_a_capacity_and_a_recommendation_are_shown_as_values_and_tables(store: Store) -> None:
    for record in (a_capacity(), a_recommendation()):
        card = open_card(store, store.add_document(kind_of(record), "m", content_of(record)))
        tables = [block for block in card.blocks if isinstance(block, Table)]
        assert len(tables) == 1
        assert text(card.blocks) == list(card.lines)[-len(text(card.blocks)) :]


def test_the_instruction_set_is_that_of_the_machine_that_measured(store: Store) -> None:
    card = _card(store, an_outcome())
    machine = card.arms[0].outcomes[0].runs[0].machine
    assert card.without_samples().arms[0].outcomes == ()
    assert card.instruction_set.lower() in (*machine.instruction_sets, "avx512", "neon", "none")
    assert _card(store, an_outcome(())).instruction_set == ""


def test_arms_that_served_other_requests_are_shown_beside_each_other_and_not_compared(store: Store) -> None:
    due_ms = [0.0, 100.0, 200.0]
    run = a_run(a_window(samples(*((due, due + 1) for due in due_ms), due_ms=due_ms)))
    card = _card(
        store, *(Outcome(a_cell(scenario="server", rate=rate), "done", (run, run)) for rate in (5.0, 10.0))
    )
    assert [arm.label for arm in card.arms] == ["Fake (scripted), rate 5.0", "Fake (scripted), rate 10.0"]
    assert card.duels == ()
