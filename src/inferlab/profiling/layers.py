"""Layers as records: the nodes of the graph in theory, and those that an engine executed, with their times."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inferlab.model.flops.costs import Costs, NodeCost
from inferlab.profiling.join import ExecutedLayer, Graph, JoinResult
from inferlab.records import Shape
from inferlab.records.profile import FlopsLayer, FlopsProfile, Layer, Uncounted, Work

FALLBACK = "ORT"


def flops_profile(costs: Costs, batch_size: int, shapes: Mapping[str, Shape]) -> FlopsProfile:
    """Operations, parameters and bytes, in all and node by node.

    Parameters and weight bytes count once, however many nodes read them; the intensity is the operations over
    all bytes that the nodes read and write, a weight each time that it is read.
    """
    flops = sum(node.flops or 0 for node in costs.nodes)
    activation_bytes = sum((node.read_bytes or 0) + (node.write_bytes or 0) for node in costs.nodes)
    moved = activation_bytes + sum(node.weight_bytes for node in costs.nodes)
    return FlopsProfile(
        batch_size=batch_size,
        shapes=dict(shapes),
        flops=flops,
        macs=sum(node.macs or 0 for node in costs.nodes),
        by_dtype=_by_dtype(costs),
        params=costs.params,
        weight_bytes=costs.weight_bytes,
        activation_bytes=activation_bytes,
        intensity=flops / moved if moved else None,
        uncounted=_uncounted(costs),
        layers=tuple(_flops_layer(node) for node in costs.nodes),
    )


def moved_bytes(node: NodeCost | FlopsLayer) -> int | None:
    """All bytes that a node reads and writes; None where they are not known."""
    if node.read_bytes is None or node.write_bytes is None:
        return None
    return node.read_bytes + node.weight_bytes + node.write_bytes


def _by_dtype(costs: Costs) -> dict[str, Work]:
    """The types in which anything is computed, the busiest first."""
    flops: Counter[str] = Counter()
    macs: Counter[str] = Counter()
    for node in costs.nodes:
        if node.flops:
            flops[node.dtype] += node.flops
            macs[node.dtype] += node.macs or 0
    return {dtype: Work(count, macs[dtype]) for dtype, count in flops.most_common()}


def _uncounted(costs: Costs) -> tuple[Uncounted, ...]:
    """The operators without a count, the most frequent first."""
    counts = Counter((node.type, node.uncounted) for node in costs.nodes if node.uncounted)
    return tuple(Uncounted(kind, count, reason) for (kind, reason), count in counts.most_common())


def _flops_layer(node: NodeCost) -> FlopsLayer:
    moved = moved_bytes(node)
    return FlopsLayer(
        index=node.index,
        id=node.id,
        type=node.type,
        weight=node.weight,
        nodes=(node.id,),
        dtype=node.dtype,
        flops=node.flops,
        macs=node.macs,
        params=node.params,
        read_bytes=node.read_bytes,
        weight_bytes=node.weight_bytes,
        write_bytes=node.write_bytes,
        intensity=node.flops / moved if node.flops is not None and moved else None,
        zero_fraction=node.zero_fraction,
    )


@dataclass(frozen=True, slots=True)
class TimedLayer:
    """A layer with the nodes that it covers and its time in each process, not rescaled."""

    executed: ExecutedLayer
    nodes: tuple[int, ...]
    times_ms: tuple[float, ...]


def time_layers(
    layers: Sequence[ExecutedLayer], joined: JoinResult, times_ms: Sequence[Sequence[float]]
) -> tuple[TimedLayer, ...]:
    """The layers in their order; those that are a part of another one are added to it."""
    whole = [list(ms) for ms in times_ms]
    for part, home in joined.part_of.items():
        whole[home] = [mine + its for mine, its in zip(whole[home], whole[part], strict=True)]
    return tuple(
        TimedLayer(layer, nodes, tuple(times))
        for number, (layer, nodes, times) in enumerate(zip(layers, joined.nodes, whole, strict=True))
        if number not in joined.part_of
    )


def align(passes: Sequence[Sequence[ExecutedLayer]]) -> tuple[list[ExecutedLayer], list[list[float]]]:
    """The layers of all processes and their times in each, in ms; a layer that did not run takes 0."""
    known: dict[tuple[str, int], int] = {}
    layers: list[ExecutedLayer] = []
    times: list[list[float]] = []
    for number, process in enumerate(passes):
        seen: dict[str, int] = {}
        for layer in process:
            seen[layer.name] = seen.get(layer.name, 0) + 1
            key = (layer.name, seen[layer.name])
            if key not in known:
                known[key] = len(layers)
                layers.append(layer)
                times.append([0.0] * len(passes))
            times[known[key]][number] += layer.ns / 1e6
    return layers, times


def layer_records(
    timed_layers: Sequence[TimedLayer], clean_ms: Sequence[float], ms_per_batch: float, graph: Graph
) -> tuple[Layer, ...]:
    """The layers, rescaled in each process to its clean time, and as a whole to the model's."""
    factors = [
        clean / (sum(layer.times_ms[number] for layer in timed_layers) or 1.0)
        for number, clean in enumerate(clean_ms)
    ]
    scaled = [
        tuple(time * factor for time, factor in zip(layer.times_ms, factors, strict=True))
        for layer in timed_layers
    ]
    medians = [statistics.median(times) for times in scaled]
    # Medians of parts do not add up to the median of the whole.
    factor = ms_per_batch / (sum(medians) or 1.0)
    taken: set[str] = set()
    return tuple(
        _record(number, layer, scaled[number], medians[number] * factor, ms_per_batch, graph, taken)
        for number, layer in enumerate(timed_layers)
    )


def _record(
    index: int,
    layer: TimedLayer,
    times_ms: tuple[float, ...],
    ms: float,
    whole_ms: float,
    graph: Graph,
    taken: set[str],
) -> Layer:
    nodes = [graph.nodes[number] for number in layer.nodes]
    main = max(nodes, key=_cost, default=None)
    weighty = max((node for node in nodes if node.weight), key=_cost, default=None)
    flops = _sum([node.flops for node in nodes])
    return Layer(
        index=index,
        id=_unique(main.id if main else layer.executed.name, taken),
        type=_type(layer.executed, main),
        weight=weighty.weight if weighty else "",
        nodes=tuple(node.id for node in nodes),
        name=layer.executed.name,
        kernel=layer.executed.kernel,
        fallback=layer.executed.fallback,
        ms=ms,
        spread_ms=statistics.stdev(times_ms) if len(times_ms) > 1 else None,
        times_ms=times_ms,
        share=ms / whole_ms if whole_ms else 0.0,
        flops=flops,
        macs=_sum([node.macs for node in nodes]),
        gflops_per_second=flops / ms / 1e6 if flops is not None and ms > 0 else None,
        params=sum(node.params for node in nodes),
        bytes=layer_bytes(layer.nodes, graph),
        zero_fraction=_zero_fraction(nodes),
        prunable=any(node.prunable for node in nodes),
        groups=weighty.groups if weighty else 1,
        dtype=main.dtype if main else "float32",
    )


def _cost(node: NodeCost) -> tuple[int, int]:
    """By its operations, and where they are equal by what it moves."""
    return node.flops or 0, (node.read_bytes or 0) + (node.write_bytes or 0) + node.weight_bytes


def _type(executed: ExecutedLayer, main: NodeCost | None) -> str:
    if executed.fallback:
        return FALLBACK
    return main.type if main else executed.type or executed.name


def _unique(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}#{number}"
    taken.add(name)
    return name


def _sum(values: Sequence[int | None]) -> int | None:
    """Of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _zero_fraction(nodes: Sequence[NodeCost]) -> float | None:
    """Of all their main weights together."""
    counted = [
        (node.zero_fraction, math.prod(node.weight_shape)) for node in nodes if node.zero_fraction is not None
    ]
    elements = sum(size for _, size in counted)
    return sum(zeros * size for zeros, size in counted) / elements if elements else None


def layer_bytes(members: Sequence[int], graph: Graph) -> int | None:
    """What a layer reads and writes; tensors that only its own nodes see stay in registers or caches."""
    inside = set(members)
    total = 0
    for number in members:
        node = graph.nodes[number]
        if node.read_bytes is None or node.write_bytes is None:
            return None
        internal = [tensor for tensor in node.inputs if graph.maker.get(tensor) in inside]
        read = sum(_size(tensor, graph) for tensor in internal)
        outputs = [tensor for tensor in node.outputs if tensor]
        hidden = [
            tensor
            for tensor in outputs
            if tensor not in graph.kept and graph.users.get(tensor) and set(graph.users[tensor]) <= inside
        ]
        written = node.write_bytes * (len(outputs) - len(hidden)) // max(1, len(outputs))
        total += max(0, node.read_bytes - read) + node.weight_bytes + written
    return total if members else None


def _size(tensor: str, graph: Graph) -> int:
    """The bytes of a tensor that a node made; a view has those of what it looks at."""
    seen: set[str] = set()
    while tensor in graph.maker and tensor not in seen:
        seen.add(tensor)
        node = graph.nodes[graph.maker[tensor]]
        if node.write_bytes:
            return node.write_bytes // max(1, len([tensor for tensor in node.outputs if tensor]))
        tensor = next(filter(None, node.inputs), "")
    return 0


def apportion(
    served: Sequence[tuple[Sequence[str], float]], layers: Sequence[Layer], flops: Mapping[str, int]
) -> dict[str, float]:
    """Times of layers that were cut differently, by the ids of these layers.

    `found` are the nodes of each and its time. A time is divided among the layers that share its nodes, by what
    those nodes cost in the layers as they are; what shares none is left out.
    """
    home = {node: layer for layer in layers for node in layer.nodes}
    whole = {layer.id: sum(flops.get(node, 0) + 1 for node in layer.nodes) for layer in layers}
    times = {layer.id: 0.0 for layer in layers if layer.nodes}
    for nodes, ms in served:
        parts: dict[str, float] = {}
        for node in nodes:
            layer = home.get(node)
            if layer is not None:
                part = layer.ms * (flops.get(node, 0) + 1) / whole[layer.id]
                parts[layer.id] = parts.get(layer.id, 0.0) + part
        total = sum(parts.values())
        for name, part in parts.items():
            times[name] += ms * (part / total if total else 1 / len(parts))
    return times
