"""Comparing, capacity and recommendation of a model that generates, as pages and the HTTP API ask for them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from inferlab.errors import BadInput
from inferlab.options.generation import parse_limits
from inferlab.records import EngineInfo, ignore
from inferlab.records.generation import GenerationPlan
from inferlab.store import open_store
from inferlab.store.entries import Project, QueuedJob
from inferlab.store.formats import MADE_OF_GENERATIONS
from inferlab.views.tables import Pair
from inferlab.web.components.cards import read_cards
from inferlab.workspace import requests
from inferlab.workspace.cards import open_card
from inferlab.workspace.engines import Engines
from inferlab.workspace.entries import export
from inferlab.workspace.jobs import Ended, work
from inferlab.workspace.requests import (
    GenerationCapacityRequest,
    GenerationComparisonRequest,
    GenerationRecommendationRequest,
)
from inferlab.workspace.workspace import Workspace

PLAN = GenerationPlan("", ("fake",), (8,), (4,), num_cores=(1,), time_s=2.0, verify=False)
SLOW = replace(PLAN, engine_options=(("latency_us", "3000"),))
SLO = parse_limits("ttft<2s,tpot<1s")


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_store(str(tmp_path / "lab.db")) as store:
        made = Workspace(store)
        # Asking them all takes seconds.
        made.engines = Engines((EngineInfo("fake", "ready", "1", ("onnx", "gguf")),))
        yield made


@pytest.fixture
def project(workspace: Workspace) -> Project:
    return workspace.create_project("Llama", "", workspace.analyse("demo:llama_tiny"))


def done(workspace: Workspace, job: QueuedJob) -> str:
    """Do a job as the runner does; the id of its entry."""
    asked = requests.request_of(job)
    assert work(job, asked, workspace.store, ignore) == Ended("done")
    entry_id = workspace.store.jobs.get(job.id).entry_id
    assert entry_id is not None
    # There is no runner that would say that it has ended.
    workspace.store.jobs.cancel(job.id)
    return entry_id


def test_each_is_queued_done_shown_exported_and_asked_for_again(workspace: Workspace, project: Project) -> None:
    jobs = [
        workspace.add_generation(project.id, GenerationComparisonRequest(PLAN, SLOW, "ttft", 2.0)),
        workspace.add_generation(project.id, GenerationCapacityRequest(replace(PLAN, slo=SLO), 0.8)),
        workspace.add_generation(
            project.id, GenerationRecommendationRequest(replace(PLAN, batch_sizes=(1, 2), slo=SLO), 2.0)
        ),
    ]
    assert tuple(job.kind for job in jobs) == MADE_OF_GENERATIONS
    shown = {
        "generation-comparison": "Verdict",
        "generation-capacity": "Highest rate at which 80 % of the requests meet ttft<2s, tpot<1s",
        "generation-recommendation": "Recommended",
    }
    for job in jobs:
        entry_id = done(workspace, job)
        entry = workspace.store.entry(entry_id)
        assert (entry.kind, entry.project_id, entry.status) == (job.kind, project.id, "done")
        card = open_card(workspace.store, entry_id)
        assert shown[job.kind] in [block.name for block in card.blocks if isinstance(block, Pair)]
        for ending in ("json", "csv", "md", "html"):
            assert export(workspace.store, entry_id, ending).text
        assert json.loads(export(workspace.store, entry_id, "json").text)["format"].startswith(
            "inferlab-generation-"
        )
        # What stands in the entry says the same as the job that made it.
        workspace.store.jobs.remove(job.id)
        again = workspace.rerun(entry_id)
        assert (again.kind, again.content) == (job.kind, job.content)
        workspace.store.jobs.cancel(again.id)
    assert workspace.store.jobs.alive() == []


def test_commands_are_copied_as_the_command_line_takes_them(workspace: Workspace, project: Project) -> None:
    from inferlab.cli.capacity import command as capacity
    from inferlab.cli.compare import command as compare
    from inferlab.cli.recommend import command as recommend

    job = workspace.add_generation(project.id, GenerationComparisonRequest(PLAN, SLOW, "ttft", 2.0))
    line = workspace.command(done(workspace, job))
    assert line == (
        "inferlab compare demo:llama_tiny -e fake --prompt 8 --new 4 -ncores 1 --b "
        "engine_option=latency_us=3000 --no-verify --metric ttft -t 2"
    )
    with compare.make_context("compare", shlex.split(line)[2:]) as context:
        assert (context.params["prompt"], context.params["metric"], context.params["time"]) == ((8,), "ttft", 2.0)
    job = workspace.add_generation(project.id, GenerationCapacityRequest(replace(PLAN, slo=SLO), 0.8))
    line = workspace.command(done(workspace, job))
    with capacity.make_context("capacity", shlex.split(line)[2:]) as context:
        assert (context.params["slo"], context.params["attainment"]) == ("ttft<2s,tpot<1s", 0.8)
    asked = GenerationRecommendationRequest(replace(PLAN, batch_sizes=(1, 2)), 2.0)
    line = workspace.command(done(workspace, workspace.add_generation(project.id, asked)))
    with recommend.make_context("recommend", shlex.split(line)[2:]) as context:
        assert (context.params["batch_size"], context.params["time"]) == ((1, 2), 2.0)


def test_what_cannot_be_asked_for_is_refused_before_it_waits(workspace: Workspace, project: Project) -> None:
    refusals = (
        (GenerationComparisonRequest(PLAN, PLAN), "Both sides of the comparison are Fake"),
        (GenerationComparisonRequest(replace(PLAN, depths=(0, 8)), SLOW), "This takes one combination, and these"),
        (GenerationComparisonRequest(PLAN, SLOW, margin=2.0), "must lie between 0 and 100 %"),
    )
    for asked, said in refusals:
        with pytest.raises(BadInput, match=said):
            workspace.add_generation(project.id, asked)
    with pytest.raises(BadInput, match="The highest rate is that which meets an objective"):
        workspace.add_generation(project.id, GenerationCapacityRequest(PLAN))
    with pytest.raises(BadInput, match="the context of demo:llama_tiny has 2048"):
        workspace.add_generation(project.id, GenerationRecommendationRequest(replace(PLAN, prompt_tokens=(4096,))))
    other = workspace.create_project("MLP", "", workspace.analyse("demo:mlp"))
    with pytest.raises(BadInput, match="The model of 'MLP' does not generate tokens"):
        workspace.add_generation(other.id, GenerationComparisonRequest(PLAN, SLOW))
    assert workspace.store.jobs.alive() == []


def test_the_page_lists_each_with_what_it_is_of(workspace: Workspace, project: Project) -> None:
    job = workspace.add_generation(project.id, GenerationComparisonRequest(PLAN, SLOW, "ttft", 2.0))
    (waiting,) = read_cards(workspace, project.id, 10).cards
    assert (waiting.title, waiting.facts["Prompt"], waiting.alive) == (
        "Comparison of generation: Fake (scripted)",
        "8",
        True,
    )
    entry_id = done(workspace, job)
    (card,) = read_cards(workspace, project.id, 10).cards
    assert (card.id, card.title, card.facts["Core count"]) == (
        entry_id,
        "Comparison of generation: Fake (scripted)",
        "1",
    )
    assert card.has_content and not card.generates
    workspace.store.jobs.remove(job.id)
    workspace.remove(entry_id)
    assert read_cards(workspace, project.id, 10).cards == ()
