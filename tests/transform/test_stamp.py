from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from inferlab.errors import BadInput
from inferlab.transform.copies import stamp
from tests.helpers.networks import a_graph, digests, inputs_of, random, run_onnxruntime, saved


def test_notes_replace_older_ones_of_the_same_name_and_nothing_else_changes(tmp_path: Path) -> None:
    proto = a_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": random(3, 2)}, [1, 3])
    for key, value in (("author", "me"), ("inferlab.recipe", "old")):
        proto.metadata_props.add(key=key, value=value)
    model = saved(proto, tmp_path / "a")
    made = stamp(model, tmp_path / "b", {"inferlab.recipe": "new: ü\n"})
    stamp(model, tmp_path / "c", {"inferlab.recipe": "new: ü\n"})
    assert digests(tmp_path / "b") == digests(tmp_path / "c")
    notes = [(metadata_prop.key, metadata_prop.value) for metadata_prop in onnx.load(made.path).metadata_props]
    assert notes == [("author", "me"), ("inferlab.recipe", "new: ü\n")]
    changed = onnx.load(made.path)
    del changed.metadata_props[:]
    del proto.metadata_props[:]
    assert changed == proto
    with pytest.raises(BadInput, match="is the model itself"):
        stamp(model, tmp_path / "a", {})


def test_data_files_come_along(tmp_path: Path) -> None:
    proto = a_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": random(3, 2)}, [1, 3])
    model = saved(proto, tmp_path / "a", save_as_external_data=True, location="w.bin", size_threshold=0)
    made = stamp(model, tmp_path / "b", {"note": "1"})
    assert digests(tmp_path / "b")["w.bin"] == digests(tmp_path / "a")["w.bin"]
    (inputs,) = inputs_of(model)
    np.testing.assert_array_equal(run_onnxruntime(made, inputs)[0], run_onnxruntime(model, inputs)[0])
