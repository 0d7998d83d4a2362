"""What entries are called."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inferlab.errors import BadInput, NotThere
from inferlab.store import open_store
from inferlab.store.formats import content_of
from inferlab.workspace.cards import open_card
from inferlab.workspace.entries import measured_on, name_of, reference_to
from inferlab.workspace.workspace import Workspace
from tests.helpers.profiles import a_profile
from tests.helpers.runs import a_cell
from tests.helpers.stored import save, save_comparison
from tests.helpers.sweeps import a_comparison, a_sweep, an_outcome


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_store(str(tmp_path / "lab.db")) as store:
        yield Workspace(store)


def test_a_benchmark_is_called_by_its_model_and_what_was_measured_until_it_is_renamed(
    workspace: Workspace,
) -> None:
    entry = workspace.store.entry(save(workspace.store, a_sweep(an_outcome())))
    assert name_of(entry, "ResNet-50") == "ResNet-50 on Fake (scripted), 1 core, batch 1"
    assert name_of(entry).endswith(" on Fake (scripted), 1 core, batch 1")
    renamed = workspace.rename(entry.id[:6], "  Before   the change ")
    assert (name_of(renamed, "ResNet-50"), reference_to(renamed)) == ("Before the change", "Before the change")
    assert workspace.store.get(entry.id).id == entry.id
    with pytest.raises(BadInput, match="The benchmark needs a name"):
        workspace.rename(entry.id, "  ")
    with pytest.raises(NotThere):
        workspace.rename("aaaaaaaaaa", "Nothing")


def test_a_comparison_is_called_by_both_sides(workspace: Workspace) -> None:
    found = a_comparison(1.5, 1.25, cells=(a_cell(engine="onnxruntime"), a_cell(engine="openvino")))
    entry = workspace.store.entry(save_comparison(workspace.store, found))
    assert measured_on(entry) == name_of(entry) == "OpenVINO vs ONNX Runtime, 1 core, batch 1"
    assert name_of(workspace.rename(entry.id, "Ours against theirs")) == "Ours against theirs"
    assert open_card(workspace.store, entry.id).arms[0].label == "OpenVINO"


def test_a_profile_keeps_its_name_in_its_parts(workspace: Workspace) -> None:
    entry_id = workspace.store.add_document("profile", "m", content_of(a_profile()))
    assert name_of(workspace.rename(entry_id, "on one core")) == "on one core"
    found = workspace.profile(entry_id)
    assert found.performance is not None and found.loss is not None
    assert (found.performance.name, found.loss.name) == ("on one core", "on one core")
