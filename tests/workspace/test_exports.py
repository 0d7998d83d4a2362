"""Entries as files that a browser saves."""

from __future__ import annotations

from pathlib import Path

from inferlab.store import open_store
from inferlab.views import comparison
from inferlab.workspace.exports import export
from tests.helpers.sweeps import a_comparison


def test_a_comparison_at_several_places_is_exported_whole_under_the_name_of_its_model(tmp_path: Path) -> None:
    told = comparison.content(a_comparison(1.5, 1.25))
    arm = {**told["a"], "model": {"source": "models/net.onnx"}}
    places = [
        {**told, "a": {**arm, "cell": {"num_cores": cores, "batch_size": 1, "scenario": "sync"}}}
        for cores in (1, 2)
    ]
    with open_store(str(tmp_path / "lab.db")) as store:
        entry_id = store.add_document("comparison", "net.onnx: a / b", comparison.several(places, []))
        found = export(store, entry_id, "html")
    assert found.name == f"net.onnx-{entry_id}.html"
    assert "1 core, batch 1" in found.text and "2 cores, batch 1" in found.text
