"""Reading torch.export programs and TorchScript files: safely, and what they hold.

torch.export.load (torch 2.13: export/pt2_archive/_package.py) reads a zip archive of JSON and raw tensors, but
trusts it: much of the JSON becomes code (`untrusted`), tensors marked `use_pickle` and the sample inputs
may be unpickled with weights_only=False, opaque constants with pickle.loads; compiled code is loaded as a library.
So the archive must have one reading only, every text in it is checked as torch's own reader returns it, pickles
are read with weights_only alone, and the open file that was checked is the one that is loaded.

Readers of zip files disagree: about names that differ in case only, about bytes before the first entry, about a
second directory, about headers that contradict it. Whoever checks an archive with one reader and loads it with
another has checked nothing. So an archive is accepted only if its entries, their directory and the end record
fill the file without gap or overlap, and say the same wherever they repeat themselves.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import struct
import types
from typing import IO, Any, Dict, Iterator, List, NamedTuple, Optional, Pattern, Tuple

from ..base import BadOption
from . import untrusted

_END = struct.Struct("<4s4H2IH")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_STORED, _DEFLATED = 0, 8
_HAS_DESCRIPTOR, _UTF8 = 1 << 3, 1 << 11
# Bits 1 and 2 only tell how hard the writer tried to compress.
_FLAGS = _HAS_DESCRIPTOR | _UTF8 | 0b110
_LINK = 0xA000
_LARGEST_DIRECTORY_BYTES = 256 << 20
# What is compressed in torch's archives is source text; deflate cannot shrink anything more than 1032 times.
_LARGEST_INFLATED_BYTES = 512 << 20
_LARGEST_RATIO = 1032


class Ambiguous(Exception):
    """An archive that two readers could read differently, or that no genuine writer wrote."""


class Entry(NamedTuple):
    """One file in an archive."""

    name: str
    size_bytes: int
    compressed_bytes: int
    method: int
    flags: int
    crc: int
    offset: int
    raw_name: bytes


def read_directory(file: IO[bytes]) -> List[Entry]:
    """Every entry of an archive that has exactly one reading; Ambiguous says what is wrong with another."""
    size = file.seek(0, os.SEEK_END)
    start, end, count = _directory_span(file, size)
    if end - start > _LARGEST_DIRECTORY_BYTES:
        raise Ambiguous("its directory is too large")
    entries = _central_entries(_read(file, start, end - start), count)
    _check_names(entries)
    if sum(entry.size_bytes for entry in entries if entry.method == _DEFLATED) > _LARGEST_INFLATED_BYTES:
        raise Ambiguous("what it compresses is larger than {} MB".format(_LARGEST_INFLATED_BYTES >> 20))
    position = 0
    for entry in sorted(entries, key=lambda entry: entry.offset):
        if entry.offset != position:
            raise Ambiguous("there are bytes before {!r} that belong to no entry".format(entry.name))
        position = _end_of_entry(file, entry, start)
    if position != start:
        raise Ambiguous("there are bytes before its directory that belong to no entry")
    return entries


def relative_names(entries: List[Entry]) -> Dict[str, Entry]:
    """The entries by their names in the one folder that torch puts everything into."""
    roots = {entry.name.partition("/")[0] for entry in entries}
    if len(roots) != 1 or any("/" not in entry.name for entry in entries):
        raise Ambiguous("its entries are not in one folder")
    return {entry.name.partition("/")[2]: entry for entry in entries}


def _directory_span(file: IO[bytes], size: int) -> Tuple[int, int, int]:
    """Where the directory begins and ends, and how many entries it has."""
    if size < _END.size:
        raise Ambiguous("it is cut off")
    end = size - _END.size
    magic, disk, first_disk, here, count, length, start, comment = _END.unpack(_read(file, end, _END.size))
    if magic != b"PK\5\6" or comment:
        raise Ambiguous("it is cut off, or something follows its end record")
    if disk or first_disk or here != count:
        raise Ambiguous("it is one part of several")
    locator = end - _LOCATOR.size
    if locator >= _END_64.size and _read(file, locator, 4) == b"PK\6\7":
        _, disk, position, disks = _LOCATOR.unpack(_read(file, locator, _LOCATOR.size))
        end = locator - _END_64.size
        record = _END_64.unpack(_read(file, end, _END_64.size))
        magic, record_size, _, _, *disks_64, here, count_64, length_64, start_64 = record
        if position != end or magic != b"PK\6\6" or record_size != _END_64.size - 12 or here != count_64:
            raise Ambiguous("its two end records contradict each other")
        if disk or disks > 1 or any(disks_64):
            raise Ambiguous("it is one part of several")
        for small, large, unknown in (
            (count, count_64, 0xFFFF),
            (length, length_64, 0xFFFFFFFF),
            (start, start_64, 0xFFFFFFFF),
        ):
            if small not in (large, unknown):
                raise Ambiguous("its two end records contradict each other")
        count, length, start = count_64, length_64, start_64
    if start + length != end:
        raise Ambiguous("its directory is not where its end record says")
    return start, end, count


def _central_entries(data: bytes, count: int) -> List[Entry]:
    entries = []
    position = 0
    while position < len(data):
        if len(data) - position < _CENTRAL.size:
            raise Ambiguous("its directory is damaged")
        (magic, _, _, flags, method, _, _, crc, packed, size, *lengths, disk, _, attributes, offset) = (
            _CENTRAL.unpack_from(data, position)
        )
        name_length, extra_length, comment_length = lengths
        begin = position + _CENTRAL.size
        position = begin + name_length + extra_length + comment_length
        if magic != b"PK\1\2" or position > len(data) or comment_length or disk:
            raise Ambiguous("its directory is damaged")
        raw_name = data[begin : begin + name_length]
        extra = data[begin + name_length : position]
        size, packed, offset = _large_sizes(extra, [size, packed, offset])
        entry = Entry(_decoded(raw_name, flags), size, packed, method, flags, crc, offset, raw_name)
        if attributes >> 16 & 0xF000 == _LINK:
            raise Ambiguous("{!r} is a link".format(entry.name))
        _check_method(entry)
        entries.append(entry)
    if len(entries) != count:
        raise Ambiguous("its directory has another number of entries than its end record says")
    return entries


def _large_sizes(extra: bytes, sizes: List[int]) -> List[int]:
    """Sizes of 4 GB and more stand in an extra field; elsewhere it must not be."""
    fields: Dict[int, bytes] = {}
    position = 0
    while position < len(extra):
        if len(extra) - position < 4:
            raise Ambiguous("its directory is damaged")
        kind, length = struct.unpack_from("<2H", extra, position)
        if kind in fields or position + 4 + length > len(extra):
            raise Ambiguous("its directory is damaged")
        fields[kind] = extra[position + 4 : position + 4 + length]
        position += 4 + length
    unknown = [number for number, size in enumerate(sizes) if size == 0xFFFFFFFF]
    large = fields.get(1, b"")
    if len(large) != 8 * len(unknown):
        raise Ambiguous("the sizes of an entry contradict each other")
    for number, value in zip(unknown, struct.unpack("<{}Q".format(len(unknown)), large)):
        sizes[number] = value
    return sizes


def _check_method(entry: Entry) -> None:
    if entry.flags & ~_FLAGS:
        raise Ambiguous("{!r} is encrypted or patched".format(entry.name))
    if entry.method not in (_STORED, _DEFLATED):
        raise Ambiguous("{!r} is compressed in a way that torch does not write".format(entry.name))
    if entry.method == _STORED and entry.size_bytes != entry.compressed_bytes:
        raise Ambiguous("the sizes of {!r} contradict each other".format(entry.name))
    if entry.size_bytes > max(1, entry.compressed_bytes) * _LARGEST_RATIO:
        raise Ambiguous("{!r} cannot be as large as it says".format(entry.name))


def _decoded(raw_name: bytes, flags: int) -> str:
    try:
        return raw_name.decode("utf-8" if flags & _UTF8 else "ascii")
    except UnicodeDecodeError:
        raise Ambiguous("the name of an entry is not readable") from None


def _check_names(entries: List[Entry]) -> None:
    seen = set()
    for entry in entries:
        parts = entry.name.split("/")
        if "" in parts or "." in parts or ".." in parts or "\\" in entry.name or not entry.name.isprintable():
            raise Ambiguous("{!r} is not a valid name of an entry".format(entry.name))
        # torch's reader does not tell upper from lower case.
        if entry.name.lower() in seen:
            raise Ambiguous("it has two entries named {!r}".format(entry.name))
        seen.add(entry.name.lower())


def _end_of_entry(file: IO[bytes], entry: Entry, limit: int) -> int:
    """Where an entry ends, checked against its own header and what follows it."""
    header = _read(file, entry.offset, _LOCAL.size)
    magic, _, flags, method, _, _, crc, packed, size, name_length, extra_length = _LOCAL.unpack(header)
    begin = entry.offset + _LOCAL.size + name_length + extra_length
    end = int(begin + entry.compressed_bytes)
    name = _read(file, entry.offset + _LOCAL.size, name_length)
    if (
        magic != b"PK\3\4"
        or name != entry.raw_name
        or flags != entry.flags
        or method != entry.method
        or end > limit
    ):
        raise Ambiguous("the header of {!r} contradicts the directory".format(entry.name))
    listed = (entry.crc, entry.compressed_bytes, entry.size_bytes)
    if flags & _HAS_DESCRIPTOR:
        if any(value not in (right, 0, 0xFFFFFFFF) for value, right in zip((crc, packed, size), listed)):
            raise Ambiguous("the header of {!r} contradicts the directory".format(entry.name))
        return end + _descriptor_length(_read(file, end, min(24, limit - end)), listed, entry.name)
    if any(value not in (right, 0xFFFFFFFF) for value, right in zip((crc, packed, size), listed)):
        raise Ambiguous("the header of {!r} contradicts the directory".format(entry.name))
    return end


def _descriptor_length(data: bytes, listed: Tuple[int, int, int], name: str) -> int:
    for form in ("<4sIQQ", "<4sIII"):
        if form == "<4sIII" and max(listed) > 0xFFFFFFFF:
            continue
        expected = struct.pack(form, b"PK\7\10", *listed)
        if data.startswith(expected):
            return len(expected)
    raise Ambiguous("what follows {!r} contradicts the directory".format(name))


def _read(file: IO[bytes], position: int, length: int) -> bytes:
    file.seek(position)
    data = file.read(length)
    if len(data) != length:
        raise Ambiguous("it is cut off")
    return data


_PICKLED = "the program has a pickled object in it, which is not read; save plain tensors only"
_PRECISIONS = {"float32": "FP32", "float64": "FP64", "float16": "FP16", "bfloat16": "BF16"}
_INTEGER_NAMES = ("ids", "mask", "token", "position", "index")
# What an index may pass through on its way to a table.
_HARMLESS = ("to", "_to_copy", "view", "reshape", "slice", "expand", "unsqueeze", "squeeze", "clone", "contiguous")
# Text in a program: its graph, or a list of its tensors.
_LARGEST_TEXT_BYTES = 512 << 20


def set_threads(threads: int) -> None:
    """Let torch compute one operator at a time, in so many threads."""
    import torch

    torch.set_num_threads(threads)
    if torch.get_num_interop_threads() != 1:
        torch.set_num_interop_threads(1)


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
        with _refusals(path, "a torch.export program", "nothing that torch.export writes"):
            _check_file_names(entries, untrusted.PROGRAM_FILES)
            text = _check_exported(torch._C.PyTorchFileReader(_rewound(file)), entries)
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
                "{} cannot be read as a torch.export program: {}".format(path, reason(error))
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
        if any(untrusted.MOBILE_NAMES.fullmatch(name) for name in entries):
            raise BadOption(
                "{} was saved for PyTorch Mobile, which is not read; save it with torch.jit.save".format(path)
            )
        with _refusals(path, "TorchScript", "not allowed in TorchScript"):
            _check_file_names(entries, untrusted.SCRIPT_FILES)
            reader = torch._C.PyTorchFileReader(_rewound(file))
            for name in entries:
                if name.endswith(".py"):
                    untrusted.check_code(reader.get_record(name).decode())
                elif name.endswith(".pkl"):
                    untrusted.check_pickle(reader.get_record(name))
        try:
            return torch.jit.load(_path_of(file, path), map_location="cpu").eval()
        except RuntimeError as error:
            raise BadOption("{} cannot be read as TorchScript: {}".format(path, error)) from error


@contextlib.contextmanager
def _refusals(path: str, form: str, reproach: str) -> Iterator[None]:
    """Say of a file why it is refused: what stands in it, or what its reader came upon."""
    try:
        yield
    except untrusted.Untrusted as problem:
        raise BadOption("{} was not read: {} is {}".format(path, problem, reproach)) from None
    except (RuntimeError, ValueError) as error:
        raise BadOption("{} cannot be read as {}: {}".format(path, form, reason(error))) from error


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


def _entries(file: IO[bytes], path: str) -> Dict[str, Entry]:
    if file.read(4) != b"PK\3\4":
        raise BadOption("{} is not a file that torch saved (no zip archive), or it is cut off".format(path))
    try:
        return relative_names(read_directory(file))
    except Ambiguous as problem:
        raise BadOption("{} is not a file that torch saved: {}".format(path, problem)) from None


def _check_file_names(entries: Dict[str, Entry], pattern: Pattern[str]) -> None:
    for name in entries:
        if pattern.fullmatch(name) is None:
            raise untrusted.Untrusted("the file {}".format(untrusted.shortened(name)))


def _check_exported(reader: Any, entries: Dict[str, Entry]) -> str:
    """Check every text of a program as torch's reader returns it; returns that of the program itself."""
    sizes = {name: entry.size_bytes for name, entry in entries.items()}
    texts: Dict[str, str] = {}
    for name in sizes:
        if name.endswith(".json") and not name.startswith("extra/"):
            if sizes[name] > _LARGEST_TEXT_BYTES:
                raise untrusted.Untrusted("a text of {} bytes".format(sizes[name]))
            texts[name] = reader.get_record(name).decode()
    for name, text in texts.items():
        folder = os.path.dirname(name)
        if folder == "models":
            untrusted.check_program(json.loads(text))
        else:
            untrusted.check_payloads(json.loads(text), sizes, folder)
    return texts.get("models/model.json", "")


def reason(error: BaseException) -> str:
    """What went wrong first, in one line without colours; torch adds tracebacks of its own."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = re.sub("\\x1b\\[[0-9;]*m", "", str(error))
    return "{}: {}".format(type(error).__name__, " ".join(text.split())[:400])


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
