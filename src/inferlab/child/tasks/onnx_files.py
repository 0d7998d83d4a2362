"""What ONNX Runtime tells of an ONNX file, or makes of one: each function is a task."""

from __future__ import annotations

import math
import os
import time
from typing import Any, Dict, Iterator, List

from .. import protocol, scoring
from ..engines.base import BadOption
from ..engines.onnxruntime import KERNEL_TIME, PORT_TYPES, session_options, trace_events
from ..protocol import Answer

# Outputs that are smaller than this everywhere are as good as zero: the largest of them is no measure.
_SMALL = 1e-3
# By the numbers of ONNX's element types: what weights are stored in, and the bits of each.
_WEIGHTS = {
    1: ("F32", 32),
    2: ("U8", 8),
    3: ("I8", 8),
    10: ("F16", 16),
    16: ("BF16", 16),
    21: ("U4", 4),
    22: ("I4", 4),
}


def session(model: str, level: str = "all", threads: int = 0, **settings: Any) -> Any:
    """A session with options by their names in ONNX Runtime; on all cores where no number of threads is given."""
    import onnxruntime

    options = session_options(threads, level, {"session.intra_op.allow_spinning": "0"}, **settings)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def outputs(model: str, inputs: List[Dict[str, Any]], threads: int = 0) -> List[Dict[str, Any]]:
    """What a model gives for each set of inputs, by name; on all cores where no number of threads is given."""
    opened = session(model, threads=threads)
    names = [output.name for output in opened.get_outputs() if output.type.startswith("tensor(")]
    return [dict(zip(names, opened.run(names, each))) for each in inputs]


def evaluate(arguments: Dict[str, Any], blocks: List[bytes]) -> Answer:
    """How far apart a model and a changed copy of it are on the same inputs.

    The sums of both models' outputs, with labels those of cross-entropy and right answers.
    """
    inputs, labels = protocol.unpack_sets(arguments, blocks)
    dense = outputs(arguments["dense"], inputs, arguments["threads"])
    changed = outputs(arguments["changed"], inputs, arguments["threads"])
    powers = scoring.powers(dense)
    answer: Dict[str, Any] = {"powers": powers, "changes": scoring.changes(dense, changed, scoring.finite(powers))}
    if labels is not None:
        classes = scoring.Classes(dense, labels)
        answer.update(score=classes.score(dense, labels), changed_score=classes.score(changed, labels))
    return answer, []


def check_copy(arguments: Dict[str, Any], blocks: List[bytes]) -> Answer:
    """The largest difference of an output of `copy` from that of `model`, over the output's largest magnitude.

    Outputs that are not numbers, or of another shape, where the model's are sound are an error. The difference is
    None where the model itself does not run on such inputs.
    """
    import numpy

    inputs, _ = protocol.unpack_sets(arguments, blocks)
    try:
        dense = outputs(arguments["model"], inputs[:1])[0]
    except Exception:
        return {"difference": None}, []
    try:
        changed = outputs(arguments["copy"], inputs[:1])[0]
    except Exception as error:
        raise BadOption("the copy does not run: {}".format(error)) from error
    difference = 0.0
    for name, expected in dense.items():
        if expected.dtype.kind != "f" or not numpy.isfinite(expected).all() or not expected.size:
            continue
        if changed[name].shape != expected.shape or not numpy.isfinite(changed[name]).all():
            raise BadOption("the copy gives outputs that are not numbers, or of another shape")
        scale = max(float(numpy.abs(expected).max()), _SMALL)
        difference = max(difference, float(numpy.abs(changed[name].astype("f8") - expected).max()) / scale)
    return {"difference": difference}, []


def clean_up(arguments: Dict[str, Any], _: List[bytes]) -> Answer:
    """Write `model` to `out` with constants folded, and without nodes that do nothing or that nobody reads."""
    import onnx_ir
    import onnx_ir.passes.common

    try:
        # The levels above it write operators of ONNX Runtime's own, which other engines do not have.
        session(arguments["model"], "basic", optimized_model_filepath=arguments["out"])
    except Exception as error:
        raise BadOption(str(error)) from error
    # ONNX Runtime keeps nodes whose outputs nobody reads.
    cleaned = onnx_ir.load(arguments["out"])
    onnx_ir.passes.common.RemoveUnusedNodesPass()(cleaned)
    onnx_ir.save(cleaned, arguments["out"])
    return {}, []


def fit_shapes(arguments: Dict[str, Any], _: List[bytes]) -> Answer:
    """The number of the first candidate that runs, None where none does, and what was said of the first one."""
    # Optimising takes longer than trying.
    opened = session(arguments["model"], "basic", log_severity_level=4)
    deadline = time.monotonic() + arguments["seconds"]
    reason = ""
    for number, shapes in enumerate(arguments["candidates"]):
        inputs = {spec["name"]: _values(spec, shapes[spec["name"]]) for spec in arguments["inputs"]}
        try:
            opened.run(None, inputs)
        except Exception as error:
            reason = reason or " ".join(str(error).split())[:400]
        else:
            return {"number": number, "reason": reason}, []
        if time.monotonic() > deadline:
            break
    return {"number": None, "reason": reason}, []


def _values(spec: Dict[str, Any], shape: List[int]) -> Any:
    import numpy

    if spec["dtype"] == "string":
        return numpy.full(shape, "inferlab", object)
    if spec["dtype"].startswith("float"):
        return numpy.random.default_rng(0).random(shape, numpy.float32).astype(spec["dtype"])
    return numpy.full(shape, spec["fill"], spec["dtype"])


def node_shapes(arguments: Dict[str, Any], blocks: List[bytes]) -> Answer:
    """The types and shapes that every node really reads and writes, found in one inference.

    Nodes are told by the number in their name; of several rounds of a loop the first counts.
    """
    prefix = os.path.join(arguments["folder"], "trace")
    opened = session(arguments["model"], "disabled", enable_profiling=True, profile_file_prefix=prefix)
    opened.run(None, protocol.unpack_arrays(arguments["arrays"], blocks))
    nodes: Dict[str, Any] = {}
    for event in trace_events(opened.end_profiling()):
        name, details = event["name"], event.get("args", {})
        number = name[1 : -len(KERNEL_TIME)]
        if name.endswith(KERNEL_TIME) and "output_type_shape" in details and number.isdigit():
            pairs = {"inputs": details.get("input_type_shape", []), "outputs": details["output_type_shape"]}
            nodes.setdefault(
                number, {side: [list(item) for pair in pairs[side] for item in pair.items()] for side in pairs}
            )
    return {"nodes": nodes}, []


def read_ort(arguments: Dict[str, Any], _: List[bytes]) -> Answer:
    """What a file in ONNX Runtime's own format has.

    `inputs` and `outputs` as [name, type, dims]; `tensors` as [type, parameters, bytes].
    """
    from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs.InferenceSession import InferenceSession

    try:
        opened = session(arguments["model"], threads=1, log_severity_level=4)
        with open(arguments["model"], "rb") as file:
            graph = InferenceSession.GetRootAs(bytearray(file.read()), 0).Model().Graph()
        tensors = list(_tensors(graph))
    except Exception as error:  # of a damaged file whatever its readers come upon
        raise BadOption("the file is cut off or damaged ({})".format(" ".join(str(error).split())[:300])) from None
    sides = {"inputs": opened.get_inputs(), "outputs": opened.get_outputs()}
    ports = {
        side: [[port.name, PORT_TYPES.get(port.type, port.type), list(port.shape)] for port in sides[side]]
        for side in sides
    }
    return {**ports, "tensors": tensors}, []


def _tensors(graph: Any) -> Iterator[List[Any]]:
    """Those of a graph and of the graphs within it; scalars and indices are no weights."""
    for number in range(graph.InitializersLength()):
        tensor = graph.Initializers(number)
        dims = [tensor.Dims(axis) for axis in range(tensor.DimsLength())]
        if dims and tensor.DataType() in _WEIGHTS:
            name, bits = _WEIGHTS[tensor.DataType()]
            count = math.prod(dims)
            yield [name, count, (count * bits + 7) // 8]
    for number in range(graph.NodesLength()):
        node = graph.Nodes(number)
        for place in range(node.AttributesLength()):
            inner = node.Attributes(place).G()
            if inner is not None:
                yield from _tensors(inner)
