"""Models that generate tokens, on the page and over HTTP: compared, searched, shown, exported, measured again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from selenium import webdriver

from tests.helpers.http_calls import ended, measured, refused
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
        listed = http.get(f"/projects/{project}/benchmarks").json()
        assert entry_id in [entry["id"] for entry in listed]
        assert http.get(f"/entries/{entry_id}/export", params={"format": "csv"}).text.count("\n") > 1
        job = ended(http, http.post(f"/entries/{entry_id}/rerun"))
        assert (job["status"], job["entry_id"] != entry_id) == ("done", True)
        assert http.delete(f"/entries/{entry_id}").status_code == 204


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
