"""What holds for every changed copy: the same bytes again, whole files or none, the original untouched."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from inferlab.errors import BadInput
from inferlab.records import Model
from inferlab.records.optimization import Quantization
from inferlab.transform.channels import prune_channels
from inferlab.transform.cleanup import clean_up
from inferlab.transform.copies import stamp
from inferlab.transform.prune import prune
from inferlab.transform.quantize import quantize
from tests.helpers.networks import a_graph, digests, inputs_of, random, run_onnxruntime, saved, weights_of

node = helper.make_node

TRANSFORMS: dict[str, Callable[[Model, Path], object]] = {
    "prune": lambda model, folder: prune(model, {"w": 0.5, "v": 0.5}, folder),
    "prune by block4": lambda model, folder: prune(model, {"w": 0.5, "v": 0.5}, folder, "block4"),
    "prune by 2:4": lambda model, folder: prune(model, {"w": 0.5, "v": 0.5}, folder, "2:4"),
    "prune channels": lambda model, folder: prune_channels(model, {"w": 0.5}, folder),
    "static": lambda model, folder: quantize(model, inputs_of(model, 2), folder),
    "dynamic": lambda model, folder: quantize(model, [], folder, Quantization("dynamic")),
    "weights": lambda model, folder: quantize(model, [], folder, Quantization("weights")),
    "weights of 4 bits": lambda model, folder: quantize(model, [], folder, Quantization("weights", bits=4)),
    "fp16": lambda model, folder: quantize(model, [], folder, Quantization("fp16")),
    "clean up": lambda model, folder: clean_up(model, folder),
    "stamp": lambda model, folder: stamp(model, folder, {"a": "b", "c": "d"}),
}


def a_net(folder: Path) -> Model:
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("Flatten", ["r"], ["f"]),
        node("MatMul", ["f", "v"], ["y"]),
    ]
    weights = {"w": random(16, 4, 3, 3), "b": random(16), "v": random(16 * 36, 32)}
    return saved(a_graph(nodes, weights, [1, 4, 8, 8]), folder)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_the_same_call_gives_the_same_bytes_and_the_original_stays(tmp_path: Path, name: str) -> None:
    model = a_net(tmp_path / "a")
    before = digests(tmp_path / "a")
    for folder in ("b", "c"):
        TRANSFORMS[name](model, tmp_path / folder)
    assert digests(tmp_path / "b") == digests(tmp_path / "c")
    assert list(digests(tmp_path / "b")) == ["net.onnx"]
    assert digests(tmp_path / "a") == before
    assert digests(tmp_path / "b") != before


@pytest.mark.parametrize("name", TRANSFORMS)
def test_data_in_other_files_makes_no_difference(tmp_path: Path, name: str) -> None:
    inside = a_net(tmp_path / "a")
    where = {"save_as_external_data": True, "location": "data.bin", "size_threshold": 200}
    outside = saved(onnx.load(inside.path), tmp_path / "b", **where)
    before = digests(tmp_path / "b")
    TRANSFORMS[name](inside, tmp_path / "c")
    TRANSFORMS[name](outside, tmp_path / "d")
    assert digests(tmp_path / "b") == before
    one, other = (onnx.load(tmp_path / folder / "net.onnx").graph for folder in ("c", "d"))
    assert list(one.node) == list(other.node)
    for first, second in zip(one.initializer, other.initializer, strict=True):
        assert first.name == second.name
        np.testing.assert_array_equal(numpy_helper.to_array(first), numpy_helper.to_array(second))


FULL = """
import resource, sys
from pathlib import Path
from inferlab.errors import InferlabError
from inferlab.model.onnx_file import read_onnx
from tests.transform.test_copies import TRANSFORMS
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
model = read_onnx(Path(sys.argv[1]), "net.onnx")
try:
    TRANSFORMS[sys.argv[2]](model, Path(sys.argv[3]))
except InferlabError as error:
    print(error)
"""


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_full_disk_leaves_no_half_written_file(tmp_path: Path, name: str) -> None:
    model = a_net(tmp_path / "a")
    command = [sys.executable, "-c", FULL, model.path, name, str(tmp_path / "b")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "b").exists() or digests(tmp_path / "b") == {}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_model_that_was_cut_off_meanwhile_is_refused(tmp_path: Path, name: str) -> None:
    model = a_net(tmp_path / "a")
    Path(model.path).write_bytes(Path(model.path).read_bytes()[:-1000])
    with pytest.raises(BadInput, match="cut off or damaged"):
        TRANSFORMS[name](model, tmp_path / "b")
    assert not (tmp_path / "b").exists() or digests(tmp_path / "b") == {}


@pytest.mark.parametrize("name", ["static", "dynamic", "fp16"])
def test_what_was_pruned_stays_zero_when_it_is_quantised(tmp_path: Path, name: str) -> None:
    pruned = prune(a_net(tmp_path / "a"), {"w": 0.7, "v": 0.8}, tmp_path / "b")
    TRANSFORMS[name](pruned, tmp_path / "c")
    proto = onnx.load(tmp_path / "c" / "net.onnx")
    stored = {one.name: onnx.numpy_helper.to_array(one) for one in proto.graph.initializer}
    before = weights_of(pruned)
    for weight in ("w", "v"):
        (found,) = [
            one for name, one in stored.items() if name.startswith(weight) and one.shape == before[weight].shape
        ]
        assert found.dtype == (np.float16 if name == "fp16" else np.int8)
        assert (found[before[weight] == 0] == 0).all()
    points = [value for key, value in stored.items() if key.startswith(("w_", "v_")) and "zero_point" in key]
    assert all((value == 0).all() for value in points)
    assert len(points) == (0 if name == "fp16" else 2)


def test_a_copy_of_a_copy_runs(tmp_path: Path) -> None:
    model = a_net(tmp_path / "a")
    clean = clean_up(model, tmp_path / "b").model
    small = prune_channels(clean, {"w": 0.25}, tmp_path / "c").model
    sparse = prune(small, {"v": 0.5}, tmp_path / "d", "block4")
    int8 = quantize(sparse, inputs_of(model, 3), tmp_path / "e").model
    made = stamp(int8, tmp_path / "f", {"note": "all"})
    assert made.precision == "INT8"
    assert made.size_bytes < model.size_bytes / 2
    (inputs,) = inputs_of(model)
    (found,), (expected,) = run_onnxruntime(made, inputs), run_onnxruntime(sparse, inputs)
    assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max()


def test_a_model_that_does_not_run_on_made_up_inputs_is_quantised_but_its_channels_stay(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("MatMul", ["h", "v"], ["m"]),
        node("Reshape", ["m", "seven"], ["y"]),
    ]
    weights = {"w": random(4, 8), "v": random(8, 4), "seven": np.array([7, 4], np.int64)}
    model = saved(a_graph(nodes, weights, ["rows", 4]), tmp_path / "a")
    made = quantize(model, [], tmp_path / "b", Quantization("dynamic")).model
    assert run_onnxruntime(made, {"x": random(7, 4)})[0].shape == (7, 4)
    with pytest.raises(BadInput, match=r"net\.onnx does not run on inputs that are made up for it"):
        prune_channels(model, {"w": 0.5}, tmp_path / "c")
    assert digests(tmp_path / "c") == {}


# Notes


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
