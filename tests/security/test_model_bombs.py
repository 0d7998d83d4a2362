"""A small file that would become a huge graph is refused before it does."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto, ValueInfoProto, helper

from inferlab.errors import BadInput
from inferlab.model.flops.count import costs
from inferlab.model.onnx_file import digest_of, read_onnx
from tests.helpers.bombs import function_bomb


@pytest.mark.parametrize("reader", [lambda path: read_onnx(path, "bomb"), digest_of])
def test_functions_that_become_a_billion_nodes_are_refused_by_their_count(reader: object, tmp_path: Path) -> None:
    path = tmp_path / "bomb.onnx"
    path.write_bytes(function_bomb().SerializeToString())
    assert path.stat().st_size < 3000
    with pytest.raises(
        BadInput, match=r"it has 1,073,741,824 nodes once its functions .* the 250,000 that are read"
    ):
        reader(path)  # type: ignore[operator]


def test_functions_that_call_each_other_in_circles_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "circle.onnx"
    path.write_bytes(function_bomb(3, circle=True).SerializeToString())
    with pytest.raises(BadInput, match="its function 'f1' calls itself, directly or through others"):
        read_onnx(path, "circle")


def test_functions_within_the_limit_are_counted_exactly(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    path.write_bytes(function_bomb(5).SerializeToString())
    model = read_onnx(path, "small")
    assert len(costs(model, {"x": (1, 4)}).nodes) == 2**5


def test_a_loop_whose_condition_goes_round_in_a_circle_is_read(tmp_path: Path) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["b"], ["a"]),
            helper.make_node("Identity", ["a"], ["b"]),
            helper.make_node("Relu", ["h"], ["h2"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("h", TensorProto.FLOAT, [2]),
        ],
        [
            helper.make_tensor_value_info("a", TensorProto.BOOL, []),
            helper.make_tensor_value_info("h2", TensorProto.FLOAT, [2]),
        ],
    )
    rounds = helper.make_tensor("rounds", TensorProto.INT64, [], [3])
    nodes = [helper.make_node("Loop", ["rounds", "", "x"], ["y"], body=body)]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], [rounds])
    path = tmp_path / "loop.onnx"
    path.write_bytes(helper.make_model(graph, ir_version=9).SerializeToString())
    found = costs(read_onnx(path, "loop"), {"x": (2,)})
    assert {node.type: node.uncounted for node in found.nodes}["Relu"].startswith("it is in a loop")


@pytest.mark.parametrize("elements", [1 << 12, 1 << 24, 1 << 31])
def test_a_weight_that_declares_more_than_it_holds_is_refused_before_its_shape_is_used(
    elements: int, tmp_path: Path
) -> None:
    zero = TensorProto(name="zero", data_type=TensorProto.INT64, dims=[elements], raw_data=bytes(8))
    indices = [helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Gather", ["shape", "zero"], ["y"])]
    graph = helper.make_graph(
        indices,
        "bomb",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, None)],
        [zero],
    )
    path = tmp_path / "bomb.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(BadInput, match=f"the weight 'zero' has 1 elements where its shape needs {elements}"):
        read_onnx(path, "bomb")


def test_a_text_that_declares_more_than_it_holds_is_refused(tmp_path: Path) -> None:
    words = TensorProto(name="words", data_type=TensorProto.STRING, dims=[3])
    with pytest.raises(BadInput, match="the weight 'words' has 0 elements where its shape needs 3"):
        _read_graph(tmp_path, [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])], [words])


def test_a_weight_without_a_type_is_refused(tmp_path: Path) -> None:
    weight = TensorProto(name="w", data_type=TensorProto.UNDEFINED, dims=[1], raw_data=bytes(4))
    with pytest.raises(BadInput, match="the tensor 'w' is of the type 0, which does not exist"):
        _read_graph(tmp_path, [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])], [weight])


def test_two_inputs_of_one_name_are_refused(tmp_path: Path) -> None:
    twice = [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims) for dims in ([4], [])]
    with pytest.raises(BadInput, match="two of its inputs have the same name"):
        _read_graph(tmp_path, twice, [])


def test_a_weight_that_a_node_makes_too_is_refused(tmp_path: Path) -> None:
    weight = helper.make_tensor("y", TensorProto.FLOAT, [2], [1.0, 2.0])
    with pytest.raises(BadInput, match="the value 'y' is made twice"):
        _read_graph(tmp_path, [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])], [weight])


def _read_graph(folder: Path, inputs: list[ValueInfoProto], weights: list[TensorProto]) -> None:
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", inputs, [output], weights)
    path = folder / "model.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    read_onnx(path, "model")
