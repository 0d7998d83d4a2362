"""What Intel's Neural Engine must not be given, because it aborts or computes something else without an error."""

from __future__ import annotations

from typing import Any, Dict, Sequence

from ..base import BadOption

#: The inputs in the order that the engine takes them, each with the names that it is known by.
INPUTS = {
    "input_ids": ("input_ids",),
    "token_type_ids": ("token_type_ids", "segment_ids"),
    "attention_mask": ("attention_mask", "input_mask"),
}
# Others compile and run, but were seen to compute something else (128/4, 256/8, 384/12, 768/8, 32/2), or do not
# compile (64, 192).
_HEAD_SIZE = 64
_HIDDEN_SIZES = (128, 256, 384, 768, 1024)
_OPSETS = (13, 14)
# What is left of a BERT that was seen to run, and of its quantised copies.
_OPERATORS = frozenset({
    "Add", "Cast", "Constant", "DequantizeLinear", "Div", "Erf", "Gather", "Gemm", "Identity", "MatMul", "Mul",
    "Pow", "QuantizeLinear", "ReduceMean", "Relu", "Reshape", "Shape", "Slice", "Softmax", "Split", "Sqrt",
    "Squeeze", "Sub", "Tanh", "Transpose", "Unsqueeze",
})  # fmt: skip


def check_opset(model: Any) -> None:
    """Refuse operator sets that its compiler does not read."""
    opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 0)
    if opset not in _OPSETS:
        raise BadOption(
            "it takes models of opset {} or {}, and this one has opset {}; export it again, for example with: "
            "inferlab export FOLDER -o model.onnx --opset 14".format(*_OPSETS, opset)
        )


def check_outputs(names: Sequence[str]) -> None:
    """Refuse several outputs: its compiler loses all but one."""
    if len(names) != 1:
        raise BadOption(
            "it computes one output only, and the model has {}; export it with one".format(", ".join(names))
        )


def check_operators(nodes: Sequence[Any]) -> None:
    """Refuse operators that would abort the process or raise at the first inference."""
    added = {name for node in nodes if node.op_type == "Add" for name in node.input}
    for node in nodes:
        if node.op_type not in _OPERATORS or node.domain not in ("", "ai.onnx"):
            raise BadOption("it does not know the operator {}; it runs only the BERT family".format(node.op_type))
        if node.op_type == "Tanh" and node.output[0] in added:
            raise BadOption(
                "the model has a GELU by tanh (gelu_new, gelu_fast), which it cannot run; it runs GELU by erf"
            )


def input_names(names: Sequence[str]) -> Dict[str, str]:
    """The model's name of each input that there is."""
    roles = {name: role for role, known in INPUTS.items() for name in known}
    found: Dict[str, str] = {}
    for one in names:
        role = roles.get(one)
        if role is None or role in found:
            raise BadOption(
                "it does not know the input '{}'; it takes input_ids, token_type_ids and attention_mask".format(
                    one
                )
            )
        found[role] = one
    for role in ("input_ids", "attention_mask"):
        if role not in found:
            raise BadOption(
                "it needs the input {}, and the model has only {}".format(
                    role, ", ".join(found.values()) or "none"
                )
            )
    return found


def check_use(names: Dict[str, str], rows: Dict[str, int]) -> None:
    """Refuse inputs that are not what their names say: they would be mixed up without an error."""
    for role in ("input_ids", "token_type_ids"):
        if role in names and names[role] not in rows:
            raise BadOption(_misnamed(names[role]))
    if names["attention_mask"] in rows:
        raise BadOption(_misnamed(names["attention_mask"]))
    types = names.get("token_type_ids")
    if types is not None and rows[types] > rows[names["input_ids"]]:
        raise BadOption(_misnamed(types))


def _misnamed(name: str) -> str:
    return (
        "the model does not use the input '{}' as its name says, so the inputs would be mixed up; "
        "export it with each input under its own name".format(name)
    )


def check_sizes(heads: int, size: int) -> None:
    """Refuse heads and hidden sizes that it computes wrongly or does not compile."""
    if size != _HEAD_SIZE:
        raise BadOption(
            "it computes wrong results for attention heads of {} features, without an error; only heads of {} "
            "are right (hidden size {} with {} heads)".format(size, _HEAD_SIZE, heads * size, heads)
        )
    if heads * size not in _HIDDEN_SIZES:
        raise BadOption(
            "it does not take the hidden size {}; it takes {}".format(
                heads * size, ", ".join(map(str, _HIDDEN_SIZES))
            )
        )
