"""Write a PyTorch model as ONNX and compare the file, in ONNX Runtime, with eager PyTorch."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from ..engines.base import BadOption
from ..engines.torch import files, folders, program_arguments
from ..protocol import Answer, unpack_arrays
from .onnx_files import session

# Both exporters write a 3-layer BERT rightly; what the older one writes runs in 0.83 of the time on ONNX Runtime,
# in 0.98 on OpenVINO, and takes any opset from 7 on. A torch.export program has no module left to trace.
_EXPORTERS = {
    "transformers": ("torchscript", "dynamo"),
    "torch-export": ("dynamo",),
    "torchscript": ("torchscript",),
}
_OPSETS = {"torchscript": 17, "dynamo": 18}
# A protocol buffer cannot be larger than 2 GiB.
_LARGEST_FILE_BYTES = 2_000_000_000


class Source(NamedTuple):
    """A model that can be called, two sets of inputs of different sizes, and which of their axes are dynamic."""

    module: Any
    #: The torch.export program; None for a module.
    program: Any
    sets: List[Dict[str, Any]]
    axes: Dict[str, Dict[int, str]]
    #: Puts inputs by name into positional and keyword arguments.
    arrange: Callable[[Dict[str, Any]], Tuple[Any, Dict[str, Any]]]

    def run(self, inputs: Dict[str, Any]) -> Dict[str, Any]:
        """The outputs of eager PyTorch by name, those that are tensors."""
        args, kwargs = self.arrange(inputs)
        named = files.flatten(self.module(*args, **kwargs))
        tensors = {name: value for name, value in named.items() if hasattr(value, "detach")}
        if list(tensors) == ["0"]:
            return {"output": tensors["0"]}
        # ONNX has no names that begin with a digit.
        return {"output_" + name if name[0].isdigit() else name: value for name, value in tensors.items()}


def run(arguments: Dict[str, Any], blocks: List[bytes]) -> Answer:
    """Export, check, and describe what was written; of several exporters, the first whose outputs are right."""
    import torch

    torch.manual_seed(0)
    kind, choice = arguments["kind"], arguments["exporter"]
    openers = {"transformers": _open_transformers, "torch-export": _open_program, "torchscript": _open_script}
    source = openers[kind](arguments, unpack_arrays(arguments["arrays"], blocks))
    problems: List[str] = []
    for exporter in _EXPORTERS[kind] if choice == "auto" else (choice,):
        try:
            written = _export(source, exporter, arguments)
        except BadOption as problem:
            problems.append("{}: {}".format(exporter, problem))
            continue
        if written["error"] <= arguments["tolerance"] or exporter == _EXPORTERS[kind][-1] or choice != "auto":
            return written, []
        problems.append("{}: wrong by {:.3g}".format(exporter, written["error"]))
    raise BadOption("the model cannot be exported to ONNX ({})".format("; ".join(problems)))


def _export(source: Source, exporter: str, arguments: Dict[str, Any]) -> Dict[str, Any]:
    import numpy
    import torch

    opset = arguments["opset"] or _OPSETS[exporter]
    dynamic = source.axes if arguments["dynamic"] or source.program is not None else {}
    sets = source.sets if any(dynamic.values()) else source.sets[:1] * 2
    with torch.no_grad():
        try:
            expected = [source.run(inputs) for inputs in sets]
        except Exception as error:
            raise BadOption("eager PyTorch cannot run it: {}".format(files.reason(error))) from error
        for outputs in expected:
            if not all(
                bool(torch.isfinite(value).all()) for value in outputs.values() if value.is_floating_point()
            ):
                raise BadOption("eager PyTorch itself computes values that are not finite")
        output_axes = _output_axes(source.sets, dynamic, expected)
        try:
            _write(source, exporter, arguments["out"], opset, dynamic, output_axes, list(expected[0]))
        except Exception as error:
            raise BadOption(files.reason(error)) from error
    written_opset = _tidy(arguments["out"], {**dynamic, **output_axes})
    if written_opset != opset:
        raise BadOption("opset {} was asked for, but it can only write opset {}".format(opset, written_opset))
    errors = [_error(arguments["out"], *pair) for pair in zip(sets, expected)]
    weights = files.describe_weights(list(source.module.parameters()))
    first, last = sets[0], expected[0]
    return {
        "exporter": exporter,
        "opset": opset,
        "error": max(errors) if all(numpy.isfinite(errors)) else 1e308,
        "precision": weights["precision"],
        "inputs": [_spec(name, first[name], dynamic.get(name, {})) for name in first],
        "outputs": [_spec(name, last[name], output_axes.get(name, {})) for name in last],
    }


def _open_transformers(arguments: Dict[str, Any], _: Dict[str, Any]) -> Source:
    """A Hugging Face folder."""
    import torch

    folder = arguments["source"]
    if folders.is_int8(folder):
        raise BadOption(
            "{} is an INT8 copy for the engine torch; export the folder it was made from".format(folder)
        )
    # Plain attention, because engines find and fuse its pattern better than that of torch's own operator.
    module = folders.read_folder(folder, dtype=torch.float32, attn_implementation="eager")
    described = folders.describe_inputs(module)
    sets = [_padded(described, *sizes) for sizes in _sizes(arguments, module)]
    axes = {
        spec["name"]: {axis: dim for axis, dim in enumerate(spec["dims"]) if isinstance(dim, str)}
        for spec in described
    }
    return Source(module, None, sets, axes, lambda inputs: ((), inputs))


def _sizes(arguments: Dict[str, Any], module: Any) -> List[Tuple[int, int]]:
    """Two pairs of batch size and sequence length, within the position table."""
    batch, length = arguments["batch_size"], arguments["sequence_length"]
    most = folders.longest_sequence(module) or 1 << 30
    if length > most:
        raise BadOption("a sequence of {} does not fit; the model takes at most {}".format(length, most))
    other = length + max(1, length // 2)
    return [(batch, length), (batch + 1, other if other <= most else max(1, length - 1))]


def _padded(described: List[Dict[str, Any]], batch: int, length: int) -> Dict[str, Any]:
    """Inputs with some padding, so that the mask is checked too."""
    inputs = folders.make_inputs(described, batch, length)
    if "attention_mask" in inputs:
        inputs["attention_mask"][0, length - length // 4 :] = 0
    return inputs


def _open_program(arguments: Dict[str, Any], _: Dict[str, Any]) -> Source:
    import torch

    program = files.read_exported(arguments["source"])
    module = program.module().requires_grad_(False)
    given = [program_argument for program_argument in program_arguments(program) if program_argument.given]
    examples = torch.utils._pytree.tree_leaves(program.example_inputs) if program.example_inputs else []
    if len(examples) != len(given):
        raise BadOption("the program was saved without its sample inputs; export the module again")
    first = {argument.name: value for argument, value in zip(given, examples) if argument.name}
    names = files.symbol_names(files.program_inputs(program))
    axes: Dict[str, Dict[int, str]] = {}
    for node in files.program_inputs(program):
        shape = enumerate(node.meta["val"].shape)
        axes[node.name] = {axis: names.get(str(dim), str(dim)) for axis, dim in shape if not isinstance(dim, int)}

    def arrange(inputs: Dict[str, Any]) -> Tuple[Any, Dict[str, Any]]:
        leaves = [inputs[argument.name] if argument.name else argument.value for argument in given]
        args, kwargs = torch.utils._pytree.tree_unflatten(leaves, program.call_spec.in_spec)
        return tuple(args), kwargs

    source = Source(module, program, [first], axes, arrange)
    return source._replace(sets=[first, _resized(source)])


def _open_script(arguments: Dict[str, Any], arrays: Dict[str, Any]) -> Source:
    import torch

    module = files.read_torchscript(arguments["source"])
    described = files.describe_script(module)["inputs"]
    sizes = (arguments["batch_size"], arguments["sequence_length"])
    first = {}
    for spec in described:
        if spec["name"] in arrays:
            first[spec["name"]] = torch.from_numpy(arrays[spec["name"]])
        elif spec["dtype"] == "int64":
            first[spec["name"]] = torch.randint(0, spec["below"] or 2, sizes)
        else:
            raise BadOption(
                "TorchScript does not say what shape its input '{0}' has; give an example: "
                "inferlab.export_to_onnx(path, out, inputs={{'{0}': array}})".format(spec["name"])
            )
    axes = {name: dict(enumerate(("batch", "sequence")[: _dynamic_rank(value)])) for name, value in first.items()}
    source = Source(module, None, [first], axes, lambda inputs: (tuple(inputs.values()), {}))
    return source._replace(sets=[first, _resized(source)])


def _dynamic_rank(value: Any) -> int:
    """The batch, and for texts (whole numbers in two dimensions) the sequence."""
    return 2 if value.dim() == 2 and not value.is_floating_point() else min(1, value.dim())


def _resized(source: Source) -> Dict[str, Any]:
    """Inputs whose dynamic axes have other sizes, if the model takes them; else the same once more."""
    import torch

    first = source.sets[0]
    sizes = {label: first[name].shape[axis] for name, axes in source.axes.items() for axis, label in axes.items()}
    for other in (
        {label: size + 1 for label, size in sizes.items()},
        {label: size * 2 for label, size in sizes.items()},
    ):
        second = {}
        for name, value in first.items():
            for axis, label in source.axes.get(name, {}).items():
                # Values that were possible stay possible.
                value = torch.index_select(value, axis, torch.arange(other[label]) % value.shape[axis])
            second[name] = torch.randn_like(value) if value.is_floating_point() else value
        # Sizes that the model does not take (its guards, multiples of something) are no fault of the export.
        with contextlib.suppress(Exception), torch.no_grad():
            source.run(second)
            return second
    return first


def _output_axes(
    sets: List[Dict[str, Any]], dynamic: Dict[str, Dict[int, str]], outputs: List[Dict[str, Any]]
) -> Dict[str, Dict[int, str]]:
    """The axes of the outputs that change with the inputs, named as the input axis of the same sizes."""
    known = {
        tuple(inputs[name].shape[axis] for inputs in sets): label
        for name, axes in dynamic.items()
        for axis, label in axes.items()
    }
    changing: Dict[str, Dict[int, str]] = {}
    for name in outputs[0]:
        pairs = list(zip(*(output[name].shape for output in outputs)))
        changed = [(axis, pair) for axis, pair in enumerate(pairs) if pair[0] != pair[1]]
        changing[name] = {axis: known.get(pair, "{}_{}".format(name, axis)) for axis, pair in changed}
    return changing


def _write(
    source: Source,
    exporter: str,
    out: str,
    opset: int,
    dynamic: Dict[str, Dict[int, str]],
    output_axes: Dict[str, Dict[int, str]],
    outputs: List[str],
) -> None:
    import torch

    names = list(source.sets[0])
    args, kwargs = source.arrange(source.sets[0])
    same: Dict[str, Any] = {"opset_version": opset, "input_names": names, "output_names": outputs}
    if exporter == "torchscript":
        axes = {name: dims for name, dims in {**dynamic, **output_axes}.items() if dims}
        module = source.module if source.program is None else _traceable(source)
        if source.program is not None:
            args, kwargs = tuple(source.sets[0].values()), {}
        torch.onnx.export(module, args, out, kwargs=kwargs, dynamo=False, dynamic_axes=axes, **same)
        return
    if source.program is not None:
        written = torch.onnx.export(source.program, dynamo=True, verbose=False, **same)
    else:
        dims = {label: torch.export.Dim.DYNAMIC for axes in dynamic.values() for label in axes.values()}
        shapes = {name: {axis: dims[label] for axis, label in dynamic.get(name, {}).items()} for name in names}
        written = torch.onnx.export(
            source.module, args, kwargs=kwargs, dynamo=True, verbose=False, dynamic_shapes=shapes, **same
        )
    weights = sum(value.numel() * value.element_size() for value in source.module.state_dict().values())
    written.save(out, external_data=weights > _LARGEST_FILE_BYTES)


def _traceable(source: Source) -> Any:
    """A module around a program, whose own module refuses to be switched between training and evaluation."""
    import torch

    class Around(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *values: Any) -> Any:
            return tuple(source.run(dict(zip(source.sets[0], values))).values())

    return Around()


def _tidy(path: str, axes: Dict[str, Dict[int, str]]) -> int:
    """Name the dynamic axes alike whoever wrote the file, keep weights in one file; returns the opset."""
    import onnx

    model = onnx.load(path)
    for port in [*model.graph.input, *model.graph.output]:
        for axis, dim in enumerate(port.type.tensor_type.shape.dim):
            if axis in axes.get(port.name, {}):
                dim.dim_param = axes[port.name][axis]
    # These speak of the exporter's own symbols; engines infer them again.
    del model.graph.value_info[:]
    for name in os.listdir(os.path.dirname(path)):
        os.remove(os.path.join(os.path.dirname(path), name))
    large = sum(len(tensor.raw_data) for tensor in model.graph.initializer) > _LARGEST_FILE_BYTES
    onnx.save_model(model, path, save_as_external_data=large, location=os.path.basename(path) + ".data")
    return next(int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx"))


def _error(path: str, inputs: Dict[str, Any], expected: Dict[str, Any]) -> float:
    """The largest |output − expected| / (|expected| + RMS of expected) over all outputs."""
    import numpy

    try:
        opened = session(path)
        taken = {port.name for port in opened.get_inputs()}
        actual = opened.run(list(expected), {name: inputs[name].numpy() for name in inputs if name in taken})
    except Exception as error:
        raise BadOption("ONNX Runtime cannot run what was written: {}".format(files.reason(error))) from error
    worst = 0.0
    for value, right in zip(actual, expected.values()):
        right = right.float().numpy().astype(numpy.float64)
        if value.shape != right.shape:
            return float("inf")
        scale = numpy.abs(right) + float(numpy.sqrt((right**2).mean())) if right.size else 1.0
        distance = numpy.abs(value.astype(numpy.float64) - right) / numpy.maximum(scale, 1e-30)
        worst = max(worst, float(distance.max()) if right.size else 0.0)
    return worst


def _spec(name: str, value: Any, axes: Dict[int, str]) -> Dict[str, Any]:
    dims = [axes.get(axis, size) for axis, size in enumerate(value.shape)]
    return {"name": name, "dtype": str(value.dtype).replace("torch.", ""), "dims": dims}
