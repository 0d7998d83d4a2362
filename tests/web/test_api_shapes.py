"""The HTTP API without a server: what it says of itself, and what it does with strange records and clients."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from inferlab.records import Finding, Outcome, OutputCheck
from inferlab.store import open_store
from inferlab.web import api
from inferlab.web.api.common import PREFIX
from inferlab.web.api.descriptions import DESCRIPTIONS
from inferlab.web.api.entries import CellFacts, DuelFacts
from inferlab.web.api.profiles import ProfileFacts
from inferlab.web.api.schemas import EntryLine, JobFacts, ProjectSummary
from inferlab.web.desk import Desk
from inferlab.workspace.cards import Duel, card_cell
from inferlab.workspace.sources import Sources
from inferlab.workspace.workspace import Workspace
from tests.helpers.profiles import a_profile
from tests.helpers.stored import save
from tests.helpers.sweeps import a_comparison, a_sweep, an_outcome

#: Records of ours that are described in the documents of their formats.
RECORDS = {
    "Ceilings", "ChangedCopy", "ChangedLayer", "ChannelGroup", "Distance", "Finding", "FlopsLayer",
    "FlopsProfile", "Gain", "Layer", "LossLayer", "LossProfile", "Machine", "OtherEngine", "OutputCheck",
    "PerformanceProfile", "Pruning", "PruningEstimate", "Quantization", "Recipe", "Schedule", "TypeGain",
    "Uncounted", "Verified", "Work",
}  # fmt: skip


def _app(desk: Desk | None) -> FastAPI:
    app = FastAPI()
    app.include_router(api.router(desk), prefix=PREFIX)
    return app


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    return _app(None).openapi()


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_store(str(tmp_path / "lab.db")) as store:
        yield Workspace(store)


def _strictly(text: str) -> Any:
    """JSON as everybody reads it: without infinities and NaN."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_every_route_says_what_it_does_and_what_may_become_of_it(described: dict[str, Any]) -> None:
    for path, methods in described["paths"].items():
        for method, about in methods.items():
            assert about["summary"] and about["description"].endswith("."), (method, path)
            assert {"400", "422"} <= about["responses"].keys(), (method, path)
            assert ("_id}" in path) <= ("404" in about["responses"]), (method, path)
            for one in about.get("parameters", ()):
                assert one.get("description"), (method, path, one["name"])


def test_every_field_has_a_description(described: dict[str, Any]) -> None:
    ours = {name: one for name, one in described["components"]["schemas"].items() if name not in RECORDS}
    assert ours.keys() >= {"CardFacts", "Estimate", "JobFacts", "BenchmarkAsking"}
    for name, schema in ours.items():
        assert schema["description"], name
        for field, about in schema["properties"].items():
            assert about.get("description"), (name, field)


def test_every_description_is_of_a_field(described: dict[str, Any]) -> None:
    fields = {
        name
        for answer, schema in described["components"]["schemas"].items()
        for field in schema.get("properties", ())
        for name in (field, f"{answer}.{field}")
    }
    # What is sent as events has no schema of its own.
    assert DESCRIPTIONS.keys() - fields == {"jobs"}


def test_what_is_not_known_is_refused_in_every_body(described: dict[str, Any]) -> None:
    bodies = {name: one for name, one in described["components"]["schemas"].items() if name.endswith("Asking")}
    assert len(bodies) == 10
    assert all(body["additionalProperties"] is False for body in bodies.values())


def test_numbers_that_are_none_are_null() -> None:
    broken = OutputCheck("mismatch", math.inf, "max", 1e-3, "onnxruntime", "logits")
    outcome = an_outcome()
    runs = tuple(replace(run, check=broken) for run in outcome.runs)
    found = _strictly(CellFacts.of(card_cell(replace(outcome, runs=runs))).model_dump_json())
    assert (found["wrong"], found["output_check"]["error"]) == (True, None)
    assert [one["code"] for one in found["findings"]].count("output-mismatch") == 1
    duel = Duel(1, 1, 1, replace(a_comparison(1.1).ratio, value=math.nan, low=-math.inf), "same", True, None, ())
    assert _strictly(DuelFacts.of(duel).model_dump_json())["ratio"]["value"] is None
    profile = a_profile()
    assert profile.loss is not None
    loss = replace(profile.loss, average_sensitivity=math.nan, findings=(Finding("x", {"share": math.inf}),))
    text = ProfileFacts.of(replace(profile, loss=loss), Sources([], 1)).model_dump_json()
    assert _strictly(text)["loss"]["average_sensitivity"] is None


def test_a_cell_without_runs_has_no_numbers_and_its_failure() -> None:
    found = CellFacts.of(card_cell(Outcome(an_outcome().cell, "pending"))).model_dump()
    assert [found[name] for name in ("numbers", "output_check", "findings", "failure")] == [None, None, [], None]


def test_entries_and_projects_are_listed_with_intervals(workspace: Workspace) -> None:
    store = workspace.store
    project = store.projects.add("P", "", a_sweep(an_outcome()).model)
    store.projects.take(project.id, save(store, a_sweep(an_outcome())))
    (entry,) = workspace.cards(project.id)
    (cell,) = EntryLine.of(entry, workspace.sources).model_dump()["cells"]
    assert cell["ms_per_batch"]["value"] == pytest.approx(2.0)
    assert (cell["ms_per_batch"]["level"], cell["ms_per_batch"]["method"]) == (0.95, "student")
    (line,) = workspace.store.projects.lines()
    assert ProjectSummary.of(line, workspace.sources).model_dump()["best"] == cell


def test_a_job_that_another_version_asked_for_is_still_shown(workspace: Workspace) -> None:
    job = workspace.store.jobs.add("benchmark", None, {"unknown": 1})
    found = JobFacts.of(job, 0).model_dump()
    assert (found["asked"], found["status"], found["position"]) == (None, "queued", 0)


@pytest.mark.parametrize("path", ["jobs/events", "jobs/{job}/events"])
def test_a_client_that_goes_away_ends_its_events(workspace: Workspace, path: str) -> None:
    job = workspace.store.jobs.add("install", None, {"engine": "deepsparse"})
    sent: list[bytes] = []

    async def listen() -> int:
        desk = Desk(workspace, None)
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))
            if message.get("body"):
                gone.set()

        address = f"{PREFIX}/{path.format(job=job.id)}"
        scope = {"type": "http", "method": "GET", "path": address, "raw_path": address.encode(), "headers": [],
                 "query_string": b"", "http_version": "1.1", "scheme": "http", "root_path": "",
                 "asgi": {"version": "3.0", "spec_version": "2.3"}}  # fmt: skip
        # It returns only when nobody follows any more.
        await asyncio.wait_for(_app(desk)(scope, receive, send), 30)
        return len(asyncio.all_tasks())

    assert asyncio.run(listen()) == 1
    name = b"queue" if path == "jobs/events" else b"progress"
    assert b"".join(sent).startswith(b"event: " + name + b"\ndata: {")


def test_a_job_that_is_forgotten_ends_its_events(workspace: Workspace) -> None:
    job = workspace.store.jobs.add("install", None, {"engine": "deepsparse"})

    async def follow() -> list[str]:
        from inferlab.web.api.jobs import follow_job

        desk = Desk(workspace, None)
        names = []
        async for event in follow_job(desk, job.id):
            names.append(str(event.event))
            workspace.store.jobs.cancel(job.id)
            workspace.store.jobs.remove(job.id)
            await desk.watch.refresh()
        return names

    assert asyncio.run(asyncio.wait_for(follow(), 30)) == ["progress"]
