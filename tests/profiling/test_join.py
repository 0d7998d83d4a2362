"""Which nodes a layer covers: every engine's way of naming them, on graphs made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import NodeProto, TensorProto, helper

from inferlab.model.flops.costs import NodeCost
from inferlab.profiling.join import ExecutedLayer, Graph, JoinResult, join, optimised_seeds, read_layers


def graph(*nodes: tuple[str, str, str], kept: Sequence[str] = ("y",), named: bool = True) -> Graph:
    """Nodes as (operator, inputs, outputs); the model is fed x, all else that no node makes is constant."""
    made = [
        NodeCost(
            index=number,
            id=outputs.split()[0],
            type=kind,
            inputs=tuple(inputs.split()),
            outputs=tuple(outputs.split()),
            name=f"{outputs.split()[0]}_node" if named else "",
        )
        for number, (kind, inputs, outputs) in enumerate(nodes)
    ]
    return Graph(made, {"x"}, kept)


def ids(joined: JoinResult, of: Graph) -> list[list[str]]:
    return [[of.nodes[number].id for number in members] for members in joined.nodes]


def test_what_no_layer_names_belongs_to_the_layer_that_uses_it() -> None:
    model = graph(
        ("ReduceMean", "x", "mean"), ("Sub", "x mean", "centred"), ("Div", "centred s", "d"), ("Mul", "d g", "y")
    )
    joined = join([ExecutedLayer("MVN", covers=("d_node",)), ExecutedLayer("scale", covers=("y_node",))], model)
    assert ids(joined, model) == [["mean", "centred", "d"], ["y"]]
    assert joined.folded == ()


def test_an_engine_that_names_main_nodes_covers_what_follows_them() -> None:
    model = graph(
        ("Conv", "x w1", "a"), ("Relu", "a", "b"), ("Conv", "b w2", "c"), ("Add", "c b", "d"), ("Relu", "d", "y")
    )
    joined = join(
        [ExecutedLayer("conv_0", covers=("a",)), ExecutedLayer("conv_1", covers=("c",))], model, unnamed="before"
    )
    assert ids(joined, model) == [["a", "b"], ["c", "d", "y"]]


def test_constants_and_what_follows_from_shapes_are_folded() -> None:
    model = graph(
        ("Shape", "x", "shape"), ("Gather", "shape i", "rows"), ("Transpose", "w", "wt"), ("MatMul", "x wt", "m"),
        ("Reshape", "m rows", "y"),
    )  # fmt: skip
    joined = join([ExecutedLayer("fc", covers=("m",)), ExecutedLayer("view", covers=("y",))], model)
    assert ids(joined, model) == [["m"], ["y"]]
    assert joined.folded == (0, 1, 2)


def test_a_shape_that_an_engine_computes_each_time_is_its_layer() -> None:
    model = graph(("Shape", "x", "shape"), ("Reshape", "x shape", "y"))
    joined = join([ExecutedLayer("s", covers=("shape_node",)), ExecutedLayer("r", covers=("y_node",))], model)
    assert ids(joined, model) == [["shape"], ["y"]]


def test_parts_that_an_engine_adds_to_a_name_are_left_out() -> None:
    model = graph(("Conv", "x w", "/block/conv"), ("Relu", "/block/conv", "y"))
    layer = ExecutedLayer("conv", covers=("/block/conv_node/WithoutBiases", "y_node", "Reshape_5", ""))
    assert ids(join([layer], model), model) == [["/block/conv", "y"]]


def test_a_name_that_two_nodes_share_stands_for_neither() -> None:
    nodes = [
        NodeCost(0, "a", "Relu", ("x",), ("a",), name="same"),
        NodeCost(1, "y", "Tanh", ("a",), ("y",), name="same"),
    ]
    model = Graph(nodes, {"x"}, {"y"})
    assert model.named(["same", "y", "a"]) == [1, 0]


def test_a_second_layer_made_of_the_same_node_is_a_part_of_the_first() -> None:
    model = graph(("LSTM", "x w r", "y"))
    joined = join(
        [ExecutedLayer("gates", covers=("y_node",)), ExecutedLayer("cell", covers=("y_node/cell",))], model
    )
    assert joined.nodes == ((0,), ())
    assert joined.part_of == {1: 0}


def test_a_layer_that_the_engine_put_in_covers_nothing() -> None:
    model = graph(("Conv", "x w", "y"))
    joined = join([ExecutedLayer("x_abcd_acdb", "Reorder"), ExecutedLayer("conv", covers=("y_node",))], model)
    assert joined.nodes == ((), (0,))
    assert joined.part_of == {}


def test_what_cannot_follow_a_layer_ran_in_the_next_fallback() -> None:
    model = graph(
        ("Conv", "x w", "c"), ("Relu", "c", "r"), ("TopK", "r k", "t i"), ("Cast", "i", "f"), ("Add", "t f", "s"),
        ("Conv", "s v", "d"), ("Det", "d", "y"),
    )  # fmt: skip
    layers = [
        ExecutedLayer("Naive 0", fallback=True),
        ExecutedLayer("conv_0", covers=("c",)),
        ExecutedLayer("Naive 1", fallback=True),
        ExecutedLayer("plus", covers=("s",)),
        ExecutedLayer("conv_1", covers=("d",)),
        ExecutedLayer("Naive 2", fallback=True),
    ]
    joined = join(layers, model, unnamed="before")
    assert ids(joined, model) == [[], ["c", "r"], ["t", "f"], ["s"], ["d"], ["y"]]


def test_nameless_shuffles_and_gathers_find_their_nodes() -> None:
    model = graph(
        ("Gather", "table x", "g"), ("MatMul", "g w", "m"), ("Add", "m b", "a"), ("Reshape", "a s", "r"),
        ("Transpose", "r", "t"), ("MatMul", "t t", "y"),
    )  # fmt: skip
    layers = [
        ExecutedLayer("gather_0", "gather"),
        ExecutedLayer("gemm_1", "gemm", covers=("m",)),
        ExecutedLayer("plus_2", "plus", covers=("a",)),
        ExecutedLayer("shuffle_3", "shuffle"),
        ExecutedLayer("gemm_4", "gemm", covers=("y",)),
        ExecutedLayer("shuffle_5", "shuffle"),
    ]
    joined = join(layers, model, unnamed="before")
    assert ids(joined, model) == [["g"], ["m"], ["a"], ["r", "t"], ["y"], []]


FLOW = (
    ("MatMul", "x a", "m"), ("Greater", "x zero", "cond"), ("If", "cond", "y"),
    ("MatMul", "m b", "else1"), ("Tanh", "else1", "else2"), ("MatMul", "m c", "then1"), ("Relu", "then1", "then2"),
)  # fmt: skip


def test_a_branch_that_was_not_taken_belongs_to_nobody() -> None:
    model = graph(*FLOW)
    names = ("m", "cond", "then1", "then2", "y")
    joined = join([ExecutedLayer(name, covers=(name,)) for name in names], model)
    assert ids(joined, model) == [[name] for name in names]
    assert joined.folded == (3, 4)


def test_an_engine_that_runs_a_branch_as_a_whole_covers_its_nodes_with_it() -> None:
    model = graph(*FLOW)
    joined = join([ExecutedLayer(name, covers=(name,)) for name in ("m", "cond", "y")], model)
    assert ids(joined, model) == [["m"], ["cond"], ["y", "else1", "else2", "then1", "then2"]]


def blocked(name: str, inputs: Sequence[str], output: str, kind: str = "Conv", activation: str = "") -> NodeProto:
    more = {"activation": activation} if activation else {}
    return helper.make_node(kind, inputs, [output], name, None, "com.microsoft.nchwc", **more)


def optimised(*nodes: NodeProto) -> bytes:
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    content: bytes = helper.make_model(
        helper.make_graph(list(nodes), "optimised", [], [value])
    ).SerializeToString()
    return content


def test_blocked_convolutions_cover_the_addition_and_the_activation_that_they_took_in() -> None:
    model = graph(
        ("Conv", "x w1", "c1"), ("Relu", "c1", "r1"), ("Conv", "r1 w2", "c2"), ("Conv", "r1 w3", "c3"),
        ("Add", "c2 c3", "s"), ("Relu", "s", "r2"), ("Conv", "r2 w4", "c4"), ("GlobalAveragePool", "c4", "y"),
    )  # fmt: skip
    content = optimised(
        blocked("ReorderInput", ["x"], "t0", "ReorderInput"),
        blocked("r1_nchwc", ["t0", "w1"], "t1", activation="Relu"),
        blocked("c3_nchwc", ["t1", "w3"], "t2"),
        blocked("c2_nchwc_token_7", ["t1", "w2", "b2", "t2"], "t3", activation="Relu"),
        blocked("c4_nchwc", ["t3", "w4"], "t4"),
        blocked("y_nchwc", ["t4"], "t5", "GlobalAveragePool"),
        blocked("ReorderOutput", ["t5"], "y", "ReorderOutput"),
    )
    traced = [
        ExecutedLayer("ReorderInput", "ReorderInput"), ExecutedLayer("r1_nchwc", "Conv"),
        ExecutedLayer("c3_nchwc", "Conv"), ExecutedLayer("c2_nchwc_token_7", "Conv"),
        ExecutedLayer("c4_nchwc", "Conv"), ExecutedLayer("y_nchwc", "GlobalAveragePool"),
        ExecutedLayer("ReorderOutput", "ReorderOutput"),
    ]  # fmt: skip
    layers, seeds = optimised_seeds(traced, content, model)
    joined = join(layers, model, seeds=seeds)
    assert ids(joined, model) == [[], ["c1", "r1"], ["c3"], ["c2", "s", "r2"], ["c4"], ["y"], []]
    assert {layer.kernel for layer in layers[1:5]} == {"com.microsoft.nchwc.Conv"}


def test_a_fused_node_covers_all_that_leads_to_its_output() -> None:
    model = graph(("MatMul", "x w", "m"), ("Add", "m b", "a"), ("Add", "a x", "s"), ("LayerNorm", "s g", "y"))
    content = optimised(
        helper.make_node("MatMul", ["x", "w"], ["m"], name="m_node"),
        helper.make_node("SkipLayerNormalization", ["m", "x", "g"], ["y"], name="Skip", domain="com.microsoft"),
    )
    traced = [ExecutedLayer("m_node", "MatMul"), ExecutedLayer("Skip", "SkipLayerNormalization")]
    layers, seeds = optimised_seeds(traced, content, model)
    assert ids(join(layers, model, seeds=seeds), model) == [["m"], ["a", "s", "y"]]


def test_a_transpose_that_was_moved_behind_a_node_does_not_take_its_place() -> None:
    model = graph(("Transpose", "x", "t"), ("Relu", "t", "y"))
    content = optimised(
        helper.make_node("Relu", ["x"], ["moved"], name="y_node"),
        helper.make_node("Transpose", ["moved"], ["y"], name="Transpose_token_1"),
    )
    layers, seeds = optimised_seeds(
        [ExecutedLayer("y_node", "Relu"), ExecutedLayer("Transpose_token_1", "Transpose")], content, model
    )
    assert ids(join(layers, model, seeds=seeds), model) == [["t", "y"], []]


def test_a_quantised_node_is_known_by_its_name_in_another_layout_too() -> None:
    model = graph(
        ("DequantizeLinear", "x", "xd"), ("Conv", "xd w", "c"), ("QuantizeLinear", "c", "q"),
        ("DequantizeLinear", "q", "y"),
    )  # fmt: skip
    content = optimised(
        helper.make_node("Transpose", ["x"], ["t"], name="Transpose"),
        helper.make_node("QLinearConv", ["t", "w"], ["u"], name="c_node_token_1", domain="com.microsoft"),
        helper.make_node("Transpose", ["u"], ["q"], name="Transpose_token_2"),
        helper.make_node("DequantizeLinear", ["q"], ["y"], name="y_node"),
    )
    traced = [
        ExecutedLayer("Transpose", "Transpose"), ExecutedLayer("c_node_token_1", "QLinearConv"),
        ExecutedLayer("Transpose_token_2", "Transpose"), ExecutedLayer("y_node", "DequantizeLinear"),
    ]  # fmt: skip
    layers, seeds = optimised_seeds(traced, content, model)
    assert ids(join(layers, model, seeds=seeds), model) == [[], ["xd", "c"], ["q"], ["y"]]


def test_an_answer_without_the_words_that_may_be_left_out_is_read() -> None:
    assert read_layers([{"name": "fc", "ns": 5}]) == (ExecutedLayer("fc", ns=5.0),)
