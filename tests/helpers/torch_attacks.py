"""Torch files that would run code where they are trusted: each is a genuine file with one thing changed."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: The files of an archive, by their names in its one folder.
Files = dict[str, bytes]

PROGRAM = "models/model.json"


class Harmful:
    """A pickle that makes a file where it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return open, (str(self.marker), "w")


def harmful_pickle(marker: Path, protocol: int = 2) -> bytes:
    return pickle.dumps(Harmful(marker), protocol)


def code(marker: Path) -> str:
    """A Python expression that makes the marker, without a quote in it."""
    letters = "+".join(f"chr({ord(letter)})" for letter in str(marker))
    return f"open({letters},chr(119))"


def zipped(files: Files, root: str = "n", compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(f"{root}/{name}", data)
    return buffer.getvalue()


def unzipped(path: Path) -> Files:
    with zipfile.ZipFile(path) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def _changed(files: Files, change: Callable[[Any], None], name: str = PROGRAM) -> Files:
    data = json.loads(files[name])
    change(data)
    return {**files, name: json.dumps(data).encode()}


def guarded(files: Files, marker: Path) -> bytes:
    """The text of a program whose guard is code."""
    return _changed(files, lambda data: data.update(guards_code=[code(marker)]))[PROGRAM]


# What is in the archive, and how it is written.


def _other_case(files: Files, marker: Path) -> bytes:
    renamed = {"models/model.JSON" if name == PROGRAM else name: data for name, data in files.items()}
    return zipped({**renamed, "models/model.JSON": guarded(files, marker)})


def _twin_in_other_case(files: Files, marker: Path) -> bytes:
    return zipped({"Models/model.json": guarded(files, marker), **files})


def _other_ending(files: Files, marker: Path) -> bytes:
    renamed = {"models/model.evil" if name == PROGRAM else name: data for name, data in files.items()}
    return zipped({**renamed, "models/model.evil": guarded(files, marker)})


def _second_program(files: Files, marker: Path) -> bytes:
    more = {name.replace("model_", "other_"): data for name, data in files.items() if "_config.json" in name}
    more["data/sample_inputs/other.pt"] = files["data/sample_inputs/model.pt"]
    return zipped({**files, **more, "models/other.text": guarded(files, marker)})


def _older_format(files: Files, marker: Path) -> bytes:
    """A program that fails with RuntimeError makes torch.export.load look for that of an older version."""
    broken = {**files, "data/weights/weight_0": b"\0" * 3}
    return zipped({**broken, "serialized_exported_program.json": guarded(files, marker), "version": b"8.20"})


def _twice(files: Files, marker: Path) -> bytes:
    # Two entries of one length, so that one name can be made the other's.
    other = {PROGRAM.replace("model.json", "nodel.json"): guarded(files, marker)}
    return zipped({**other, **files}).replace(b"n/models/nodel.json", b"n/models/model.json")


def _shifted(files: Files, marker: Path) -> bytes:
    """Offsets count from the start of the file for one reader, from the first entry for the other."""
    harm = zipped({**files, PROGRAM: guarded(files, marker)})
    return harm + zipped(files)


def _bytes_before(files: Files, marker: Path) -> bytes:
    return b"PK\3\4" + b"#!/bin/sh\n" + zipped({**files, PROGRAM: guarded(files, marker)})


def _second_directory(files: Files, marker: Path) -> bytes:
    return zipped(files) + zipped({**files, PROGRAM: guarded(files, marker)})[-22:]


def _comment(files: Files, marker: Path) -> bytes:
    harm = zipped({**files, PROGRAM: guarded(files, marker)})
    return zipped(files)[:-2] + struct.pack("<H", len(harm)) + harm


def _other_local_name(files: Files, marker: Path) -> bytes:
    data = zipped({**files, PROGRAM: guarded(files, marker)})
    return data.replace(b"n/models/model.json", b"n/models/m0del.json", 1)


def _gap(files: Files, marker: Path) -> bytes:
    """Bytes between the entries and the directory, which the end record still finds."""
    data = zipped({**files, PROGRAM: guarded(files, marker)})
    start = struct.unpack("<I", data[-6:-2])[0]
    return data[:start] + b"hidden" + data[start:-6] + struct.pack("<IH", start + 6, 0)


def _locator(files: Files, marker: Path) -> bytes:
    """A second end record that leads to another directory."""
    data = zipped({**files, PROGRAM: guarded(files, marker)})
    record = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, 60, 10)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, len(data) - 22, 1)
    return data[:-22] + record + locator + data[-22:]


def _flag(bit: int) -> Callable[[Files, Path], bytes]:
    def make(files: Files, marker: Path) -> bytes:
        data = bytearray(zipped({**files, PROGRAM: guarded(files, marker)}))
        start = struct.unpack("<I", data[-6:-2])[0]
        for offset in (6, start + 8):
            data[offset] |= bit
        return bytes(data)

    return make


def _named(name: str) -> Callable[[Files, Path], bytes]:
    def make(files: Files, marker: Path) -> bytes:
        return zipped({**files, PROGRAM: guarded(files, marker), name: b"x"})

    return make


def _link(files: Files, marker: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(f"n/{name}")
            entry.external_attr = 0o120777 << 16 if name == PROGRAM else 0
            archive.writestr(entry, data)
    return buffer.getvalue()


def _bomb(files: Files, marker: Path) -> bytes:
    """A kilobyte that says to be a gigabyte."""
    zeros = 1 << 20
    data = zipped({**files, "extra/zeros": bytes(zeros)}, compression=zipfile.ZIP_DEFLATED)
    return data.replace(struct.pack("<I", zeros), struct.pack("<I", 1 << 30))


def _other_compression(files: Files, marker: Path) -> bytes:
    return zipped(files, compression=zipfile.ZIP_LZMA)


def _library(files: Files, marker: Path) -> bytes:
    return zipped({**files, "data/aotinductor/model/wrapper.so": b"\x7fELF"})


ARCHIVES: dict[str, Callable[[Files, Path], bytes]] = {
    "ending in another case": _other_case,
    "twin in another case": _twin_in_other_case,
    "another ending": _other_ending,
    "second program": _second_program,
    "program of the older format": _older_format,
    "a name twice": _twice,
    "shifted directory": _shifted,
    "bytes before": _bytes_before,
    "second end record": _second_directory,
    "archive in a comment": _comment,
    "local name differs": _other_local_name,
    "bytes before the directory": _gap,
    "large-file end record differs": _locator,
    "encrypted": _flag(1),
    "patched": _flag(1 << 5),
    "absolute name": _named("/etc/passwd"),
    "name that climbs": _named("../../escape"),
    "backslash": _named("..\\escape"),
    "link": _link,
    "compression bomb": _bomb,
    "other compression": _other_compression,
    "compiled library": _library,
}

# What is in the program's text.


def _program(change: Callable[[Any, Path], None]) -> Callable[[Files, Path], bytes]:
    return lambda files, marker: zipped(_changed(files, lambda data: change(data, marker)))


def _graph(data: Any) -> Any:
    return data["graph_module"]["graph"]


def _signature(data: Any) -> Any:
    return data["graph_module"]["module_call_graph"][0]["signature"]


def _replaced(data: Any, old: str, new: str) -> None:
    """Put a text in the place of another everywhere."""
    text = json.dumps(data).replace(json.dumps(old), json.dumps(new))
    data.clear()
    data.update(json.loads(text))


def _guard(text: str) -> Callable[[Files, Path], bytes]:
    return _program(lambda data, marker: data.update(guards_code=[text.replace("CODE", code(marker))]))


def _expression(text: str) -> Callable[[Files, Path], bytes]:
    def change(data: Any, marker: Path) -> None:
        for meta in _graph(data)["tensor_values"].values():
            for size in meta["sizes"]:
                if "as_expr" in size:
                    size["as_expr"]["expr_str"] = text.replace("CODE", code(marker))

    return _program(change)


def _target(text: str, *arguments: Any) -> Callable[[Files, Path], bytes]:
    def change(data: Any, marker: Path) -> None:
        node = _graph(data)["nodes"][0]
        node["target"] = text
        if arguments:
            given = [json.loads(json.dumps(argument).replace("MARKER", str(marker))) for argument in arguments]
            node["inputs"] = [{"name": "", "arg": one, "kind": 1} for one in given]

    return _program(change)


def _from_file(data: Any, marker: Path) -> None:
    node = _graph(data)["nodes"][0]
    node["target"] = "torch.ops.aten.from_file.default"
    node["inputs"] = [
        {"name": "filename", "arg": {"as_string": str(marker)}, "kind": 1},
        {"name": "shared", "arg": {"as_bool": True}, "kind": 2},
        {"name": "size", "arg": {"as_int": 4}, "kind": 2},
    ]


def _tree(which: str, tree: Any) -> Callable[[Files, Path], bytes]:
    def change(data: Any, marker: Path) -> None:
        text = json.dumps([1, tree]).replace("CODE", code(marker))
        _signature(data)[which] = text

    return _program(change)


_LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}


def _inputs(context: str, kind: str = "builtins.dict") -> Any:
    arguments = {"type": "builtins.tuple", "context": "null", "children_spec": []}
    named = {"type": kind, "context": context, "children_spec": [_LEAF]}
    return {"type": "builtins.tuple", "context": "null", "children_spec": [arguments, named]}


def _forward_names(data: Any, marker: Path) -> None:
    _signature(data)["forward_arg_names"] = [f"x={code(marker)}"]


def _keyword(data: Any, marker: Path) -> None:
    node = _graph(data)["nodes"][0]
    node["target"] = "torch.ops.higher_order.cond"
    node["inputs"] = [{"name": f"x={code(marker)},y", "arg": {"as_int": 1}, "kind": 2}]


def _custom_object(data: Any, marker: Path) -> None:
    spec = {"custom_obj": {"arg": {"name": "o", "class_fqn": "os"}, "custom_obj_name": "o"}}
    data["graph_module"]["signature"]["input_specs"].append(spec)


def _source_functions(data: Any, marker: Path) -> None:
    _graph(data)["nodes"][0]["metadata"]["source_fn_stack"] = "x,torch.__init__.__globals__"


def _pickled(payload: str, config: str, is_param: bool = False) -> Callable[[Files, Path], bytes]:
    """A pickle in the place of a tensor."""

    def make(files: Files, marker: Path) -> bytes:
        entry = {"path_name": payload.rpartition("/")[2], "is_param": is_param, "use_pickle": True}
        changed = _changed(files, lambda data: data["config"].update(harm={**entry, "tensor_meta": None}), config)
        return zipped({**changed, payload: harmful_pickle(marker)})

    return make


def _added(name: str) -> Callable[[Files, Path], bytes]:
    return lambda files, marker: zipped({**files, name: harmful_pickle(marker)})


def _zeros(files: Files, marker: Path) -> bytes:
    """An empty file that says to be a tensor of 4 TB."""

    def change(data: Any) -> None:
        first = next(iter(data["config"].values()))
        first["tensor_meta"]["sizes"] = [{"as_int": 1 << 40}]
        first["tensor_meta"]["strides"] = [{"as_int": 1}]

    changed = _changed(files, change, "data/weights/model_weights_config.json")
    return zipped({**changed, "data/weights/weight_0": b""})


PROGRAMS: dict[str, Callable[[Files, Path], bytes]] = {
    "guard": _guard("CODE"),
    "guard with a quote": _guard("L['x'].size()[0] != L['\"), CODE, (\"'].size()[0]"),
    "guard, comprehension": _guard("[CODE for x in (1,)]"),
    "guard, attribute": _guard("().__class__.__base__.__subclasses__()"),
    "guard, two lines": _guard("1)\n  CODE\n  (1"),
    "expression": _expression("CODE"),
    "expression in a text": _expression("S('CODE')"),
    "expression, lambda": _expression("(lambda: CODE)()"),
    "expression, full-width letters": _expression("ｏpen(chr(1))"),
    "expression, tower": _expression("9**9**9**9"),
    "name of a node": _program(lambda data, marker: _replaced(data, "relu", f"relu = {code(marker)}; y")),
    "name of an input": _program(lambda data, marker: _replaced(data, "x", f"x={code(marker)}, y")),
    "name of a parameter": _program(
        lambda data, marker: _replaced(data, "c.weight", f'c"), {code(marker)}, ("weight')
    ),
    "names of arguments": _program(_forward_names),
    "keyword of an operator": _program(_keyword),
    "operator of Python": _target("_operator.methodcaller", {"as_string": "x"}),
    "attribute getter": _target("_operator.attrgetter", {"as_string": "x"}),
    "call of Python": _target("_operator.call", {"as_operator": "torch.hub.load"}),
    "function of torch": _target("torch.save", {"as_int": 1}, {"as_string": "MARKER"}),
    "loading of a library": _target("torch.ops.load_library", {"as_string": "MARKER"}),
    "attribute of an operator": _target("torch.ops.aten.relu.default.__init__", {"as_int": 1}),
    "table of operators": _target("torch.ops.aten._dir.append", {"as_string": "x"}),
    "operator as an argument": _target("torch.ops.higher_order.cond", {"as_operator": "torch.hub.load"}),
    "compiled delegate": _target("torch.ops.higher_order.aoti_call_delegate", {"as_string": "MARKER"}),
    "other processes": _target("torch.ops.c10d.broadcast_.default"),
    "tensor from a file": _program(_from_file),
    "tensor into a file": _target("torch.ops.aten.save.default", {"as_int": 1}, {"as_string": "MARKER"}),
    "extension": _target("#os:system"),
    "key of an input": _tree("in_spec", _inputs(json.dumps(["x':0, 'y':CODE, 'z"]))),
    "factory of a dict": _tree(
        "out_spec",
        {
            "type": "collections.defaultdict",
            "context": {
                "default_factory_module": "harmful_module",
                "default_factory_name": "x",
                "dict_context": [],
            },
            "children_spec": [],
        },
    ),
    "enumeration of a module": _tree(
        "out_spec",
        {
            "type": "builtins.dict",
            "context": json.dumps([{"__enum__": True, "fqn": "harmful_module:x", "name": "y"}]),
            "children_spec": [_LEAF],
        },
    ),
    "foreign container": _tree("out_spec", {"type": "os.system", "context": "null", "children_spec": []}),
    "custom object": _program(_custom_object),
    "source functions": _program(_source_functions),
    "device": _program(lambda data, _: _replaced(data, "cpu", "privateuseone")),
    "number that is none": _program(lambda data, _: _graph(data).update(inputs=[{"as_int": "1"}])),
    "pickled weight": _pickled("data/weights/weight_9", "data/weights/model_weights_config.json", is_param=True),
    "pickled constant": _pickled("data/constants/tensor_9", "data/constants/model_constants_config.json"),
    "opaque constant": _pickled("data/constants/opaque_obj_0", "data/constants/model_constants_config.json"),
    "torchbind constant": _pickled("data/constants/custom_obj_0", "data/constants/model_constants_config.json"),
    "payload that climbs": _pickled("data/weights/../x", "data/weights/model_weights_config.json"),
    "pickled sample inputs": _added("data/sample_inputs/model.pt"),
    "weights of the older format": _added("data/weights/model.pt"),
    "constants of the older format": _added("data/constants/model.pt"),
    "tensor without data": _zeros,
}

# TorchScript. Each changes the code, given as the body of forward; MARKER is the path.


def _forward(body: str, state: str = "") -> Callable[[Files, Path], bytes]:
    def make(files: Files, marker: Path) -> bytes:
        changed = dict(files)
        name = next(file for file in files if file.startswith("code/") and file.endswith(".py"))
        text = files[name].decode()
        head, _, _ = text.partition("    return")
        added = "".join(f"    {line}\n" for line in body.replace("MARKER", str(marker)).splitlines())
        changed[name] = f"{head}{added}    return x\n{state.replace('MARKER', str(marker))}".encode()
        return zipped({one: data for one, data in changed.items() if not one.endswith("debug_pkl")})

    return make


def _script_pickle(name: str) -> Callable[[Files, Path], bytes]:
    return lambda files, marker: zipped({**files, name: harmful_pickle(marker)})


def _script_class(files: Files, marker: Path) -> bytes:
    harm = b"\x80\x02c__torch__.torch\nclasses._nnapi.Compilation\n)\x81."
    return zipped({**files, "data.pkl": harm})


def _script_twin(files: Files, marker: Path) -> bytes:
    return zipped({**files, "DATA.PKL": harmful_pickle(marker)})


def _flatbuffer(files: Files, marker: Path) -> bytes:
    return b"\x20\0\0\0PTMF" + bytes(200)


SCRIPTS: dict[str, Callable[[Files, Path], bytes]] = {
    "saves": _forward('torch.save(x, "MARKER")'),
    "saves as a method": _forward('(x).save("MARKER", )'),
    "saves by getattr": _forward('getattr(x, "save")("MARKER")'),
    "saves by joined texts": _forward('getattr(x, "sa" "ve")("MARKER")'),
    "saves by an escape": _forward('getattr(x, "\\163ave")("MARKER")'),
    "saves by another name": _forward('t = torch\n(t).save(x, "MARKER")'),
    "saves with a comment": _forward('torch. # x\n(x).save("MARKER")'),
    "saves on loading": _forward(
        "y = x",
        '  def __setstate__(self,\n    state: Tensor) -> NoneType:\n    torch.save(state, "MARKER")\n'
        "    return None\n",
    ),
    "reads a file": _forward('y = torch.from_file("MARKER", True, 4)'),
    "operators by another name": _forward('o = ops\n(o).aten.save(x, "MARKER")'),
    "operators of a library": _forward('ops._nnapi.load(x, "MARKER")'),
    "other processes": _forward("ops.prim.rpc_sync(x)"),
    "Python": _forward("ops.prim.PythonOp(x)"),
    "class of a library": _forward("y = __torch__.torch.classes._nnapi.Compilation()"),
    "prefixed text": _forward('y = r"\\"'),
    "pickled data": _script_pickle("data.pkl"),
    "pickled constants": _script_pickle("constants.pkl"),
    "pickled class of a library": _script_class,
    "mobile bytecode": _script_pickle("bytecode.pkl"),
    "file of the first format": _script_pickle("model.json"),
    "unknown file": _script_pickle("code/harm.so"),
    "twin in another case": _script_twin,
    "flatbuffer": _flatbuffer,
}
