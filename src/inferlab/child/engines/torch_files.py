"""Reading torch.export programs and TorchScript files: safely, and what they hold.

torch.export.load (torch 2.13: export/pt2_archive/_package.py, _export/serde/serialize.py) reads a zip archive of
JSON and raw tensors, but trusts it: tensors marked `use_pickle` and the sample inputs may be unpickled with
weights_only=False, opaque constants with pickle.loads; shape expressions go through sympy's eval and guards
through exec; compiled code is loaded as a library. So here pickles are read with weights_only alone, compiled
code is refused, and expressions and operators must look like what torch.export writes.

torch.jit.load has its own reader in C++, which knows only TorchScript's types, and compiles the archive's
TorchScript: no Python object is unpickled and no Python code runs.
"""

from __future__ import annotations

import ast
import contextlib
import json
import pickle
import re
import types
import zipfile
from typing import Any, Dict, Iterator, List, Optional

from .base import BadOption

_PICKLED = "the program has a pickled object in it, which is not read; save plain tensors only"
_PRECISIONS = {"float32": "FP32", "float64": "FP64", "float16": "FP16", "bfloat16": "BF16"}
_INTEGER_NAMES = ("ids", "mask", "token", "position", "index")
# What an index may pass through on its way to a table.
_HARMLESS = ("to", "_to_copy", "view", "reshape", "slice", "expand", "unsqueeze", "squeeze", "clone", "contiguous")
_OPERATOR = re.compile(r"(torch\.ops(\.\w+)+|_operator\.\w+|math\.\w+|torch\.(sym_|_sym_|_check)\w*)")
_NAME = re.compile(r"[A-Z][A-Za-z]*|[a-z]+_?[0-9]+|inf|math|min|max|int_oo")
_WORD = re.compile(r"(?!.*__)\w+")
_ATTRIBUTES = {"size", "stride", "storage_offset", "inf", "isnan"}
_NODES = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.keyword, ast.Subscript),
    *(ast.Tuple, ast.Name, ast.Attribute, ast.Constant, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
    ast.expr_context,
)


def read_exported(path: str) -> Any:
    """The torch.export program in a file."""
    import torch

    for text in _program_texts(path):
        program = json.loads(text)
        for problem in _untrusted(program):
            raise BadOption("{} was not read: {} is nothing that torch.export writes".format(path, problem))
        if '"transformers.' in text.replace("\\", ""):
            import transformers.modeling_outputs  # noqa: F401  # its outputs are known to torch once imported
    try:
        with _no_pickled_code(torch):
            return torch.export.load(path)
    except BadOption:
        raise
    except pickle.UnpicklingError:
        raise BadOption(_PICKLED) from None
    except Exception as error:
        raise BadOption("{} cannot be read as a torch.export program: {}".format(path, error)) from error


def read_torchscript(path: str) -> Any:
    """The TorchScript module in a file, in evaluation mode."""
    import torch

    names = _names(path)
    if not any(name.endswith("/constants.pkl") for name in names):
        what = (
            "weights or a pickled module"
            if any(name.endswith("/data.pkl") for name in names)
            else "something else"
        )
        raise BadOption(
            "{} is not a TorchScript file but {}; save the module with torch.jit.save, or with torch.export.save "
            "as .pt2".format(path, what)
        )
    try:
        return torch.jit.load(path, map_location="cpu").eval()
    except RuntimeError as error:
        raise BadOption("{} cannot be read as TorchScript: {}".format(path, error)) from error


def describe_exported(program: Any) -> Dict[str, Any]:
    """Inputs, outputs and weights of a torch.export program; equal names of dimensions are equal sizes."""
    inputs = program_inputs(program)
    names = symbol_names(inputs)
    outputs = next(node for node in program.graph.nodes if node.op == "output").args[0]
    values = [
        one.meta["val"] for one in outputs[len(outputs) - len(output_names(program)) :] if hasattr(one, "meta")
    ]
    return {
        "inputs": [{"name": one.name, **_tensor(one.meta["val"], names), "below": _rows(one)} for one in inputs],
        "outputs": [
            {"name": name, **_tensor(value, names)}
            for name, value in zip(output_names(program), values)
            if hasattr(value, "dtype")
        ],
        **describe_weights([value for value in program.state_dict.values() if hasattr(value, "dtype")]),
    }


def describe_script(module: Any) -> Dict[str, Any]:
    """Inputs and weights of a TorchScript module: it knows its inputs' names, and nothing else of them."""
    tables = [one.weight.shape[0] for one in module.modules() if one.original_name == "Embedding"]
    inputs = []
    for name in script_inputs(module):
        integer = any(part in name for part in _INTEGER_NAMES)
        below = min(tables) if integer and tables else None
        inputs.append({"name": name, "dtype": "int64" if integer else "float32", "dims": None, "below": below})
    results = str(module.forward.schema).rsplit("->", 1)[1]
    count = results.count("Tensor") if "Dict" not in results and "List" not in results else 0
    outputs = [{"name": str(number), "dtype": "float32", "dims": None} for number in range(count)]
    return {"inputs": inputs, "outputs": outputs, **describe_weights(list(module.parameters()))}


def script_inputs(module: Any) -> List[str]:
    """The names of a TorchScript module's inputs, those without a default."""
    arguments = module.forward.schema.arguments[1:]
    return [one.name for one in arguments if not one.has_default_value()]


def program_inputs(program: Any) -> List[Any]:
    """The nodes of a program's graph that are its input tensors."""
    given = set(program.graph_signature.user_inputs)
    nodes = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in given]
    return [node for node in nodes if hasattr(node.meta.get("val"), "dtype")]


def output_names(program: Any) -> List[str]:
    """The names of a program's outputs, in the order in which its graph returns them."""
    import torch

    spec = program.call_spec.out_spec
    return list(flatten(torch.utils._pytree.tree_unflatten(list(range(spec.num_leaves)), spec)))


def flatten(value: Any, prefix: str = "") -> Dict[str, Any]:
    """The leaves of nested tuples, lists and dicts by name: keys and numbers, joined by a dot where nested."""
    if hasattr(value, "items"):
        pairs = [(str(key), one) for key, one in value.items()]
    elif isinstance(value, (tuple, list)):
        pairs = [(str(number), one) for number, one in enumerate(value)]
    else:
        return {prefix or "0": value}
    named: Dict[str, Any] = {}
    for key, one in pairs:
        named.update(flatten(one, prefix + "." + key if prefix else key))
    return named


def symbol_names(inputs: List[Any]) -> Dict[str, str]:
    """Names for a program's symbols, which torch.export saves as s77: by what they measure, where that shows."""
    names: Dict[str, str] = {}
    for one in inputs:
        shape = one.meta["val"].shape
        text = len(shape) == 2 and not one.meta["val"].dtype.is_floating_point
        for axis, dim in enumerate(shape):
            name = "batch" if axis == 0 else "sequence" if axis == 1 and text else ""
            if not isinstance(dim, int) and name and name not in names.values():
                names.setdefault(str(dim), name)
    return names


def _tensor(value: Any, names: Dict[str, str]) -> Dict[str, Any]:
    dims = [dim if isinstance(dim, int) else names.get(str(dim), str(dim)) for dim in value.shape]
    return {"dtype": str(value.dtype).replace("torch.", ""), "dims": dims}


def _rows(node: Any) -> Optional[int]:
    """The rows of the smallest table that an integer input indexes."""
    rows = []
    waiting = [node] if not node.meta["val"].dtype.is_floating_point else []
    while waiting:
        one = waiting.pop()
        for user in one.users:
            operator = str(user.target).split(".")
            if "embedding" in operator and user.args[1] is one:
                rows.append(int(user.args[0].meta["val"].shape[0]))
            elif len(operator) > 1 and operator[1] in _HARMLESS:
                waiting.append(user)
    return min(rows) if rows else None


def describe_weights(tensors: List[Any]) -> Dict[str, Any]:
    """How many parameters, what share of those in matrices is zero, and what they are stored in."""
    sizes: Dict[str, int] = {}
    zeros, counted = 0, 0
    for tensor in tensors:
        name = str(tensor.dtype).replace("torch.", "")
        sizes[name] = sizes.get(name, 0) + tensor.numel()
        if tensor.dim() >= 2 and not tensor.is_quantized:
            zeros, counted = zeros + int((tensor == 0).sum()), counted + tensor.numel()
    narrow = any(name in ("int8", "uint8", "qint8", "quint8") for name in sizes)
    most = max(sizes, key=lambda name: sizes[name]) if sizes else "float32"
    return {
        "parameters": sum(sizes.values()),
        "zero_fraction": zeros / counted if counted else None,
        "precision": "INT8" if narrow else _PRECISIONS.get(most, most.upper()),
    }


def _names(path: str) -> List[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError):
        raise BadOption(
            "{} is not a file that torch saved (no zip archive), or it is cut off".format(path)
        ) from None


def _program_texts(path: str) -> List[str]:
    names = _names(path)
    if not any(name.endswith("/archive_format") or name == "archive_format" for name in names):
        raise BadOption(
            "{} is not a torch.export program of this version of torch; save it with torch.export.save".format(
                path
            )
        )
    if any("data/aotinductor/" in name for name in names):
        raise BadOption(
            "{} has compiled code in it, which is not run; save it with torch.export.save".format(path)
        )
    with zipfile.ZipFile(path) as archive:
        return [archive.read(name).decode() for name in names if re.search(r"(^|/)models/[^/]+\.json$", name)]


def _untrusted(value: Any) -> Iterator[str]:
    """Every expression and operator in a program's JSON that does not look like torch.export's own."""
    if isinstance(value, list):
        for one in value:
            yield from _untrusted(one)
    if not isinstance(value, dict):
        return
    texts = [value["expr_str"]] if "expr_str" in value else []
    texts.extend(value.get("guards_code") or [])
    texts.extend(value.get("range_constraints") or {})
    yield from (text for text in texts if not _is_arithmetic(text))
    if "target" in value and "inputs" in value and not _OPERATOR.fullmatch(str(value["target"])):
        yield str(value["target"])
    for one in value.values():
        yield from _untrusted(one)


def _is_arithmetic(text: str) -> bool:
    """Whether an expression only computes with sizes: sympy's functions, symbols, numbers, inputs by name."""
    try:
        nodes = list(ast.walk(ast.parse(str(text), mode="eval")))
    except (SyntaxError, ValueError, RecursionError):
        return False
    for node in nodes:
        if not isinstance(node, _NODES):
            return False
        if isinstance(node, ast.Name) and not _NAME.fullmatch(node.id):
            return False
        if isinstance(node, ast.Attribute) and node.attr not in _ATTRIBUTES:
            return False
        # Some of sympy's functions evaluate strings: a plain name is harmless.
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not _WORD.fullmatch(node.value):
            return False
    return True


@contextlib.contextmanager
def _no_pickled_code(torch: Any) -> Iterator[None]:
    """Let torch.load read tensors and plain values only, whatever its callers ask for."""
    from torch.export.pt2_archive import _package

    def load(*args: Any, **settings: Any) -> Any:
        return plain_load(*args, **{**settings, "weights_only": True})

    def refuse(*_: Any, **__: Any) -> Any:
        raise BadOption(_PICKLED)

    plain_load, plain_pickle = torch.load, _package.pickle
    torch.load, _package.pickle = load, types.SimpleNamespace(loads=refuse)
    try:
        yield
    finally:
        torch.load, _package.pickle = plain_load, plain_pickle
