"""Benchmarks as a user asks for them, watches, compares, exports and removes them."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from inferlab.records import Benchmark, Outcome, Plan
from inferlab.store import open_store
from inferlab.store.store import Store
from inferlab.workspace.requests import BenchmarkRequest, request_of, to_content
from tests.helpers.http_calls import QUICK, measured
from tests.helpers.runs import a_cell, steady_run
from tests.helpers.stored import MODEL, PLAN, save
from tests.helpers.web_server import Server, left_the_machine, requested, until
from tests.helpers.web_user import Reader, newest

SOURCE = "demo:mlp_medium"


@pytest.fixture
def project(http: httpx.Client) -> Iterator[str]:
    """A project; what a test leaves in the queue would keep the next one waiting."""
    project_id = made_of(http, SOURCE)
    yield project_id
    for job in http.get("/jobs").json():
        http.post(f"/jobs/{job['id']}/cancel")


def made_of(http: httpx.Client, source: str) -> str:
    """The id of a new project."""
    made = http.post("/projects", json={"source": source, "name": "Benchmarks"})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


@pytest.fixture
def reader(browser: webdriver.Chrome, server: Server) -> Reader:
    return Reader(browser, server.login)


@pytest.fixture
def store(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with opened(server, monkeypatch) as found:
        yield found


def opened(server: Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store of a server, for one who is on the same node."""
    monkeypatch.setenv("INFERLAB_NODE", server.environment["INFERLAB_NODE"])
    return open_store(str(server.store))


def at_benchmarks(reader: Reader, project: str) -> None:
    reader.open(f"/projects/{project}/benchmarks")
    reader.see("add-benchmark")


def dialog(reader: Reader) -> None:
    """Open the dialog, and wait until it has counted."""
    reader.click("add-benchmark")
    reader.see("estimate", "about")


def fake(**options: str) -> Plan:
    """A plan of the scripted engine; only who is at the machine can script it."""
    return Plan(
        SOURCE,
        engines=("fake",),
        scenarios=("sync",),
        num_cores=(1,),
        batch_sizes=(1,),
        time_s=0.3,
        warmup_s=0.1,
        processes=2,
        engine_options=tuple(options.items()),
    )


def queued(store: Store, project: str, plan: Plan) -> None:
    store.jobs.add("benchmark", project, to_content(BenchmarkRequest(plan)))


def test_two_engines_are_compared_at_two_core_counts_and_two_batch_sizes(reader: Reader, project: str) -> None:
    at_benchmarks(reader, project)
    assert reader.cards() == []
    dialog(reader)
    reader.click("enable-comparison")
    reader.choose("engine", "OpenVINO")
    reader.choose("other-engine", "ONNX Runtime")
    for name in ("cores", "batches"):
        reader.click(f"{name}-multiple")
    reader.click("cores-1")
    reader.click("batches-4")
    reader.see("estimate", "4 comparisons of 2 core counts and 2 batch sizes")
    reader.type("time", "1")
    reader.see("estimate", "about 36 s")
    reader.click("run")
    reader.miss("benchmark-dialog")
    (job,) = until(reader.cards, "the card did not appear")
    assert reader.read(f"card-{job}/engines") == "OpenVINO vs ONNX Runtime"
    reader.see("progress", "%")
    reader.see("stage", "Comparing interleaved")

    card = f"card-{newest(reader, [])}"
    head = reader.read(card)
    assert re.search(r"Batch size\s+1, 4\s+Core count\s+1, 2\s+Instruction set\s+AVX", head)
    reader.drawn(f"{card}/chart")
    assert reader.read(f"{card}/verdict") in ("faster", "slower", "same", "inconclusive")
    assert "Speed-up over ONNX Runtime" in reader.read(f"{card}/speedup")
    assert "measured interleaved" in reader.read(f"{card}/speedup")
    first = reader.read(f"{card}/ms-per-batch")
    reader.choose(f"{card}/select-batch", "4")
    until(lambda: reader.read(f"{card}/ms-per-batch") != first, "the numbers stayed")

    reader.click(f"{card}/view-cores")
    best, worst = reader.read(f"{card}/best"), reader.read(f"{card}/worst")
    assert {best.split("\n")[1], worst.split("\n")[1]} == {"1", "2"}
    assert not reader.sees(f"{card}/select-cores")
    reader.drawn(f"{card}/chart")
    reader.click(f"{card}/view-batches")
    assert reader.read(f"{card}/best", "Best batch size").split("\n")[1] in "14"
    reader.click(f"{card}/view-baseline")
    reader.click(f"{card}/arm-1")
    reader.see(f"{card}/speedup", "Speed-up over OpenVINO")
    reader.click(f"{card}/ratios")
    reader.drawn("ratios-chart")
    assert left_the_machine(requested(reader.browser)) == []


def test_what_cannot_be_chosen_says_why(reader: Reader, project: str) -> None:
    at_benchmarks(reader, project)
    dialog(reader)
    torch = reader.offered("engine", "engine-torch")
    assert torch.get_attribute("aria-disabled") == "true"
    assert "this model is onnx" in torch.text
    reader.fold()
    assert not reader.can_click("streams")
    reader.see("benchmark-dialog", "sync has one request at a time")
    reader.choose("scenario", "server")
    reader.see("error", "rate")
    assert not reader.can_click("run")
    reader.type("rate", "50")
    reader.miss("error")
    reader.click("enable-comparison")
    assert reader.can_click("rate")
    reader.choose("other-engine", "ONNX Runtime")
    reader.see("error", "Both sides of the comparison are ONNX Runtime")
    reader.click("cancel-dialog")
    reader.miss("benchmark-dialog")


def test_an_empty_number_stands_for_the_default_that_it_names(reader: Reader, project: str, store: Store) -> None:
    at_benchmarks(reader, project)
    dialog(reader)
    reader.choose("engine", "Fake (scripted)")
    reader.type("time", "")
    assert reader.asked("time", "placeholder") == "10"
    reader.click("run")
    reader.miss("benchmark-dialog")
    (job,) = store.jobs.of_project(project)
    request = request_of(job)
    assert isinstance(request, BenchmarkRequest)
    assert request.plan.time_s == 10.0
    store.jobs.cancel(job.id)
    reader.see("ended", "Cancelled")


def test_a_comparison_of_processes_started_from_nothing(reader: Reader, project: str, store: Store) -> None:
    at_benchmarks(reader, project)
    dialog(reader)
    reader.click("enable-comparison")
    reader.choose("engine", "Fake (scripted)")
    reader.choose("other-engine", "ONNX Runtime")
    reader.click("fresh")
    reader.click("run")
    reader.miss("benchmark-dialog")
    (job,) = store.jobs.of_project(project)
    assert job.content["fresh"] is True
    store.jobs.cancel(job.id)
    reader.see("ended", "Cancelled")


def test_a_batch_size_of_ones_own_is_measured(reader: Reader, project: str) -> None:
    at_benchmarks(reader, project)
    dialog(reader)
    reader.choose("engine", "Fake (scripted)")
    reader.type("time", "0.3")
    reader.press("batches-other", "3", Keys.ENTER)
    assert reader.asked("batches-3", "aria-pressed") == "true"
    reader.click("run")
    card = f"card-{newest(reader, [])}"
    assert re.search(r"Batch size\s+3", reader.read(card))


def test_a_job_is_cancelled_resumed_and_seen_in_two_tabs(reader: Reader, project: str, store: Store) -> None:
    # Longer than any test takes.
    queued(store, project, replace(fake(), batch_sizes=(1, 2), time_s=600.0))
    queued(store, project, fake())
    at_benchmarks(reader, project)
    first = reader.browser.current_window_handle
    reader.browser.switch_to.new_window("tab")
    at_benchmarks(reader, project)
    reader.see("stage", "Running benchmark")
    reader.see("left", "1 job before it in the queue")
    waiting = reader.cards()[0]
    reader.click(f"card-{waiting}/cancel")
    reader.see(f"card-{waiting}/ended", "Cancelled")
    # The card of the job that runs has another name once there is an entry.
    reader.click("cancel")
    cut = until(lambda: _ended(reader, "cancelled", waiting), "it was not cancelled")
    assert "of 2 combinations were measured" in reader.read(f"card-{cut}/ended")

    reader.browser.switch_to.window(first)
    reader.see(f"card-{cut}/ended", "Cancelled")
    reader.click(f"card-{waiting}/dismiss")
    reader.miss(f"card-{waiting}")
    assert reader.cards() == [cut]
    reader.click(f"card-{cut}/resume")
    reader.see(f"card-{cut}/stage", "Running benchmark")
    assert not reader.sees(f"card-{cut}/ended")
    reader.click(f"card-{cut}/cancel")
    reader.see(f"card-{cut}/ended", "Cancelled")


def _ended(reader: Reader, status: str, but: str = "") -> str | None:
    for card in reader.cards():
        if card != but and reader.sees(f"card-{card}/ended"):
            so = reader.asked(f"card-{card}/ended", "data-status") == status
            return card if so and reader.sees(f"card-{card}/menu") else None
    return None


def test_a_benchmark_is_compared_with_an_older_one_rerun_removed_and_put_back(
    reader: Reader, project: str, http: httpx.Client
) -> None:
    older = measured(http, project, QUICK | {"batch_sizes": [2]})
    at_benchmarks(reader, project)
    reader.from_menu(older, "compare")
    reader.see("estimate", "1 combination")
    assert reader.read("against").startswith("Fake (scripted), 1 core, batch 2 (")
    assert reader.asked("batches-2", "aria-pressed") == "true"
    assert not reader.can_click("batches-1")
    reader.choose("engine", "ONNX Runtime")
    reader.type("time", "0.3")
    reader.click("run")
    newer = newest(reader, [older])
    assert reader.read(f"card-{newer}/engines").startswith("ONNX Runtime vs Fake (scripted), 1 core, batch 2, ")
    assert "not measured interleaved: less sure" in reader.read(f"card-{newer}/speedup")

    reader.from_menu(older, "rerun")
    again = newest(reader, [older, newer])
    assert reader.cards() == [again, newer, older]

    reader.from_menu(newer, "remove")
    reader.miss(f"card-{newer}")
    assert reader.cards() == [again, older]
    reader.click("undo")
    reader.see(f"card-{newer}/speedup")
    assert reader.cards() == [again, newer, older]
    assert not reader.sees("undo")

    reader.from_menu(older, "rename")
    assert reader.value("new-name") == "Fake (scripted), 1 core, batch 2"
    reader.type("new-name", "Before the change")
    reader.click("rename-to")
    assert reader.read(f"card-{older}/engines", "Before") == "Before the change"
    assert reader.read(f"card-{newer}/engines", "Before") == "ONNX Runtime vs Before the change"


def test_a_benchmark_is_exported_and_its_command_line_copied(
    reader: Reader, project: str, http: httpx.Client
) -> None:
    entry = measured(http, project, QUICK)
    at_benchmarks(reader, project)
    texts = {ending: _downloaded(reader, entry, ending) for ending in ("json", "csv", "html")}
    assert json.loads(texts["json"])["engine"] == "fake"
    assert texts["csv"].splitlines()[1].split(",")[1:3] == [SOURCE, "fake"]
    assert "<html" in texts["html"]
    reader.from_menu(entry, "copy-command")
    said = until(
        lambda: [
            element.text
            for element in reader.browser.find_elements(By.CLASS_NAME, "q-notification")
            if element.text
        ],
        "nothing was said",
    )
    assert f"inferlab benchmark {SOURCE} -e fake" in said[0].replace("\n", " ")


def _downloaded(reader: Reader, entry: str, ending: str) -> str:
    folder: Path = reader.browser.downloads  # type: ignore[attr-defined]
    reader.from_menu(entry, f"export-{ending}")
    wanted = folder / f"mlp_medium-{entry}.{ending}"
    until(wanted.exists, f"{wanted.name} was not saved")
    return wanted.read_text()


def test_an_engine_that_aborts_shows_its_cause_and_its_log(reader: Reader, project: str, store: Store) -> None:
    at_benchmarks(reader, project)
    queued(store, project, fake(fail="abort"))
    assert "fake: assertion failed, as ordered" in reader.read("ended", "SIGABRT")
    reader.click("log")
    script = "return document.querySelector('.il-log')?.innerText ?? ''"
    until(
        lambda: "Loading the model on fake" in reader.browser.execute_script(script),
        "the log says nothing of the engine",
    )


def test_wrong_outputs_cannot_be_missed(reader: Reader, project: str, store: Store) -> None:
    at_benchmarks(reader, project)
    queued(store, project, fake(outputs="zeros"))
    reader.see("wrong-outputs", "this speed is meaningless")
    assert reader.asked("wrong-outputs", "role") == "alert"
    assert reader.painted("wrong-outputs", "background-color") == "rgb(179, 38, 30)"
    assert "line-through" in reader.painted("ms-per-item", "text-decoration", ".il-stat-value")
    (entry,) = reader.cards()
    assert "wrong outputs" in reader.read(f"card-{entry}")


def test_a_cell_that_failed_says_why_and_leaves_the_others_usable(
    reader: Reader, project: str, store: Store
) -> None:
    # Only the scripted engine knows this option.
    queued(store, project, replace(fake(latency_us="500"), engines=("fake", "onnxruntime")))
    at_benchmarks(reader, project)
    card = f"card-{newest(reader, [])}"
    reader.see(f"{card}/ended", "1 of 2 combinations were measured")
    reader.drawn(f"{card}/chart")
    assert reader.read(f"{card}/engines") == "Fake (scripted) vs ONNX Runtime"
    reader.click(f"{card}/arm-1")
    assert "latency_us" in reader.read(f"{card}/cause")
    reader.click(f"{card}/arm-0")
    reader.drawn(f"{card}/chart")


def test_what_the_command_line_measures_appears_and_leaves_other_cards_as_they_were(
    reader: Reader, server: Server, http: httpx.Client
) -> None:
    # A model of its own: the result will belong to all projects of it.
    source = "demo:digits"
    project = made_of(http, source)
    entry = measured(http, project, QUICK | {"batch_sizes": [1, 2]})
    at_benchmarks(reader, project)
    card = f"card-{entry}"
    reader.drawn(f"{card}/chart")
    reader.choose(f"{card}/select-batch", "2")
    reader.browser.execute_script("arguments[0].seen = true", reader.see(f"{card}/chart"))
    before = reader.cards()
    quick = ("-t", "0.3", "-w", "0.1", "--processes", "1", "-ncores", "1", "-b", "1")
    server.command("benchmark", source, "-e", "fake,onnxruntime", "-s", "sync", *quick)
    fresh = newest(reader, before)
    reader.drawn(f"card-{fresh}/chart")
    assert reader.read(f"card-{fresh}/engines") == "Fake (scripted) vs ONNX Runtime"
    assert "less sure" in reader.read(f"card-{fresh}/speedup")
    assert reader.read(f"{card}/select-batch") == "2"
    assert reader.browser.execute_script("return arguments[0].seen", reader.see(f"{card}/chart"))


def test_a_job_that_was_cut_off_with_the_server_is_resumed(
    browser: webdriver.Chrome, serving: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = serving()
    reader = Reader(browser, own.login)
    with own.client() as http, opened(own, monkeypatch) as store:
        project = http.post("/projects", json={"source": SOURCE, "name": "Cut off"}).json()["id"]
        queued(store, project, replace(fake(), batch_sizes=(1, 2), time_s=3.0, processes=1))
    at_benchmarks(reader, project)
    reader.see("stage", "Running benchmark")
    for runner in own.runners():
        os.kill(runner, signal.SIGKILL)
    own.stop(signal.SIGKILL)
    own.start()
    # The open page finds the server again by itself.
    reader.see("ended", "Interrupted")
    reader.click("resume")
    reader.miss("ended")
    card = f"card-{newest(reader, [])}"
    reader.drawn(f"{card}/chart")
    assert not reader.sees(f"{card}/ended")


def test_older_benchmarks_are_shown_when_asked_for(reader: Reader, project: str, store: Store) -> None:
    ids = [_saved(store, project, seed) for seed in range(12)]
    at_benchmarks(reader, project)
    reader.see("older")
    assert reader.cards() == ids[::-1][:10]
    reader.click("older")
    until(lambda: reader.cards() == ids[::-1], "the older ones did not come")
    reader.miss("older")


def _saved(store: Store, project: str, seed: int) -> str:
    entry = save(store, Benchmark(PLAN, MODEL, (Outcome(a_cell(seed=seed), "done", (steady_run(2.0),)),)))
    store.projects.take(project, entry)
    return entry


def test_machines_of_a_cluster_are_on_the_card_and_can_be_chosen(
    reader: Reader, project: str, store: Store
) -> None:
    speeds = {("c7i", "fake"): 2.0, ("c7i", "onnxruntime"): 4.0, ("c7g", "fake"): 3.0, ("c7g", "onnxruntime"): 5.0}
    outcomes = tuple(
        Outcome(a_cell(machine_type=kind, engine=engine), "done", (steady_run(ms), steady_run(ms)))
        for (kind, engine), ms in speeds.items()
    )
    entry = save(store, Benchmark(replace(PLAN, cluster="auto"), MODEL, outcomes))
    store.projects.take(project, entry)
    at_benchmarks(reader, project)
    card = f"card-{entry}"
    reader.drawn(f"{card}/chart")
    assert re.search(r"Machine\s+c7i, c7g", reader.read(card))
    reader.see(f"{card}/ms-per-batch", "2.00")
    assert reader.sees(f"{card}/arm-1") and not reader.sees(f"{card}/arm-2")
    reader.click(f"{card}/arm-1")
    reader.see(f"{card}/ms-per-batch", "4.00")
    reader.choose(f"{card}/select-machine", "c7g")
    # The same engine on the other machine.
    reader.see(f"{card}/ms-per-batch", "5.00")
    reader.drawn(f"{card}/chart")
    assert reader.sees(f"{card}/arm-2") and not reader.sees(f"{card}/arm-1")


def test_other_results_are_shown_as_text(reader: Reader, project: str, store: Store) -> None:
    content: dict[str, Any] = {"format": "inferlab-capacity/0", "anything": 1}
    entry = store.add_document("capacity", "cap", content, project_id=project)
    at_benchmarks(reader, project)
    assert reader.read(f"card-{entry}/engines") == "Capacity"
    assert f"Entry: {entry} (capacity)" in reader.read(f"card-{entry}/lines")


def test_a_project_that_is_gone_is_told_of_in_a_sentence(reader: Reader) -> None:
    reader.open("/projects/aaaaaaaaaa/benchmarks")
    assert "There is no project 'aaaaaaaaaa'" in reader.browser.find_element(By.TAG_NAME, "body").text
