"""Write a copy of an ONNX model with fewer bits, by ONNX Runtime's quantisers, and run it once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from inferlab import machine
from inferlab.child import protocol
from inferlab.errors import BadInput, EngineRefused
from inferlab.model.confined import confined
from inferlab.model.inputs import make_inputs
from inferlab.model.onnx_file import parse_onnx, place_beside, read_onnx
from inferlab.model.onnx_graph import SAME_VALUES, external_files, fed_inputs, first_output
from inferlab.model.shapes import resolve
from inferlab.records import Event, Listener, Model, ignore
from inferlab.records.optimization import Quantization
from inferlab.transform.copies import Copy, refuse_nan, staged, target_of
from inferlab.worker import ONNXRUNTIME, Worker, timeout_s

Inputs = Sequence[Mapping[str, np.ndarray[Any, Any]]]

_PATIENCE_S = 3600.0
_SCHEMES = {"static": "INT8", "dynamic": "INT8", "weights": "INT{bits}", "fp16": "FP16"}
_STATIC = Quantization("static")
# What ONNX Runtime adds to the name of a product that it has put a sum into.
_FUSED = "/MatMulAddFusion"


def quantize(
    model: Model,
    inputs: Inputs,
    folder: Path,
    wanted: Quantization = _STATIC,
    listener: Listener = ignore,
) -> Copy:
    """Write the copy into `folder`; what it excludes, nodes by name, first output or weight, stays as it is.

    static: weights in INT8, activations in UINT8 with ranges as on `inputs` (QuantizeLinear, DequantizeLinear).
    dynamic: ranges of activations are found while it runs. weights: products of matrices keep their weights in
    8 or 4 bits and compute in floats. fp16: half precision inside, inputs and outputs as they were.

    Operators that cannot be quantised stay as they are and are named. The copy is run before it is there, on a set
    of inputs, made up where none are given. With a reduced range, by default where the CPU here needs it, INT8
    weights have 7 bits.
    """
    *_, copy = quantizing(model, inputs, folder, wanted, listener)
    assert copy is not None, "the last is the copy"
    return copy


def quantizing(
    model: Model, inputs: Inputs, folder: Path, wanted: Quantization, listener: Listener = ignore
) -> Iterator[Copy | None]:
    """The same step by step: None while a child quantises, which mostly takes one core; then the copy."""
    target = target_of(model, folder, "quantised")
    _refuse_what_cannot_be(model, wanted)
    if wanted.scheme == "static" and not inputs:
        raise BadInput("Quantising needs at least one set of inputs to find the ranges of values with.")
    if not inputs:
        inputs = [make_inputs(model.inputs, resolve(model.inputs, None, None, {}).shapes, 0)]
    options: dict[str, Any] = {
        "scheme": wanted.scheme,
        "per_channel": wanted.per_channel,
        "bits": wanted.bits,
        "reduce_range": needs_reduced_range() if wanted.reduce_range is None else wanted.reduce_range,
    }
    what = _SCHEMES[wanted.scheme].format(bits=wanted.bits)

    def tell(fraction: float | None) -> None:
        listener(Event("quantizing", {"model": model.source, "precision": what}, fraction))

    with staged(target, what) as out:
        prepared = _write_named(model, wanted.exclude, out.parent / "named")
        options["exclude"] = prepared.excluded
        source = out.parent / "named" / Path(model.path).name
        try:
            left_alone = yield from _in_child(model, inputs, source, out / target.name, options, tell)
        except EngineRefused:
            raise
        except BadInput as error:
            raise EngineRefused(f"No {what} copy of {model.source} could be made. {error}") from error
    tell(1.0)
    reasons = {key.removesuffix(_FUSED): reason for key, reason in left_alone.items()}
    yield Copy(
        read_onnx(target, str(target)), {prepared.named.get(key, key): reason for key, reason in reasons.items()}
    )


@dataclass(frozen=True, slots=True)
class _Named:
    """What nodes with new names stand for, and the names of those that are not to be quantised."""

    named: dict[str, str]
    excluded: list[str]


@confined(reads=["model"], writes=["folder"])
def _write_named(model: Model, exclude: Sequence[str], folder: Path) -> _Named:
    """Write the graph with names that tell its nodes apart into a folder of its own, where its data is too."""
    original = Path(model.path)
    proto = parse_onnx(original)
    refuse_nan(proto, original, "quantised")
    named = _Named(_named(proto), _excluded(proto, exclude))
    for file in external_files(proto, original.parent, original):
        # A copy: onnx reads no data through links, hard ones either.
        place_beside(file, folder / file.relative_to(original.parent), copy=True)
    (folder / original.name).write_bytes(proto.SerializeToString())
    return named


def needs_reduced_range() -> bool:
    """Whether sums of products of 8 bits could overflow here: the CPU has no INT8 dot products (VNNI)."""
    return not machine.has_vnni(machine.describe().instruction_sets)


def _refuse_what_cannot_be(model: Model, wanted: Quantization) -> None:
    """Whether there is such a scheme with such settings, and whether the model is not there already."""
    scheme, bits = wanted.scheme, wanted.bits
    if scheme not in _SCHEMES:
        raise BadInput(f"There is no quantisation scheme '{scheme}'. There are: {', '.join(_SCHEMES)}.")
    if bits not in ((8, 4) if scheme == "weights" else (8,)):
        raise BadInput(
            f"The scheme {scheme} cannot have {bits} bits: weights can be of 8 or 4, all others are of 8."
        )
    if not wanted.per_channel and scheme in ("weights", "fp16"):
        raise BadInput(
            f"The scheme {scheme} has no scale for a whole tensor. Leave the setting out, or choose INT8."
        )
    if model.quantization or model.precision not in ("FP32", "FP64", "FP16", "BF16"):
        raise BadInput(f"{model.source} is quantised already ({model.quantization or model.precision}).")
    if scheme == "fp16" and model.precision == "FP16":
        raise BadInput(f"{model.source} is in FP16 already.")


def _named(proto: ModelProto) -> dict[str, str]:
    """Give nodes names that tell them apart where theirs do not; what each stands for: its first output.

    Constants that old models list among their inputs are taken off that list: they are not quantised there.
    """
    graph = proto.graph
    seen: set[str] = set()
    names_taken = {node.name for node in graph.node}
    named: dict[str, str] = {}
    for node in graph.node:
        if not node.name or node.name in seen:
            output = first_output(node, node.op_type)
            node.name = _free(output, names_taken)
            names_taken.add(node.name)
            named[node.name] = output
        seen.add(node.name)
    fed = fed_inputs(graph)
    if len(fed) < len(graph.input):
        proto.ir_version = max(proto.ir_version, 4)
        del graph.input[:]
        graph.input.extend(fed)
    return named


def _free(name: str, taken: Iterable[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _excluded(proto: ModelProto, exclude: Sequence[str]) -> list[str]:
    """The names of the nodes that are meant by their name, their first output or a weight that they read."""
    excluded: dict[str, None] = {}
    for identifier in exclude:
        nodes = [
            node.name
            for node in proto.graph.node
            if node.op_type != "Constant" and identifier in (node.name, first_output(node))
        ] or _readers(proto, identifier)
        if not nodes:
            raise BadInput(
                f"The model has no node and no weight '{identifier}' that could be excluded from quantising."
            )
        excluded.update(dict.fromkeys(nodes))
    return list(excluded)


def _readers(proto: ModelProto, weight: str) -> list[str]:
    """The nodes that read a weight, also where it is only turned or reshaped on its way, those on the way too."""
    names, nodes = {weight}, []
    for node in proto.graph.node:
        if names & set(node.input):
            nodes.append(node.name)
            if node.op_type in SAME_VALUES:
                names.update(node.output)
    return nodes


def _in_child(
    model: Model,
    inputs: Inputs,
    named: Path,
    out: Path,
    options: Mapping[str, Any],
    tell: Callable[[float | None], None],
) -> Generator[None, None, dict[str, str]]:
    """Prepare, quantise and check in a child; what was left alone, by the names of nodes, and why.

    It yields while the child quantises.
    """
    packed, blocks = protocol.pack_sets(inputs, None)
    prepared = str(named)
    steps: list[tuple[float | None, str, dict[str, Any]]] = []
    if options["scheme"] != "fp16":
        # Beside the model's data files, to which it may still point.
        prepared = str(named.with_name(".prepared.onnx"))
        steps.append((None, "quantize", {"step": "prepare", "model": str(named), "out": prepared, **options}))
    quantization = {
        "step": "quantize",
        "model": prepared,
        "original": model.path,
        "out": str(out),
        **options,
        **packed,
    }
    steps += [
        (0.2, "quantize", quantization),
        (0.8, "onnx_files.check_copy", {"model": model.path, "copy": str(out), **packed}),
    ]
    left_alone: dict[str, str] = {}
    launch = replace(ONNXRUNTIME, reads=(model.path,), writes=(str(named.parent), str(out.parent)))
    with Worker(launch, patience_s=timeout_s(_PATIENCE_S)) as worker:
        for fraction, task, arguments in steps:
            tell(fraction)
            worker.send("task", blocks, task=task, arguments=arguments)
            if arguments is quantization:
                yield
            answer = worker.wait("task").data
            left_alone.update(answer.get("left_alone", {}))
    return left_alone
