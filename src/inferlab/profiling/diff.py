"""Two profiles of one model, layer by layer: which layers differ, by how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inferlab.errors import BadInput
from inferlab.measure import intervals
from inferlab.records import Estimate
from inferlab.records.comparison import Verdict
from inferlab.records.profile import Layer, PerformanceProfile, Profile
from inferlab.units import plural

# Layers of two engines are never alike to the last per cent.
MARGIN = 0.05
# So often may one of all rows be called different where nothing is.
_ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Row:
    """What covers the same nodes in both profiles: one layer or several on either side."""

    #: Of the side's slowest layer, A's where it has one.
    id: str
    type: str
    a: tuple[Layer, ...]
    b: tuple[Layer, ...]
    #: Time per item, in milliseconds.
    a_ms: float
    b_ms: float
    #: B's time over A's; None where only one side has a time.
    ratio: Estimate | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class LayerDiff:
    """Two performance profiles side by side, the largest difference first."""

    labels: tuple[str, str]
    a_ms: float
    b_ms: float
    #: Over the whole model, time per item.
    ratio: Estimate
    verdict: Verdict
    margin: float
    rows: tuple[Row, ...]
    #: In what else the two differ.
    differences: tuple[str, ...]


def diff(a: Profile, b: Profile, margin: float = MARGIN) -> LayerDiff:
    """How B's layers compare with A's; times are those per item, so that batches can be compared."""
    first, other = _performance(a, "first"), _performance(b, "second")
    groups = _matched(first.layers, other.layers)
    level = 1 - _ALPHA / max(1, len(groups))
    rows = [_row(pair, (first.batch_size, other.batch_size), level, margin) for pair in groups]
    ratio = intervals.welch(
        [ms / first.batch_size for ms in first.processes_ms],
        [ms / other.batch_size for ms in other.processes_ms],
        1 - intervals.ALPHA,
    )
    return LayerDiff(
        labels=(_label(first), _label(other)),
        a_ms=first.ms_per_batch / first.batch_size,
        b_ms=other.ms_per_batch / other.batch_size,
        ratio=ratio,
        verdict=intervals.verdict(ratio, margin),
        margin=margin,
        rows=tuple(sorted(rows, key=lambda row: -abs(row.b_ms - row.a_ms))),
        differences=tuple(_differences(a, b, first, other)),
    )


def _performance(profile: Profile, which: str) -> PerformanceProfile:
    if profile.performance is None:
        raise BadInput(
            f"The {which} of the two profiles has no measured layers to compare. Make it with --performance."
        )
    return profile.performance


def _matched(a: Sequence[Layer], b: Sequence[Layer]) -> list[tuple[list[Layer], list[Layer]]]:
    """Layers that share nodes, directly or through others, belong together: engines fuse in their own ways."""
    roots: dict[object, object] = {}

    def root(key: object) -> object:
        while roots.setdefault(key, key) != key:
            roots[key] = roots[roots[key]]
            key = roots[key]
        return key

    for side, layers in enumerate((a, b)):
        for layer in layers:
            # What covers no node was added by the engine; of the same name on both sides it is the same.
            for node in layer.nodes or (("added", layer.type, layer.id),):
                roots[root(("layer", side, layer.index))] = root(node)
    matched: dict[object, tuple[list[Layer], list[Layer]]] = {}
    for side, layers in enumerate((a, b)):
        for layer in layers:
            matched.setdefault(root(("layer", side, layer.index)), ([], []))[side].append(layer)
    return list(matched.values())


def _row(pair: tuple[list[Layer], list[Layer]], batches: tuple[int, int], level: float, margin: float) -> Row:
    slowest = max(pair[0] or pair[1], key=lambda layer: layer.ms)
    sums = [[sum(times) / batch for times in zip(*(layer.times_ms for layer in side), strict=False)]
            for side, batch in zip(pair, batches, strict=True)]  # fmt: skip
    positive = all(sums) and all(time > 0 for side in sums for time in side)
    ratio = intervals.welch(sums[0], sums[1], level) if positive else None
    a_ms, b_ms = (sum(layer.ms for layer in side) / batch for side, batch in zip(pair, batches, strict=True))
    verdict = intervals.verdict(ratio, margin) if ratio else "inconclusive"
    return Row(slowest.id, slowest.type, tuple(pair[0]), tuple(pair[1]), a_ms, b_ms, ratio, verdict)


def _label(profile: PerformanceProfile) -> str:
    return f"{profile.name}: {profile.engine}, batch {profile.batch_size}, {plural(profile.num_cores, 'core')}"


def _differences(a: Profile, b: Profile, first: PerformanceProfile, other: PerformanceProfile) -> list[str]:
    pairs = {
        "model": (a.model.source, b.model.source) if a.model.digest != b.model.digest else ("", ""),
        "engine": (first.engine, other.engine),
        "versions": (_versions(first), _versions(other)) if first.engine == other.engine else ("", ""),
        "batch size": (first.batch_size, other.batch_size),
        "cores": (first.num_cores, other.num_cores),
        "CPU": (first.machine.cpu, other.machine.cpu),
        "machine": (first.machine.node, other.machine.node),
    }
    return [f"{name}: {left} and {right}" for name, (left, right) in pairs.items() if left != right]


def _versions(profile: PerformanceProfile) -> str:
    return ", ".join(f"{name} {version}" for name, version in profile.versions.items())
