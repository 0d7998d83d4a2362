"""From joined layers to records: times that add up, bytes of fused layers, times of layers cut differently."""

from __future__ import annotations

import math

import pytest

from inferlab.model.flops.costs import NodeCost
from inferlab.profiling.join import ExecutedLayer, Graph, JoinResult
from inferlab.profiling.layers import TimedLayer, align, apportion, layer_bytes, layer_records, time_layers

NODES = (
    NodeCost(
        0,
        "c",
        "Conv",
        ("x", "w"),
        ("c",),
        flops=1000,
        macs=500,
        params=100,
        weight="w",
        weight_shape=(10, 10),
        zero_fraction=0.5,
        prunable=True,
        read_bytes=40,
        weight_bytes=400,
        write_bytes=80,
    ),
    NodeCost(1, "r", "Relu", ("c",), ("r",), flops=20, macs=0, read_bytes=80, write_bytes=80),
    NodeCost(2, "v", "Reshape", ("r",), ("v",), flops=0, macs=0, read_bytes=0, write_bytes=0),
    NodeCost(
        3,
        "y",
        "MatMul",
        ("v", "u"),
        ("y",),
        flops=200,
        macs=100,
        params=30,
        weight="u",
        weight_shape=(10, 30),
        zero_fraction=0.0,
        prunable=True,
        read_bytes=80,
        weight_bytes=1200,
        write_bytes=8,
    ),
)
GRAPH = Graph(NODES, {"x"}, {"y"})
FOUND = (
    TimedLayer(ExecutedLayer("reorder", "Reorder"), (), (1.0, 1.0, 4.0)),
    TimedLayer(ExecutedLayer("conv", "Convolution", "brgconv"), (0, 1), (6.0, 5.0, 6.0)),
    TimedLayer(ExecutedLayer("fc"), (2, 3), (3.0, 4.0, 10.0)),
)


def test_layers_add_up_to_the_clean_time_in_every_process_and_as_a_whole() -> None:
    layers = layer_records(FOUND, (5.0, 20.0, 10.0), 9.0, GRAPH)
    for process, clean_ms in enumerate((5.0, 20.0, 10.0)):
        assert sum(layer.times_ms[process] for layer in layers) == pytest.approx(clean_ms, rel=1e-12)
    assert sum(layer.ms for layer in layers) == pytest.approx(9.0, rel=1e-12)
    assert sum(layer.share for layer in layers) == pytest.approx(1.0, rel=1e-12)
    assert layers[1].times_ms == (3.0, 10.0, 3.0)
    # The medians are 2, 3 and 5.
    assert [layer.ms for layer in layers] == pytest.approx([1.8, 2.7, 4.5])


def test_a_layer_is_called_after_its_costliest_node() -> None:
    reorder, conv, fc = layer_records(FOUND, (5.0, 20.0, 10.0), 9.0, GRAPH)
    assert (reorder.id, reorder.type, reorder.nodes, reorder.flops) == ("reorder", "Reorder", (), None)
    assert (conv.id, conv.type, conv.weight, conv.nodes) == ("c", "Conv", "w", ("c", "r"))
    assert (conv.name, conv.kernel, conv.flops, conv.macs, conv.params) == ("conv", "brgconv", 1020, 500, 100)
    assert (conv.zero_fraction, conv.prunable) == (0.5, True)
    assert conv.spread_ms == pytest.approx(math.sqrt(49 / 3))
    assert fc.gflops_per_second == pytest.approx(200 / 4.5 / 1e6)
    assert (fc.id, fc.nodes) == ("y", ("v", "y"))


def test_one_process_has_no_spread() -> None:
    one = [TimedLayer(each.executed, each.nodes, each.times_ms[:1]) for each in FOUND]
    assert [layer.spread_ms for layer in layer_records(one, (5.0,), 5.0, GRAPH)] == [None] * 3


def test_what_fell_back_is_shown_as_such() -> None:
    layers = layer_records(
        (TimedLayer(ExecutedLayer("Naive 1", fallback=True), (0,), (1.0,)),), (1.0,), 1.0, GRAPH
    )
    assert (layers[0].type, layers[0].fallback, layers[0].id) == ("ORT", True, "c")


def test_layers_of_the_same_name_have_different_ids() -> None:
    found = [TimedLayer(ExecutedLayer("reorder"), (), (1.0,)), TimedLayer(ExecutedLayer("reorder"), (), (1.0,))]
    assert [layer.id for layer in layer_records(found, (1.0,), 1.0, GRAPH)] == ["reorder", "reorder#2"]


def test_tensors_between_fused_nodes_are_not_moved() -> None:
    assert layer_bytes((0,), GRAPH) == 40 + 400 + 80
    assert layer_bytes((0, 1), GRAPH) == 40 + 400 + 80
    # The view has the bytes of what it looks at.
    assert layer_bytes((0, 1, 2, 3), GRAPH) == 40 + 400 + 1200 + 8
    assert layer_bytes((), GRAPH) is None


def test_an_output_of_the_model_is_written_whoever_reads_it() -> None:
    graph = Graph(NODES, {"x"}, {"y", "c"})
    assert layer_bytes((0, 1), graph) == 40 + 400 + 80 + 80


def test_processes_are_aligned_by_the_names_of_their_layers() -> None:
    first = (ExecutedLayer("a", ns=1e6), ExecutedLayer("b", ns=2e6), ExecutedLayer("a", ns=3e6))
    second = (ExecutedLayer("a", ns=4e6), ExecutedLayer("a", ns=5e6), ExecutedLayer("c", ns=6e6))
    layers, times = align([first, second])
    assert [layer.name for layer in layers] == ["a", "b", "a", "c"]
    assert times == [[1.0, 4.0], [2.0, 0.0], [3.0, 5.0], [0.0, 6.0]]


def test_a_part_is_added_to_the_layer_that_it_is_of() -> None:
    joined = JoinResult(nodes=((0,), (), (1,)), part_of={1: 0}, folded=())
    found = time_layers(
        [ExecutedLayer("gates"), ExecutedLayer("cell"), ExecutedLayer("relu")], joined, [[1.0], [2.0], [4.0]]
    )
    assert [(one.executed.name, one.times_ms) for one in found] == [("gates", (3.0,)), ("relu", (4.0,))]


def test_layers_that_were_cut_differently_are_divided_by_what_they_took() -> None:
    layers = layer_records(FOUND, (5.0, 20.0, 10.0), 9.0, GRAPH)
    flops = {node.id: node.flops or 0 for node in NODES}
    together = apportion([(("c", "r", "v", "y"), 3.6)], layers, flops)
    assert together == {"c": pytest.approx(3.6 * 2.7 / 7.2), "y": pytest.approx(3.6 * 4.5 / 7.2)}
    apart = apportion([(("c",), 1.0), (("r",), 0.5), ((), 9.0), (("v", "y"), 2.0)], layers, flops)
    assert apart == {"c": pytest.approx(1.5), "y": pytest.approx(2.0)}
