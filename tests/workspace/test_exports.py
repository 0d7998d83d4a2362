"""Entries as files that a browser saves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from inferlab.store import open_store
from inferlab.workspace.entries import export
from tests.helpers.runs import a_cell
from tests.helpers.stored import MODEL, save_comparison
from tests.helpers.sweeps import a_comparison


def test_a_comparison_at_several_places_is_exported_whole_under_the_name_of_its_model(tmp_path: Path) -> None:
    models = (replace(MODEL, source="models/net.onnx"), MODEL)
    places = [
        a_comparison(1.5, 1.25, models=models, cells=(a_cell(num_cores=cores), a_cell(num_cores=cores)))
        for cores in (1, 2)
    ]
    with open_store(str(tmp_path / "lab.db")) as store:
        entry_id = save_comparison(store, *places, title="net.onnx: a / b")
        found = export(store, entry_id, "html")
    assert found.name == f"net.onnx-{entry_id}.html"
    assert "1 core, batch 1" in found.text and "2 cores, batch 1" in found.text
