"""Reading torch.export programs and TorchScript files: safely, and what they hold.

torch.export.load (torch 2.13: export/pt2_archive/_package.py) reads a zip archive of JSON and raw tensors, but
trusts it: much of the JSON becomes code (program_check), tensors marked `use_pickle` and the sample inputs
may be unpickled with weights_only=False, opaque constants with pickle.loads; compiled code is loaded as a library.
So the archive must have one reading only (archives), every text in it is checked as torch's own reader returns it,
pickles are read with weights_only alone, and the open file that was checked is the one that is loaded.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import types
from typing import IO, Any, Dict, Iterator, List, Optional, Pattern

from ..base import BadOption
from . import archives, program_check, script_check

_PICKLED = "the program has a pickled object in it, which is not read; save plain tensors only"
_PRECISIONS = {"float32": "FP32", "float64": "FP64", "float16": "FP16", "bfloat16": "BF16"}
_INTEGER_NAMES = ("ids", "mask", "token", "position", "index")
# What an index may pass through on its way to a table.
_HARMLESS = ("to", "_to_copy", "view", "reshape", "slice", "expand", "unsqueeze", "squeeze", "clone", "contiguous")
# Text in a program: its graph, or a list of its tensors.
_LARGEST_TEXT_BYTES = 512 << 20


def read_exported(path: str) -> Any:
    """The torch.export program in a file."""
    import torch
    from torch.export.pt2_archive import _package

    with _opened(path) as file:
        entries = _entries(file, path)
        if "archive_format" not in entries:
            raise BadOption(
                "{} is not a torch.export program of this version of torch; save it with torch.export.save".format(
                    path
                )
            )
        if any(name.startswith("data/aotinductor/") for name in entries):
            raise BadOption(
                "{} has compiled code in it, which is not run; save it with torch.export.save".format(path)
            )
        try:
            _check_file_names(entries, program_check.FILE_NAMES)
            text = _check_exported(torch._C.PyTorchFileReader(_rewound(file)), entries)
        except program_check.Untrusted as problem:
            raise BadOption(
                "{} was not read: {} is nothing that torch.export writes".format(path, problem)
            ) from None
        except (RuntimeError, ValueError, RecursionError) as error:
            raise BadOption(
                "{} cannot be read as a torch.export program: {}".format(path, _reason(error))
            ) from error
        if '"transformers.' in text.replace("\\", ""):
            import transformers.modeling_outputs  # noqa: F401  # its outputs are known to torch once imported
        try:
            with _no_pickled_code(torch):
                return _package.load_pt2(_rewound(file)).exported_programs["model"]
        except BadOption:
            raise
        except pickle.UnpicklingError:
            raise BadOption(_PICKLED) from None
        except Exception as error:
            raise BadOption(
                "{} cannot be read as a torch.export program: {}".format(path, _reason(error))
            ) from error


def read_torchscript(path: str) -> Any:
    """The TorchScript module in a file, in evaluation mode."""
    import torch

    with _opened(path) as file:
        entries = _entries(file, path)
        if "constants.pkl" not in entries or "data.pkl" not in entries:
            what = "weights or a pickled module" if "data.pkl" in entries else "something else"
            raise BadOption(
                "{} is not a TorchScript file but {}; save the module with torch.jit.save, or with "
                "torch.export.save as .pt2".format(path, what)
            )
        if any(script_check.MOBILE_NAMES.fullmatch(name) for name in entries):
            raise BadOption(
                "{} was saved for PyTorch Mobile, which is not read; save it with torch.jit.save".format(path)
            )
        try:
            _check_file_names(entries, script_check.FILE_NAMES)
            reader = torch._C.PyTorchFileReader(_rewound(file))
            for name in entries:
                if name.endswith(".py"):
                    script_check.check_code(reader.get_record(name).decode())
                elif name.endswith(".pkl"):
                    script_check.check_pickle(reader.get_record(name))
        except program_check.Untrusted as problem:
            raise BadOption("{} was not read: {} is not allowed in TorchScript".format(path, problem)) from None
        except (RuntimeError, ValueError) as error:
            raise BadOption("{} cannot be read as TorchScript: {}".format(path, _reason(error))) from error
        try:
            return torch.jit.load(_path_of(file, path), map_location="cpu").eval()
        except RuntimeError as error:
            raise BadOption("{} cannot be read as TorchScript: {}".format(path, error)) from error


def describe_exported(program: Any) -> Dict[str, Any]:
    """Inputs, outputs and weights of a torch.export program; equal names of dimensions are equal sizes."""
    inputs = program_inputs(program)
    names = symbol_names(inputs)
    outputs = next(node for node in program.graph.nodes if node.op == "output").args[0]
    values = [
        output.meta["val"]
        for output in outputs[len(outputs) - len(output_names(program)) :]
        if hasattr(output, "meta")
    ]
    return {
        "inputs": [
            {"name": node.name, **_tensor(node.meta["val"], names), "below": _rows(node)} for node in inputs
        ],
        "outputs": [
            {"name": name, **_tensor(value, names)}
            for name, value in zip(output_names(program), values)
            if hasattr(value, "dtype")
        ],
        **describe_weights([value for value in program.state_dict.values() if hasattr(value, "dtype")]),
    }


def describe_script(module: Any) -> Dict[str, Any]:
    """Inputs and weights of a TorchScript module: it knows its inputs' names, and nothing else of them."""
    tables = [part.weight.shape[0] for part in module.modules() if part.original_name == "Embedding"]
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
    return [argument.name for argument in arguments if not argument.has_default_value()]


def program_inputs(program: Any) -> List[Any]:
    """The nodes of a program's graph that are its input tensors."""
    names = set(program.graph_signature.user_inputs)
    nodes = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in names]
    return [node for node in nodes if hasattr(node.meta.get("val"), "dtype")]


def output_names(program: Any) -> List[str]:
    """The names of a program's outputs, in the order in which its graph returns them."""
    import torch

    spec = program.call_spec.out_spec
    return list(flatten(torch.utils._pytree.tree_unflatten(list(range(spec.num_leaves)), spec)))


def flatten(value: Any, prefix: str = "") -> Dict[str, Any]:
    """The leaves of nested tuples, lists and dicts by name: keys and numbers, joined by a dot where nested."""
    if hasattr(value, "items"):
        pairs = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, (tuple, list)):
        pairs = [(str(number), item) for number, item in enumerate(value)]
    else:
        return {prefix or "0": value}
    named: Dict[str, Any] = {}
    for key, item in pairs:
        named.update(flatten(item, prefix + "." + key if prefix else key))
    return named


def symbol_names(inputs: List[Any]) -> Dict[str, str]:
    """Names for a program's symbols, which torch.export saves as s77: by what they measure, where that shows."""
    names: Dict[str, str] = {}
    for node in inputs:
        shape = node.meta["val"].shape
        text = len(shape) == 2 and not node.meta["val"].dtype.is_floating_point
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
        reader = waiting.pop()
        for user in reader.users:
            operator = str(user.target).split(".")
            if "embedding" in operator and user.args[1] is reader:
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


def _opened(path: str) -> IO[bytes]:
    try:
        return open(path, "rb")
    except OSError as error:
        raise BadOption("{} cannot be read: {}".format(path, error.strerror)) from error


def _rewound(file: IO[bytes]) -> IO[bytes]:
    file.seek(0)
    return file


def _path_of(file: IO[bytes], path: str) -> str:
    """A path of the open file itself, where the system has one: the name may mean another file by now."""
    same = "/proc/self/fd/{}".format(file.fileno())
    return same if os.path.exists(same) else path


def _entries(file: IO[bytes], path: str) -> Dict[str, archives.Entry]:
    if file.read(4) != b"PK\3\4":
        raise BadOption("{} is not a file that torch saved (no zip archive), or it is cut off".format(path))
    try:
        return archives.relative_names(archives.read_directory(file))
    except archives.Ambiguous as problem:
        raise BadOption("{} is not a file that torch saved: {}".format(path, problem)) from None


def _check_file_names(entries: Dict[str, archives.Entry], pattern: Pattern[str]) -> None:
    for name in entries:
        if pattern.fullmatch(name) is None:
            raise program_check.Untrusted("the file {}".format(program_check.shortened(name)))


def _check_exported(reader: Any, entries: Dict[str, archives.Entry]) -> str:
    """Check every text of a program as torch's reader returns it; returns that of the program itself."""
    sizes = {name: entry.size_bytes for name, entry in entries.items()}
    texts: Dict[str, str] = {}
    for name in sizes:
        if name.endswith(".json") and not name.startswith("extra/"):
            if sizes[name] > _LARGEST_TEXT_BYTES:
                raise program_check.Untrusted("a text of {} bytes".format(sizes[name]))
            texts[name] = reader.get_record(name).decode()
    for name, text in texts.items():
        folder = os.path.dirname(name)
        if folder == "models":
            program_check.check_program(json.loads(text))
        else:
            program_check.check_payloads(json.loads(text), sizes, folder)
    return texts.get("models/model.json", "")


def _reason(error: BaseException) -> str:
    """What went wrong first, in one line; torch adds tracebacks of its own to what it raises from it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return "{}: {}".format(type(error).__name__, " ".join(str(error).split())[:400])


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
