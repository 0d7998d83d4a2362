"""What a file in ONNX Runtime's own format (.ort) has: the ports of its graph, and the tensors it holds."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, Tuple

from ..engines.base import BadOption

# By the numbers of ONNX's element types: what weights are stored in, and the bits of each.
_TYPES = {
    1: ("F32", 32),
    2: ("U8", 8),
    3: ("I8", 8),
    10: ("F16", 16),
    16: ("BF16", 16),
    21: ("U4", 4),
    22: ("I4", 4),
}
_PORTS = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(bool)": "bool",
}


def run(arguments: Dict[str, Any], blocks: List[Any]) -> Tuple[Dict[str, Any], List[Any]]:
    """`inputs` and `outputs` as [name, type, dims]; `tensors` as [type, parameters, bytes]."""
    import onnxruntime
    from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs.InferenceSession import InferenceSession

    model = arguments["model"]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        with open(model, "rb") as file:
            content = file.read()
        graph = InferenceSession.GetRootAs(bytearray(content), 0).Model().Graph()
        tensors = list(_tensors(graph))
    except Exception as error:  # of a damaged file whatever its readers come upon
        raise BadOption("the file is cut off or damaged ({})".format(" ".join(str(error).split())[:300])) from None

    def ports(values: Any) -> List[Any]:
        return [[value.name, _PORTS.get(value.type, value.type), list(value.shape)] for value in values]

    return {
        "inputs": ports(session.get_inputs()),
        "outputs": ports(session.get_outputs()),
        "tensors": tensors,
    }, []


def _tensors(graph: Any) -> Iterator[List[Any]]:
    """Those of a graph and of the graphs within it; scalars and indices are no weights."""
    for number in range(graph.InitializersLength()):
        tensor = graph.Initializers(number)
        dims = [tensor.Dims(axis) for axis in range(tensor.DimsLength())]
        if dims and tensor.DataType() in _TYPES:
            name, bits = _TYPES[tensor.DataType()]
            count = math.prod(dims)
            yield [name, count, (count * bits + 7) // 8]
    for number in range(graph.NodesLength()):
        node = graph.Nodes(number)
        for place in range(node.AttributesLength()):
            inner = node.Attributes(place).G()
            if inner is not None:
                yield from _tensors(inner)
