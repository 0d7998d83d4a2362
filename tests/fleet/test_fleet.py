"""Plans on a real Ray cluster of three nodes: measured, saved, compared, cut off in every way, resumed."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import inferlab
from inferlab.errors import BadInput
from inferlab.lab import Lab
from inferlab.measure.unpaired import compare_sweeps
from inferlab.records import Benchmark, Event
from inferlab.store import open_store
from inferlab.store.store import Store
from inferlab.views import results
from tests.fleet.conftest import TYPES, Fleet, a_plan, stored

pytestmark = pytest.mark.alone
CLI = str(Path(sys.executable).parent / "inferlab")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "lab.db")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


def begun(url: str, fleet: Fleet, model: Path, *options: str) -> subprocess.Popen[str]:
    """The command, measuring in the background."""
    quick = ("-e", "fake", "-s", "sync", "-ncores", "1", "-t", "0.4", "-w", "0", "--processes", "2", "--no-verify")
    command = [CLI, "benchmark", str(model), *quick, "--cluster", fleet.address, "--store", url, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def resumed(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([CLI, "benchmark", "--resume", "--store", url], capture_output=True, text=True)


def until(store: Store, holds: Callable[[Benchmark], bool]) -> Benchmark:
    """The benchmark in the store as soon as something holds of it."""
    for _ in range(600):
        if store.history() and holds(found := stored(store)):
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen within a minute")


def runs_of(found: Benchmark, node: str | None = None) -> set[tuple[str, str, str]]:
    """Every run that was saved, by its cell, its node and when it began."""
    return {
        (run.cell_id, run.machine.node, run.started_at)
        for outcome in found.outcomes
        for run in outcome.runs
        if node is None or run.machine.node == node
    }


def spans_ns(found: Benchmark, node: str) -> list[tuple[int, int]]:
    """From its first call to its last, of every run of a node; all nodes here have the same clock."""
    runs = [run for outcome in found.outcomes for run in outcome.runs if run.machine.node == node]
    return sorted((run.windows[0].streams[0].starts_ns[0], run.windows[-1].streams[0].ends_ns[-1]) for run in runs)


def test_every_cell_is_measured_on_every_machine_type_and_saved_with_its_machine(
    fleet: Fleet, store: Store, model: Path
) -> None:
    events: list[Event] = []
    found = Lab(store).benchmark(a_plan(model, fleet, 1, 2, 3, 4), events.append, live=True)
    assert [(outcome.cell.machine_type, outcome.cell.batch_size) for outcome in found.outcomes] == [
        (kind, batch) for kind in TYPES for batch in (1, 2, 3, 4)
    ]
    assert {outcome.status for outcome in found.outcomes} == {"done"}
    assert all(len(outcome.runs) == 2 for outcome in found.outcomes)
    for outcome in found.outcomes:
        assert {run.machine.node for run in outcome.runs} == {fleet.name(outcome.cell.machine_type or "")}
        assert {run.cell_id for run in outcome.runs} == {outcome.cell.id}
    assert runs_of(stored(store, found.id)) == runs_of(found)
    # The model travelled to each node once, and was measured there.
    for kind in TYPES:
        (copy,) = fleet.cache(kind).glob("fleet/*/linear.onnx")
        assert copy.read_bytes() == model.read_bytes()
        assert {
            run.model_path
            for outcome in found.outcomes
            for run in outcome.runs
            if outcome.cell.machine_type == kind
        } == {str(copy)}
    # Cells of one node do not overlap in time; nodes work side by side.
    for kind in TYPES:
        spans = spans_ns(found, fleet.name(kind))
        assert len(spans) == 8
        assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(spans))
    whole = [(spans[0][0], spans[-1][1]) for kind in TYPES if (spans := spans_ns(found, fleet.name(kind)))]
    assert max(begin for begin, _ in whole) < min(end for _, end in whole)
    told = [event for event in events if event.code == "on-node"]
    assert {one.data["node"] for one in told} == {fleet.name(kind) for kind in TYPES}
    assert sum(one.data["event"].code == "measured" for one in told) == 12


def test_what_a_node_has_already_is_not_sent_again(fleet: Fleet, model: Path) -> None:
    plan = a_plan(model, fleet, 1, on=("a",), processes=1)
    Lab().benchmark(plan)
    (copy,) = [
        one for one in fleet.cache("a").glob("fleet/*/linear.onnx") if one.read_bytes() == model.read_bytes()
    ]
    before = copy.stat()
    Lab().benchmark(plan)
    assert copy.stat().st_ino == before.st_ino
    # One that was damaged there is.
    copy.write_bytes(b"damaged")
    Lab().benchmark(plan)
    assert copy.read_bytes() == model.read_bytes()


def test_a_driver_that_is_killed_loses_nothing_and_measures_nothing_twice(
    fleet: Fleet, store: Store, url: str, model: Path
) -> None:
    driver = begun(url, fleet, model, "--on", "a,b,c", "-b", "1-4")
    before = runs_of(until(store, lambda found: len(runs_of(found)) >= 5))
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    cut = stored(store)
    assert {outcome.status for outcome in cut.outcomes} >= {"pending"}
    done = resumed(url)
    assert done.returncode == 0, done.stderr
    found = stored(store)
    assert {outcome.status for outcome in found.outcomes} == {"done"}
    assert [len(outcome.runs) for outcome in found.outcomes] == [2] * 12
    assert before <= runs_of(cut) <= runs_of(found)
    for kind in TYPES:
        spans = spans_ns(found, fleet.name(kind))
        assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_the_cells_of_a_node_that_is_killed_go_to_another_one_of_its_type(
    fleet: Fleet, store: Store, url: str, model: Path
) -> None:
    nodes = {name: fleet.add("d", name) for name in ("d1", "d2")}
    driver = begun(url, fleet, model, "--on", "d,a", "-b", "1-4")
    try:
        names = [fleet.name(name) for name in nodes]
        cut = until(store, lambda found: len(runs_of(found, names[0]) | runs_of(found, names[1])) >= 2)
        (first,) = {node for _, node, _ in runs_of(cut) if node in names}
        gone, stays = ("d1", "d2") if first == fleet.name("d1") else ("d2", "d1")
        fleet.cluster.remove_node(nodes.pop(gone), allow_graceful=False)
        out, err = driver.communicate(timeout=120)
    finally:
        driver.kill()
        for node in nodes.values():
            fleet.cluster.remove_node(node)
    assert driver.returncode == 0, err
    assert f"The node {fleet.name(gone)} was lost" in err and "raylet" not in out
    found = stored(store)
    assert [(outcome.cell.machine_type, outcome.status, len(outcome.runs)) for outcome in found.outcomes] == [
        (kind, "done", 2) for kind in ("d", "a") for _ in range(4)
    ]
    assert runs_of(cut) <= runs_of(found)
    assert runs_of(found, fleet.name(stays))


def test_cells_whose_node_is_lost_for_good_say_so_and_are_measured_when_one_is_back(
    fleet: Fleet, store: Store, url: str, model: Path
) -> None:
    node = fleet.add("e")
    driver = begun(url, fleet, model, "--on", "e,b", "-b", "1-4")
    cut = until(store, lambda found: len(runs_of(found, fleet.name("e"))) >= 3)
    fleet.cluster.remove_node(node, allow_graceful=False)
    _, err = driver.communicate(timeout=120)
    assert driver.returncode == 3, err
    found = stored(store)
    lost = [outcome for outcome in found.outcomes if outcome.status == "failed"]
    assert 1 <= len(lost) <= 3 and {one.cell.machine_type for one in lost} == {"e"}
    assert {one.failure.code for one in lost if one.failure} == {"lost"}
    assert all("No other node of e was free" in one.failure.message for one in lost if one.failure)
    assert [outcome.status for outcome in found.outcomes if outcome.cell.machine_type == "b"] == ["done"] * 4
    refused = resumed(url)
    assert refused.returncode == 2 and "offers e" in refused.stderr
    back = fleet.add("e")
    try:
        done = resumed(url)
    finally:
        fleet.cluster.remove_node(back)
    assert done.returncode == 0, done.stderr
    assert [len(outcome.runs) for outcome in stored(store).outcomes] == [2] * 8
    assert runs_of(cut) <= runs_of(found) <= runs_of(stored(store))


def test_ctrl_c_reaches_all_nodes_and_keeps_what_was_measured(
    fleet: Fleet, store: Store, url: str, model: Path
) -> None:
    driver = begun(url, fleet, model, "--on", "a,b,c", "-b", "1-5")
    cut = until(store, lambda found: len(runs_of(found)) >= 3)
    driver.send_signal(signal.SIGINT)
    _, err = driver.communicate(timeout=60)
    assert driver.returncode == 130, err
    found = stored(store)
    assert runs_of(cut) <= runs_of(found)
    states = [outcome.status for outcome in found.outcomes]
    assert 0 < states.count("cancelled") <= 3 and "pending" in states
    assert _measuring(fleet) == []
    assert resumed(url).returncode == 0
    assert [len(outcome.runs) for outcome in stored(store).outcomes] == [2] * 15


def _measuring(fleet: Fleet) -> list[str]:
    """The processes that still measure under the name of one of the nodes."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = (one / "cmdline").read_bytes(), (one / "environ").read_bytes()
        except OSError:
            continue
        if b"child/main.py" in command and any(fleet.name(kind).encode() in environment for kind in TYPES):
            found.append(command.decode())
    return found


def test_an_engine_that_dies_on_one_node_costs_its_cell_and_no_other(fleet: Fleet, model: Path) -> None:
    plan = a_plan(model, fleet, 1, engine_options=(("fail", "abort"),), on=("a", "b"))
    found = Lab().benchmark(plan)
    assert [outcome.failure.code for outcome in found.outcomes if outcome.failure] == ["died", "died"]
    assert all(
        "assertion failed, as ordered" in outcome.failure.message for outcome in found.outcomes if outcome.failure
    )


def test_results_of_two_machine_types_are_compared_unpaired_and_say_what_differs(
    fleet: Fleet, store: Store, model: Path
) -> None:
    lab = Lab(store)
    found = lab.benchmark(a_plan(model, fleet, 1, on=("a", "b"), prices=(("a", 0.36), ("b", 3.6))))
    a, b = (lab.saved_results(f"{found.id}#{number}") for number in (1, 2))
    told = results.lines(compare_sweeps(a, b))
    assert any(line.startswith("Measured: unpaired, 2 and 2 processes of saved results") for line in told)
    assert "Note: the results also differ in machine type: a and b." in told
    assert f"Note: the results also differ in machine: {fleet.name('a')} and {fleet.name('b')}." in told
    assert any(line.startswith("Note: results of two machines cannot be measured interleaved") for line in told)
    rows = [(one["machine_type"], one["price_per_hour"]) for one in results.content_of(found)["results"]]
    assert rows == [("a", 0.36), ("b", 3.6)]
    assert any(line.startswith("Cheapest: #1, a, fake, sync, 1 core, batch 1: ") for line in results.lines(found))


def test_several_machines_of_a_type_give_an_interval_that_holds_for_the_type(
    fleet: Fleet, store: Store, model: Path
) -> None:
    spare = fleet.add("c", "c2")
    try:
        with pytest.raises(BadInput, match=r"but the cluster has 1 of a\. Start more, or give --nodes 1"):
            Lab(store).benchmark(a_plan(model, fleet, 1, on=("c", "a"), nodes=2))
        found = Lab(store).benchmark(a_plan(model, fleet, 1, on=("c",), nodes=2))
    finally:
        fleet.cluster.remove_node(spare)
    assert [
        (outcome.cell.machine_number, {run.machine.node for run in outcome.runs}) for outcome in found.outcomes
    ] == [
        (1, {fleet.name("c")}),
        (2, {fleet.name("c2")}),
    ]
    _, head, *told = results.lines(stored(store, found.id))
    assert head.split()[:4] == ["#", "machine", "number", "engine"]
    (line,) = [one for one in told if one.startswith("2 machines of c, fake, sync, 1 core, batch 1: ")]
    assert "the intervals include what machines differ by" in line


def test_a_machine_type_is_recommended_under_an_objective_the_cheapest_first(
    fleet: Fleet, url: str, tmp_path: Path
) -> None:
    exported = tmp_path / "best.json"
    quick = ("-e", "fake", "-b", "1", "-ncores", "1", "-t", "4", "--no-verify")
    cheap = ("--slo", "median<1s", "--on", "a,b", "--price", "a=2,b=1")
    command = [CLI, "recommend", "demo:mlp", *quick, *cheap, "--cluster", fleet.address, "--store", url]
    done = subprocess.run([*command, "-x", str(exported)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(exported.read_text())
    assert [one["machine_type"] for one in found["machines"]] == ["b", "a"]
    assert found["machines"][0]["recommendation"]["recommended"]["engine"] == "fake"
    assert found["machines"][0]["recommendation"]["machine"]["node"] == fleet.name("b")
    assert "Recommended: b: fake, 1 core, 1 stream, batch 1: " in done.stdout
    with open_store(url) as store:
        (entry,) = store.history()
    shown = subprocess.run([CLI, "show", entry.id, "--store", url], capture_output=True, text=True)
    assert "Recommended: b: fake, 1 core, 1 stream, batch 1: " in shown.stdout


def test_a_node_that_is_started_only_when_it_is_asked_for_is_waited_for(
    fleet: Fleet, store: Store, url: str, model: Path
) -> None:
    driver = begun(url, fleet, model, "--on", "w,a", "--wait", "100")
    # What an autoscaler does when somebody wants a node.
    assert driver.stderr and "Waiting up to 100 s for nodes of type w" in driver.stderr.readline()
    node = fleet.add("w")
    try:
        _, err = driver.communicate(timeout=100)
    finally:
        driver.kill()
        fleet.cluster.remove_node(node)
    assert driver.returncode == 0, err
    assert [(outcome.cell.machine_type, outcome.status) for outcome in stored(store).outcomes] == [
        ("w", "done"),
        ("a", "done"),
    ]


def test_without_types_one_node_of_each_distinct_cpu_measures(fleet: Fleet, model: Path) -> None:
    result = inferlab.benchmark(
        model, engine="fake", scenario="sync", num_cores=1, time=0.2, warmup_time=0, processes=1, verify=False,
        cluster=fleet.address, store=False,
    )  # fmt: skip
    (outcome,) = result.record.outcomes
    (run,) = outcome.runs
    assert outcome.cell.machine_type == (run.machine.instance_type or run.machine.cpu)
    # The head has no CPUs for tasks.
    assert run.machine.node in [fleet.name(kind) for kind in TYPES]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"on": ("a", "m7a")}, r"No node of the cluster offers m7a\. Its nodes offer a, b, c\."),
        ({"on": ("a",), "prices": (("z", 1.0),)}, "z has a price but is not a machine type here; there are: a"),
        ({"on": ("m7a",), "wait_s": 1.0}, "lacks nodes of type m7a, and they were not started within 1 s"),
        # One node that is there must not stand for both.
        ({"on": ("a",), "nodes": 2, "wait_s": 8.0}, "lacks nodes of type a, and they were not started within 8 s"),
    ],
)
def test_what_a_cluster_does_not_have_is_refused_with_a_sentence(
    fleet: Fleet, model: Path, fields: dict[str, object], sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        Lab().benchmark(a_plan(model, fleet, 1, **fields))
