"""A believable profile made by hand: a MobileNetV2 on an engine that imposes pruning, with everything measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from inferlab.profiling.gains import with_estimate
from inferlab.records import Finding, Machine, Model, OutputCheck, TensorSpec
from inferlab.records.optimization import CHANNEL, Distance, Pruning, Quantization, Recipe
from inferlab.records.profile import (
    FORMAT,
    LEVELS,
    Ceilings,
    ChangedCopy,
    FlopsLayer,
    FlopsProfile,
    Layer,
    LossLayer,
    LossProfile,
    PerformanceProfile,
    Profile,
    PruningEstimate,
    TypeGain,
    Uncounted,
    Verified,
    Work,
    level_key,
)

MACHINE = Machine(
    node="bench-1",
    cpu="Example CPU @ 2.6 GHz",
    architecture="x86_64",
    instruction_sets=("AVX2", "AVX-512", "VNNI"),
    physical_cores=2,
    logical_cpus=4,
    numa_nodes=1,
    memory_bytes=8 * 2**30,
    cpu_quota=None,
    system="Linux 6.1",
)
MODEL = Model(
    kind="onnx",
    source="mobilenet_v2.onnx",
    path="/models/mobilenet_v2.onnx",
    digest="5b0c1f7e9a3d42c8b6e1d0f2a4c68e9b1d3f5a7c9e0b2d4f6a8c0e2d4f6a8b0c",
    inputs=(TensorSpec("input", "float32", ("batch", 3, 224, 224)),),
    outputs=(TensorSpec("output", "float32", ("batch", 1000)),),
    size_bytes=13_964_571,
    opset=17,
    parameters=3_487_816,
    zero_fraction=0.0,
)
#: Expansion, channels, repeats, stride of MobileNetV2's stages.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
_BUDGET = 0.05


def _nodes() -> list[tuple[str, str, int, int, int, int]]:
    """Type, weight, MACs, parameters, elements moved and groups, in the order of execution."""
    found: list[tuple[str, str, int, int, int, int]] = []

    def conv(name: str, before: int, after: int, kernel: int, size: int, groups: int = 1, stride: int = 1) -> int:
        out = size // stride
        weights = after * before // groups * kernel * kernel
        moved = before * size * size + after * out * out
        found.append(("Conv", f"{name}.weight", weights * out * out, weights + after, moved, groups))
        return out

    size, channels = conv("features.0.0", 3, 32, 3, 224, stride=2), 32
    block = 1
    for expand, after, repeats, stride in _STAGES:
        for again in range(repeats):
            wide, step = channels * expand, stride if again == 0 else 1
            name = f"features.{block}.conv"
            if expand > 1:
                conv(f"{name}.0.0", channels, wide, 1, size)
            size = conv(f"{name}.1.0", wide, wide, 3, size, groups=wide, stride=step)
            conv(f"{name}.2", wide, after, 1, size)
            if again:
                found.append(("Add", "", 0, 0, 3 * after * size * size, 1))
            channels, block = after, block + 1
    conv("features.18.0", channels, 1280, 1, size)
    found.append(("GlobalAveragePool", "", 0, 0, 1280 * size * size, 1))
    found.append(("Flatten", "", 0, 0, 2560, 1))
    found.append(("Gemm", "classifier.1.weight", 1_280_000, 1_281_000, 2_280, 1))
    found.append(("Softmax", "", 0, 0, 2000, 1))
    return found


def _flops(kind: str, macs: int, moved: int) -> int | None:
    return {"Conv": 2 * macs, "Gemm": 2 * macs, "Flatten": 0, "Softmax": None}.get(kind, moved)


def a_flops_profile() -> FlopsProfile:
    """The architecture alone, its Softmax uncounted."""
    layers = []
    for index, (kind, weight, macs, params, moved, _) in enumerate(_nodes()):
        flops, weight_bytes = _flops(kind, macs, moved), 4 * params
        layers.append(
            FlopsLayer(
                index=index,
                id=str(300 + index),
                type=kind,
                weight=weight,
                nodes=(str(300 + index),),
                dtype="float32",
                flops=flops,
                macs=None if flops is None else macs,
                params=params,
                read_bytes=2 * moved,
                weight_bytes=weight_bytes,
                write_bytes=2 * moved,
                intensity=None if flops is None else flops / (4 * moved + weight_bytes),
                zero_fraction=0.0 if weight else None,
            )
        )
    flops, macs = sum(layer.flops or 0 for layer in layers), sum(layer.macs or 0 for layer in layers)
    weight_bytes = sum(layer.weight_bytes for layer in layers)
    moved_bytes = sum((layer.read_bytes or 0) + (layer.write_bytes or 0) for layer in layers)
    return FlopsProfile(
        batch_size=1,
        shapes={"input": (1, 3, 224, 224)},
        flops=flops,
        macs=macs,
        by_dtype={"float32": Work(flops, macs)},
        params=sum(layer.params for layer in layers),
        weight_bytes=weight_bytes,
        activation_bytes=moved_bytes,
        intensity=flops / (moved_bytes + weight_bytes),
        uncounted=(Uncounted("Softmax", 1, "its cost depends on the library's exponential"),),
        layers=tuple(layers),
    )


def _layers() -> list[Layer]:
    rows = []
    for index, (kind, weight, macs, params, moved, groups) in enumerate(_nodes()):
        flops, prunable, fallback = _flops(kind, macs, moved), bool(weight), kind in ("Flatten", "Softmax")
        speed = 18.0 if groups > 1 else 60.0  # GFLOP/s
        ms = round(max(2 * macs / speed, 4 * (moved + params) / 9.0) / 1e6 + 0.004, 6)
        # Pruning saves of a plain convolution what its zeros would have cost, less a part that stays.
        gain = 0.75 if prunable and groups == 1 and index else 0.0
        pruned = {level_key(level): round(ms * (1 - gain * level**2), 6) for level in LEVELS}
        size = 4 * (moved + params)
        rows.append(
            Layer(
                index=index,
                id=str(300 + index),
                type="ORT" if fallback else kind,
                weight=weight,
                nodes=(str(300 + index), f"relu_{index}") if kind == "Conv" else (str(300 + index),),
                name=f"{kind.lower()}_{index}",
                kernel={"Conv": "dw_avx512" if groups > 1 else "gemm_avx512", "Gemm": "gemm_avx512"}.get(kind, ""),
                fallback=fallback,
                ms=ms,
                spread_ms=round(0.03 * ms, 6),
                times_ms=(ms, round(1.03 * ms, 6), round(0.97 * ms, 6)),
                share=0.0,
                flops=flops,
                macs=None if flops is None else macs,
                gflops_per_second=flops / ms / 1e6 if flops else None,
                params=params,
                bytes=size,
                zero_fraction=0.0 if weight else None,
                prunable=prunable,
                groups=groups,
                pruned=pruned,
                int8_ms=round(ms * (0.45 if prunable else 1.0), 6),
                bound="memory" if groups > 1 or not prunable else "compute",
                of_limit=0.9 if groups > 1 else 0.7,
            )
        )
    total = sum(row.ms for row in rows)
    return [replace(row, share=row.ms / total) for row in rows]


def a_performance_profile(**changes: Any) -> PerformanceProfile:
    """Measured on DeepSparse, with every level imposed, INT8 and ceilings."""
    layers = _layers()
    ms = sum(layer.ms for layer in layers)
    found = PerformanceProfile(
        name="baseline",
        engine="deepsparse",
        versions={"deepsparse": "1.8.0", "numpy": "1.26.4"},
        settings={"scheduler": "single_stream", "time_s": 10.0, "processes": 3},
        batch_size=1,
        num_cores=2,
        instruction_sets=("AVX-512", "VNNI"),
        shapes={"input": (1, 3, 224, 224)},
        measured_at="2026-11-17T00:40:00+00:00",
        machine=MACHINE,
        ms_per_batch=ms,
        ms_interval=(0.97 * ms, 1.03 * ms),
        items_per_second=1000 / ms,
        items_interval=(1000 / ms / 1.03, 1000 / ms / 0.97),
        processes_ms=(ms, 1.02 * ms, 0.98 * ms),
        layers_sum_ms=1.02 * ms,
        profiler_overhead=0.06,
        unattributed_share=0.012,
        output_check=OutputCheck("match", 2.1e-6, "max", 1e-3, "onnxruntime 1.31.1"),
        findings=(Finding("waited-for-cpu", {"share": 0.04, "touched": 2, "windows": 12}),),
        layers=tuple(layers),
        pruning="imposed",
        pruned={level_key(level): sum(layer.pruned[level_key(level)] for layer in layers) for level in LEVELS},
        int8_ms_per_batch=sum(layer.int8_ms or 0.0 for layer in layers),
        ceilings=Ceilings(2, 110.0, 400.0, 14.0),
    )
    return replace(found, **changes)


def a_loss_profile(**changes: Any) -> LossProfile:
    """One-shot, without data; early and grouped layers are sensitive, and one output was not a number."""
    layers: list[LossLayer] = []
    for index, (kind, weight, _, params, _, groups) in enumerate(_nodes()):
        if not weight:
            continue
        scale = (3.0 if groups > 1 else 0.6) / (1 + 0.15 * len(layers))
        losses: dict[str, float | None] = {level_key(level): round(scale * level**3, 8) for level in LEVELS}
        if not layers:
            losses["0.99"] = None
        layers.append(
            LossLayer(
                index=index,
                id=str(300 + index),
                type=kind,
                weight=weight,
                params=params,
                groups=groups,
                zero_fraction=0.0,
                sensitivity=round(scale / 4, 8),
                losses=losses,
            )
        )
    found = LossProfile(
        name="baseline",
        method="one-shot",
        metric="relative power",
        items=8,
        dense_loss=None,
        dense_accuracy=None,
        params=sum(layer.params for layer in layers),
        prunable_params=sum(layer.params for layer in layers if layer.groups == 1),
        average_sensitivity=math.fsum(layer.sensitivity or 0.0 for layer in layers) / len(layers),
        layers=tuple(layers),
        left_out={"features.0.1.running_mean": "it is no weight of a layer"},
        seconds=7.5,
    )
    return replace(found, **changes)


def an_estimate(performance: PerformanceProfile, **changes: Any) -> PruningEstimate:
    """Plain convolutions but the first at 0.8, verified."""
    levels = {
        layer.weight: 0.8 for layer in performance.layers if layer.prunable and layer.groups == 1 and layer.index
    }
    after = {
        layer.index: layer.pruned["0.8"] if layer.weight in levels else layer.ms for layer in performance.layers
    }
    types = sorted({layer.type for layer in performance.layers})
    total = sum(after.values())
    found = PruningEstimate(
        budget=_BUDGET,
        loss=0.043,
        gained="time",
        levels=levels,
        ms_per_batch=performance.ms_per_batch,
        estimated_ms_per_batch=total,
        estimated_speedup=performance.ms_per_batch / total,
        by_type=tuple(
            TypeGain(
                kind,
                sum(layer.ms for layer in performance.layers if layer.type == kind),
                sum(after[layer.index] for layer in performance.layers if layer.type == kind),
            )
            for kind in types
        ),
        parameter_reduction=0.74,
        recovery=0.957,
        verified=Verified(
            ms_per_batch=1.04 * total,
            ms_interval=(1.01 * total, 1.07 * total),
            baseline_ms_per_batch=1.01 * performance.ms_per_batch,
            error=1 / 1.04 - 1,
            loss=0.051,
            output_check=OutputCheck("unchecked", detail="pruning changes the outputs"),
        ),
    )
    return replace(found, **changes)


def a_profile(**changes: Any) -> Profile:
    """Everything that a profile may hold, but for what is said."""
    performance = a_performance_profile()
    estimate = an_estimate(performance)
    performance = replace(
        performance,
        estimated_ms_per_batch=estimate.estimated_ms_per_batch,
        estimated_speedup=estimate.estimated_speedup,
    )
    found = Profile(
        format=FORMAT,
        inferlab="0.0.0",
        created_at="2026-11-17T00:41:00+00:00",
        model=MODEL,
        flops=a_flops_profile(),
        performance=performance,
        loss=a_loss_profile(),
        estimate=estimate,
        id="profile-1",
    )
    return replace(found, **changes)


def with_copies(profile: Profile, budget: float = 0.1) -> Profile:
    """The same profile with copies in INT8, half as slow, without 25 % and 50 % of the channels, and with both."""
    assert profile.performance is not None
    layers = tuple(replace(layer, pruned={}, int8_ms=0.5 * layer.ms) for layer in profile.performance.layers)
    int8 = Recipe(quantization=Quantization("static", calibration_items=8))
    recipes = [(int8, 0.5, 0.01), *((_without_channels(share), (1 - share) ** 2, share) for share in (0.25, 0.5))]
    recipes.append((replace(int8, pruning=_without_channels(0.5).pruning), 0.125, 0.51))
    copies = tuple(
        ChangedCopy(
            recipe,
            part * profile.performance.ms_per_batch,
            {layer.id: part * layer.ms for layer in layers},
            Distance(loss, 8, generated=True),
        )
        for recipe, part, loss in recipes
    )
    performance = replace(profile.performance, layers=layers, pruned={}, pruning="", copies=copies)
    performance = replace(performance, int8_ms_per_batch=copies[0].ms_per_batch)
    return with_estimate(replace(profile, performance=performance), budget)


def _without_channels(share: float) -> Recipe:
    return Recipe(pruning=Pruning(share, pattern=CHANNEL, layers={"features.1.conv.2.weight": share}))


def with_layers(profile: Profile, layers: Sequence[Layer]) -> Profile:
    """The same profile with other measured layers."""
    assert profile.performance is not None
    return replace(profile, performance=replace(profile.performance, layers=tuple(layers)))


def repeated(profile: Profile, times: int) -> Profile:
    """The same layers over and over: a profile of a deep model."""
    assert profile.performance is not None and profile.loss is not None and profile.flops is not None
    layers = profile.performance.layers

    def name(weight: str, again: int) -> str:
        return f"stack.{again}.{weight}" if weight else ""

    return replace(
        with_layers(
            profile,
            [
                replace(
                    layer,
                    index=again * len(layers) + layer.index,
                    weight=name(layer.weight, again),
                    id=f"{layer.id}_{again}",
                    share=layer.share / times,
                )
                for again in range(times)
                for layer in layers
            ],
        ),
        flops=replace(
            profile.flops,
            layers=tuple(
                replace(layer, index=again * len(layers) + layer.index, weight=name(layer.weight, again))
                for again in range(times)
                for layer in profile.flops.layers
            ),
        ),
        loss=replace(
            profile.loss,
            layers=tuple(
                replace(layer, index=again * len(layers) + layer.index, weight=name(layer.weight, again))
                for again in range(times)
                for layer in profile.loss.layers
            ),
        ),
    )
