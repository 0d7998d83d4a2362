"""Profiles as the pages ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from inferlab.errors import BadInput
from inferlab.profiling.gains import with_estimate
from inferlab.profiling.zeros import estimate
from inferlab.store import open_store
from inferlab.store.formats import content_of
from inferlab.views.results import render
from inferlab.workspace.workspace import Workspace
from tests.helpers.profiles import a_profile

PROFILE = a_profile()


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_store(str(tmp_path / "lab.db")) as store:
        yield Workspace(store)


@pytest.fixture
def entry_id(workspace: Workspace) -> str:
    return workspace.store.add_document("profile", "m", content_of(PROFILE))


def test_without_a_budget_the_estimate_is_the_one_that_was_kept(workspace: Workspace, entry_id: str) -> None:
    found = workspace.profile(entry_id).estimate
    assert found == PROFILE.estimate and found is not None and found.verified is not None
    assert workspace.profile(entry_id, entry_id).estimate == PROFILE.estimate
    assert workspace.profile(entry_id, budget=0.05) == replace(with_estimate(PROFILE, 0.05), id=entry_id)


def test_without_a_kept_estimate_the_usual_budget_is_taken(workspace: Workspace) -> None:
    bare = replace(PROFILE, estimate=None)
    entry_id = workspace.store.add_document("profile", "m", content_of(bare))
    found = workspace.profile(entry_id).estimate
    assert found is not None and found == with_estimate(bare).estimate and found.budget == 0.1


def test_losses_alone_go_by_the_parameters(workspace: Workspace, entry_id: str) -> None:
    assert PROFILE.loss is not None
    found = workspace.loss_profile(entry_id, 0.3)
    assert found.performance is None and found.estimate == estimate(None, PROFILE.loss, 0.3)
    assert found.estimate is not None and found.estimate.gained == "parameters"


def test_what_looks_like_a_file_is_not_opened(workspace: Workspace, entry_id: str, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(render(PROFILE, ".json"))
    for ask in (
        lambda: workspace.profile(str(path)),
        lambda: workspace.profile(entry_id, str(path)),
        lambda: workspace.loss_profile(str(path)),
        lambda: workspace.layer_diff(entry_id, str(path)),
    ):
        with pytest.raises(BadInput):
            ask()
