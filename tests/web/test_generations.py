"""Models that generate tokens, on the page and over HTTP: compared, searched, shown, exported, measured again."""

from __future__ import annotations

import math
import os
import signal
import statistics
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from selenium import webdriver

from tests.helpers.http_calls import ended, events, job_of, measured, refused
from tests.helpers.web_server import Server, until
from tests.helpers.web_user import Reader

SHORT: dict[str, Any] = {"prompt_tokens": [8], "new_tokens": [4], "num_cores": [1], "verify": False}


@pytest.fixture
def project(http: httpx.Client) -> Iterator[str]:
    """A project; what a test leaves in the queue would keep the next one waiting."""
    made = http.post("/projects", json={"source": "demo:llama_tiny", "name": "Generations"})
    assert made.status_code == 201, made.text
    yield str(made.json()["id"])
    for job in http.get("/jobs").json():
        http.post(f"/jobs/{job['id']}/cancel")


def test_each_is_measured_read_exported_and_measured_again(http: httpx.Client, project: str) -> None:
    forms: dict[str, dict[str, Any]] = {
        "generation-comparisons": {**SHORT, "engines": ["fake", "llamacpp"], "metric": "ttft", "time_s": 2.0},
        "generation-capacities": {
            **SHORT,
            "engines": ["fake"],
            "slo": "ttft<2s",
            "attainment": 0.8,
            "time_s": 2.0,
        },
        "generation-recommendations": {**SHORT, "engines": ["fake"], "batch_sizes": [1, 2], "time_s": 2.0},
    }
    said = {
        "generation-comparisons": "Verdict: ",
        "generation-capacities": "Highest rate at which 80 % of the requests meet ttft<2s: ",
        "generation-recommendations": "Recommended: -e fake -ncores 1 -b ",
    }
    for what, form in forms.items():
        entry_id = measured(http, project, form, what)
        card = http.get(f"/benchmarks/{entry_id}").json()
        assert any(line.startswith(said[what]) for line in card["lines"]), card["lines"]
        opened = http.get(f"/{what}/{entry_id}").json()
        assert (opened["entry"]["id"], opened["interrupted"]) == (entry_id, False)
        listed = http.get(f"/projects/{project}/benchmarks").json()
        assert entry_id in [entry["id"] for entry in listed]
        assert http.get(f"/entries/{entry_id}/export", params={"format": "csv"}).text.count("\n") > 1
        job = ended(http, http.post(f"/entries/{entry_id}/rerun"))
        assert (job["status"], job["entry_id"] != entry_id) == ("done", True)
        assert http.delete(f"/entries/{entry_id}").status_code == 204


def test_each_is_answered_as_the_values_of_its_record(http: httpx.Client, project: str) -> None:
    form = {**SHORT, "engines": ["fake", "llamacpp"], "metric": "ttft", "time_s": 2.0}
    compared = http.get(
        f"/generation-comparisons/{measured(http, project, form, 'generation-comparisons')}"
    ).json()
    assert compared["labels"] == ["fake", "llamacpp"]
    assert (compared["metric"], compared["margin"], compared["time_s"], compared["fresh"]) == (
        *("ttft", 0.01, 2.0),
        False,
    )
    assert [arm["engine"] for arm in compared["arms"]] == ["fake", "llamacpp"]
    logs = compared["log_ratios"]
    assert min(logs) - 1e-9 <= math.log(compared["ratio"]["value"]) <= max(logs) + 1e-9
    assert len(compared["times_ms"][0]) == len(compared["times_ms"][1]) == len(logs)
    form = {**SHORT, "engines": ["fake"], "slo": "ttft<2s,tpot<1s", "attainment": 0.8, "time_s": 2.0}
    capacity = http.get(f"/generation-capacities/{measured(http, project, form, 'generation-capacities')}").json()
    assert [limit["text"] for limit in capacity["slo"]] == ["ttft<2s", "tpot<1s"]
    assert (capacity["wanted_attainment"], capacity["cell"]["rate"]) == (0.8, None)
    rates = [process["rate"] for process in capacity["processes"]]
    assert capacity["max_rate"]["value"] == pytest.approx(statistics.geometric_mean(rates))
    assert sorted(point["rate"] for point in capacity["curve"]) == [point["rate"] for point in capacity["curve"]]
    form = {**SHORT, "engines": ["fake"], "batch_sizes": [1, 2], "time_s": 2.0}
    what = "generation-recommendations"
    found = http.get(f"/{what}/{measured(http, project, form, what)}").json()
    assert {cell["batch_size"] for cell in found["cells"]} == {1, 2}
    assert found["chosen_id"] in [cell["cell_id"] for cell in found["cells"]]
    assert [one["reason"] for one in found["rejections"]] == ["slower"]
    grid = http.get(f"/generations/{found['generation_id']}").json()
    assert [cell["cell_id"] for cell in grid["cells"]] == [cell["cell_id"] for cell in found["cells"]]
    assert "is a generation." in refused(http.get(f"/{what}/{found['generation_id']}"), 404)


@pytest.mark.parametrize(
    ("what", "form", "steps"),
    [
        (
            "generation-comparisons",
            {"engines": ["fake", "llamacpp"], "time_s": 12.0},
            "log_ratios",
        ),
        ("generation-capacities", {"engines": ["fake"], "slo": "ttft<2s", "time_s": 12.0}, "processes"),
        (
            "generation-recommendations",
            {"engines": ["fake"], "batch_sizes": [1, 2, 4, 8], "time_s": 12.0},
            "cells",
        ),
    ],
)
def test_what_a_killed_runner_had_measured_is_not_measured_again(
    http: httpx.Client, server: Server, project: str, what: str, form: dict[str, Any], steps: str
) -> None:
    def saved() -> list[Any]:
        """The steps that are complete, as the API answers them."""
        entry_id = job_of(http, job)["entry_id"]
        found = http.get(f"/{what}/{entry_id}").json()[steps] if entry_id else []
        if steps != "cells":
            return list(found)
        # What several have in common is found of all together.
        return [(cell["cell_id"], cell["numbers"]) for cell in found if cell["status"] == "done"]

    job = http.post(f"/projects/{project}/{what}", json={**SHORT, **form}).json()["id"]
    until(saved, "no step was saved")
    (runner,) = server.runners()
    os.kill(runner, signal.SIGKILL)
    *_, (_, cut) = events(http, f"/jobs/{job}/events")
    assert cut["status"] == "interrupted"
    before = saved()
    opened = http.get(f"/{what}/{cut['entry_id']}").json()
    assert opened["interrupted"] is True
    assert http.post(f"/jobs/{job}/resume").status_code == 200
    *_, (_, done) = events(http, f"/jobs/{job}/events")
    assert (done["status"], done["entry_id"]) == ("done", cut["entry_id"])
    after = saved()
    assert len(after) > len(before)
    # To the last digit what it was: nothing of it was measured again.
    assert [step for step in after if step in before] == before
    assert http.get(f"/{what}/{done['entry_id']}").json()["interrupted"] is False


def test_what_cannot_be_compared_is_refused(http: httpx.Client, project: str) -> None:
    address = f"/projects/{project}/generation-comparisons"
    said = refused(http.post(address, json={**SHORT, "engines": ["fake"]}), 400)
    assert said == "Name two engines to compare, A's and B's."
    said = refused(http.post(address, json={**SHORT, "engines": ["fake", "llamacpp"], "depths": [0, 8]}), 400)
    assert said == "This takes one combination, and these are 2. Give one value of each."


def test_the_page_shows_a_comparison_and_its_dialog_asks_for_the_next(
    browser: webdriver.Chrome, server: Server, http: httpx.Client, project: str
) -> None:
    form = {**SHORT, "engines": ["fake", "llamacpp"], "time_s": 2.0}
    done = measured(http, project, form, "generation-comparisons")
    reader = Reader(browser, server.login)
    reader.open(f"/projects/{project}/benchmarks")
    title = "Comparison of generation: Fake (scripted) vs llama.cpp"
    assert reader.read(f"card-{done}/engines") == title
    assert "Verdict" in reader.read(f"card-{done}/blocks", "Verdict")
    reader.click("add-generation")
    reader.see("generation-dialog")
    reader.choose("scenario", "compare engines")
    reader.see("error", "Name two engines to compare, A's and B's.")
    reader.click("engine-fake")
    reader.see("estimate", "About ")
    reader.click("run")
    reader.miss("generation-dialog")
    (job,) = until(lambda: [card for card in reader.cards() if card != done], "the card did not appear")
    assert reader.read(f"card-{job}/engines") == "Comparison of generation: llama.cpp vs Fake (scripted)"


def test_the_dialog_searches_the_rate_at_the_share_of_requests_that_is_asked(
    browser: webdriver.Chrome, server: Server, http: httpx.Client, project: str
) -> None:
    reader = Reader(browser, server.login)
    reader.open(f"/projects/{project}/benchmarks")
    reader.click("add-generation")
    reader.choose("scenario", "highest rate")
    for engine in ("engine-llamacpp", "engine-fake"):
        reader.click(engine)
    for chip in ("prompt-16", "new-16", "cores-1"):
        reader.click(chip)
    reader.type("slo", "ttft<2s")
    reader.type("time", "4")
    reader.click("more-options", "More options")
    reader.click("option-verify")
    reader.type("option-attainment", "80%")
    reader.see("estimate", "About ")
    reader.click("run")
    reader.miss("generation-dialog")
    (job,) = http.get("/jobs").json()
    *_, (_, done) = events(http, f"/jobs/{job['id']}/events")
    found = http.get(f"/generation-capacities/{done['entry_id']}").json()
    assert found.get("wanted_attainment") == 0.8, done


def test_the_dialog_asks_by_what_two_engines_are_compared(
    browser: webdriver.Chrome, server: Server, http: httpx.Client, project: str
) -> None:
    reader = Reader(browser, server.login)
    reader.open(f"/projects/{project}/benchmarks")
    reader.click("add-generation")
    reader.miss("option-metric")
    reader.choose("scenario", "compare engines")
    reader.click("engine-fake")
    for chip in ("prompt-16", "new-16", "cores-1"):
        reader.click(chip)
    reader.type("time", "2")
    reader.choose("option-metric", "ttft")
    reader.type("option-margin", "nothing")
    reader.see("error", "Margin: ")
    reader.type("option-margin", "5%")
    reader.click("option-fresh")
    reader.click("more-options", "More options")
    reader.click("option-verify")
    reader.see("estimate", "About ")
    reader.click("run")
    reader.miss("generation-dialog")
    (job,) = http.get("/jobs").json()
    *_, (_, done) = events(http, f"/jobs/{job['id']}/events")
    found = http.get(f"/generation-comparisons/{done['entry_id']}").json()
    assert (found.get("metric"), found.get("margin"), found.get("fresh")) == ("ttft", 0.05, True), done
