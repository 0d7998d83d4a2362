from __future__ import annotations

from inferlab.model.flops.costs import Costs, NodeCost
from inferlab.profiling.layers import flops_profile
from inferlab.records.profile import Uncounted, Work


def a_node(index: int, kind: str, **more: object) -> NodeCost:
    return NodeCost(index, f"out{index}", kind, (), (f"out{index}",), **more)  # type: ignore[arg-type]


NODES = (
    a_node(0, "Conv", dtype="int8", flops=800, macs=400, params=30, weight="w", read_bytes=50, weight_bytes=30,
           write_bytes=20),
    a_node(1, "Relu", flops=20, macs=0, read_bytes=40, write_bytes=40),
    a_node(2, "MatMul", flops=200, macs=100, params=30, weight="w", read_bytes=10, weight_bytes=30,
           write_bytes=10),
    a_node(3, "Reshape", flops=0, macs=0, read_bytes=0, write_bytes=0),
    a_node(4, "NonMaxSuppression", read_bytes=8, write_bytes=None, uncounted="its work depends on the data"),
    a_node(5, "NonMaxSuppression", uncounted="its work depends on the data"),
    a_node(6, "Foo", uncounted="inferlab has no formula for it"),
)  # fmt: skip


def test_totals_by_type_of_arithmetic_and_what_is_not_counted_are_exact() -> None:
    profile = flops_profile(Costs(NODES, params=30, weight_bytes=30), 4, {"x": (4, 3)})
    assert (profile.flops, profile.macs, profile.params, profile.weight_bytes) == (1020, 500, 30, 30)
    assert profile.by_dtype == {"int8": Work(800, 400), "float32": Work(220, 100)}
    assert profile.activation_bytes == 50 + 20 + 80 + 20 + 8
    assert profile.intensity == 1020 / (178 + 60)
    assert profile.uncounted == (
        Uncounted("NonMaxSuppression", 2, "its work depends on the data"),
        Uncounted("Foo", 1, "inferlab has no formula for it"),
    )
    assert (profile.batch_size, profile.shapes) == (4, {"x": (4, 3)})


def test_each_node_is_a_layer_with_its_intensity() -> None:
    layers = flops_profile(Costs(NODES), 1, {}).layers
    assert [layer.intensity for layer in layers] == [8.0, 0.25, 4.0, None, None, None, None]
    assert [layer.nodes for layer in layers[:2]] == [("out0",), ("out1",)]
    assert layers[4].flops is None


def test_a_model_without_nodes_that_count_has_no_intensity() -> None:
    profile = flops_profile(Costs(()), 1, {})
    assert (profile.flops, profile.intensity, profile.by_dtype, profile.uncounted) == (0, None, {}, ())
