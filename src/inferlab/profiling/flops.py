"""The FLOPS profile: what the architecture alone says, out of the costs of its nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from inferlab.model.flops.costs import Costs, NodeCost
from inferlab.records import Shape
from inferlab.records.profile import FlopsLayer, FlopsProfile, Uncounted, Work


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
        layers=tuple(_layer(node) for node in costs.nodes),
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


def _layer(node: NodeCost) -> FlopsLayer:
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
