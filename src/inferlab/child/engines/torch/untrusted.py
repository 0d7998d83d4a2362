"""What torch.export programs and TorchScript may hold before torch reads them.

torch (2.13: _export/serde/serialize.py, export/_unlift.py, fx/graph.py) turns much of a program's text into code:
shape expressions go through sympy's eval, guards through exec; the names of nodes, arguments, parameters and
dictionary keys are pasted into Python source that is executed; operators are looked up by getattr; a pytree may
name a module to import. So every text in a program has a rule here, by the class and field of torch's schema that
holds it, and a text without a rule is refused. Of TorchScript, which is code, every name is checked.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import json
import pickletools
import re
import typing
from typing import Any, Callable, Dict, FrozenSet, List, Tuple


def _words(text: str) -> FrozenSet[str]:
    return frozenset(text.split())


#: The files of an archive that torch.export.save writes.
PROGRAM_FILES = re.compile(
    r"archive_format|archive_version|byteorder|version|\.data/\w+|\.format_version|\.storage_alignment"
    r"|models/model\.json|data/sample_inputs/model\.pt|data/(weights|constants)/model\.pt"
    r"|data/weights/(model_weights_config\.json|weight_\d+)"
    r"|data/constants/(model_constants_config\.json|tensor_\d+)|extra/.+"
)

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Names of modules, of dictionary keys and the like: they end up inside quotes.
_PATH = re.compile(r"[\w.\-/:+@ ]*")
_SOURCES = re.compile(r"[\w.,;]*", re.ASCII)
_PAYLOAD = re.compile(r"(weight|tensor)_\d{1,9}")
_CHARACTERS = re.compile(r"[\w \[\]().,'\"=<>!+*/%&|~\-]*", re.ASCII)
_NUMBER = re.compile(r"[\d.e+-]{1,60}", re.ASCII)
# Symbols of torch.export: s77, u0, zuf3.
_SYMBOL = re.compile(r"[a-z]{1,8}_?\d{1,7}", re.ASCII)
_FUNCTION_FAMILIES = re.compile(r"(OpaqueUnaryFn|BitwiseFn)_[a-z0-9_]+")
_FUNCTIONS = _words(
    """
    Symbol Integer Rational Float Half One Zero NegativeOne Infinity NegativeInfinity BooleanTrue BooleanFalse
    IntInfinity NegativeIntInfinity int_oo oo true false True False inf L math min max floor ceiling Abs abs
    Add Mul Pow Max Min Mod Eq Ne Lt Le Gt Ge Equality Unequality StrictLessThan LessThan StrictGreaterThan
    GreaterThan And Or Not Piecewise ExprCondPair FloorDiv ModularIndexing Where PythonMod CleanDiv CeilToInt
    FloorToInt CeilDiv LShift RShift PowByNatural FloatPow FloatTrueDiv IntTrueDiv TrueDiv
    IsNonOverlappingAndDenseIndicator TruncToFloat TruncToInt RoundToInt RoundDecimal ToFloat Identity
    cast_symbool_to_symint_guardless
    """
)
_ATTRIBUTES = _words("size stride storage_offset inf isnan sqrt floor ceil trunc pow log2 log exp cos sin tan")
_NODES = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.keyword, ast.Subscript),
    *(ast.Tuple, ast.Name, ast.Attribute, ast.Constant, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
    ast.expr_context,
)
_LONGEST_EXPRESSION = 20000

_OVERLOAD = re.compile(r"torch\.ops\.(\w+)\.(\w+)\.(\w+)", re.ASCII)
_HIGHER_ORDER = re.compile(r"torch\.ops\.higher_order\.(\w+)", re.ASCII)
_SYMBOLIC = re.compile(r"torch\.(sym_\w+|_sym_\w+|_check|_check_is_size)", re.ASCII)
#: Namespaces of operators that only compute.
NAMESPACES = _words(
    """
    aten prims prim quantized _quantized quantized_decomposed mkl mkldnn mkldnn_prepacked onednn sparse prepacked
    torchvision torchao
    """
)
#: Operators in these namespaces that reach beyond their arguments: files, Python, other processes.
REACHING_OUT = _words("save from_file PythonOp IgnoredPythonOp rpc_async rpc_sync rpc_remote")
# Operators around a part of the graph; others run compiled kernels, libraries or Python objects.
_HIGHER_ORDER_NAMES = _words(
    """
    cond while_loop map map_impl scan associative_scan wrap wrap_with_set_grad_enabled wrap_with_autocast out_dtype
    invoke_subgraph flex_attention auto_functionalized auto_functionalized_v2 tag_activation_checkpoint
    """
)
_OPERATORS = _words(
    """
    eq ne le ge lt gt neg pos mul add sub floordiv mod pow truediv and_ or_ lshift rshift getitem not_ abs index
    """
)
_MATH = _words("trunc ceil floor sqrt pow")

_LEAF: Dict[str, Any] = {"type": None, "context": None, "children_spec": []}
_CONTAINERS = re.compile(
    r"builtins\.\w+|collections\.\w+|torch\.return_types\.\w+|torch\.fx\.immutable_collections\.\w+"
    r"|torch\.Size|transformers(\.\w+)+",
    re.ASCII,
)
_FACTORIES = _words("list dict int float bool str set tuple")


class Untrusted(Exception):
    """Something in a program that torch.export does not write."""


def check_program(data: Any) -> None:
    """Refuse a program's JSON unless every text in it is of the kind that torch.export writes in its place."""
    from torch._export.serde import schema

    _check(schema.ExportedProgram, data, "")


def check_payloads(data: Any, sizes: Dict[str, int], folder: str) -> None:
    """Refuse the list of weights or constants unless it names raw tensors of the archive, as large as they say."""
    from torch._export.serde import schema

    _check(schema.PayloadConfig, data, "")
    for payload in data.get("config", {}).values():
        size_bytes = sizes.get("{}/{}".format(folder, payload.get("path_name")))
        if size_bytes is None:
            raise Untrusted("a tensor without data, {}".format(payload.get("path_name")))
        meta = payload.get("tensor_meta")
        # torch makes an empty file a tensor of zeros of any size.
        if size_bytes == 0 and meta and all(size.get("as_int") != 0 for size in meta["sizes"]):
            raise Untrusted("a tensor without data, {}".format(payload["path_name"]))


def _check(kind: Any, value: Any, field: str) -> None:
    from torch._export.serde import schema
    from torch._export.serde.union import _Union

    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if type(None) in arguments:
        if value is None:
            return
        kind = next(argument for argument in arguments if argument is not type(None))
        _check(kind, value, field)
    elif isinstance(kind, str):
        _check(getattr(schema, kind), value, field)
    elif origin is list:
        for item in _typed(value, list, field):
            _check(arguments[0], item, field)
    elif origin is dict:
        for key, item in _typed(value, dict, field).items():
            _check_text(field, key)
            if field == "Node.metadata" and key == "source_fn_stack":
                _check_text("Node.metadata source_fn_stack", item)
            _check(arguments[1], item, field)
    elif isinstance(kind, type) and issubclass(kind, _Union):
        if len(_typed(value, dict, field)) != 1:
            raise Untrusted("{} with {} values".format(kind.__name__, len(value)))
        name = next(iter(value))
        if name not in _fields(kind):
            raise Untrusted("{} in {}".format(name, kind.__name__))
        _check(_fields(kind)[name], value[name], "{}.{}".format(kind.__name__, name))
    elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if kind.__name__ in ("CustomObjArgument", "InputToCustomObjSpec"):
            raise Untrusted("a pickled object")
        _typed(value, dict, field)
        for name, hint in _fields(kind).items():
            if name in value:
                _check(hint, value[name], "{}.{}".format(kind.__name__, name))
    elif isinstance(kind, type) and issubclass(kind, enum.IntEnum):
        if type(value) is not int or value not in {int(member) for member in kind}:
            raise Untrusted("{!r} as {}".format(value, kind.__name__))
    elif kind is str:
        _check_text(field, value)
    elif kind is float:
        if type(value) not in (int, float) and value not in ("Infinity", "-Infinity", "NaN"):
            raise Untrusted("{!r} as {}".format(value, field))
    elif kind is int or kind is bool:
        _typed(value, kind, field)
    else:
        raise Untrusted("the field {}".format(field))


def _fields(kind: Any, cache: Dict[Any, Dict[str, Any]] = {}) -> Dict[str, Any]:  # noqa: B006  # a cache
    if kind not in cache:
        from torch._export.serde import schema

        cache[kind] = typing.get_type_hints(kind, globalns=vars(schema))
    return cache[kind]


def _typed(value: Any, kind: Any, field: str) -> Any:
    if type(value) is not kind:
        raise Untrusted("{} as {}".format(type(value).__name__, field or "the program"))
    return value


def _check_text(field: str, value: Any) -> None:
    rule = _RULES.get(field)
    if rule is None:
        raise Untrusted("the text {}".format(field))
    if type(value) is not str or not rule(value):
        raise Untrusted(shortened(value))


def shortened(value: Any) -> str:
    """A text for a message: not longer than a line."""
    text = " ".join(str(value).split())
    return text if len(text) <= 80 else text[:77] + "..."


def _is_identifier(text: str) -> bool:
    return _IDENTIFIER.fullmatch(text) is not None


def _is_path(text: str) -> bool:
    return _PATH.fullmatch(text) is not None


def _is_any(text: str) -> bool:
    return True


def _is_argument(text: str) -> bool:
    return text == "" or _is_identifier(text)


def is_arithmetic(text: str) -> bool:
    """Whether an expression only computes with sizes: sympy's functions, symbols, numbers, inputs by name."""
    if len(text) > _LONGEST_EXPRESSION or _CHARACTERS.fullmatch(text) is None:
        return False
    try:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(isinstance(node, _NODES) and _is_harmless(node) for node in nodes)


def _is_harmless(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id in _FUNCTIONS or any(rule.fullmatch(node.id) for rule in (_SYMBOL, _FUNCTION_FAMILIES))
    if isinstance(node, ast.Attribute):
        return node.attr in _ATTRIBUTES
    if isinstance(node, ast.Call):
        return isinstance(node.func, (ast.Name, ast.Attribute))
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)):
        # Towers of powers are computed when they are read.
        return isinstance(node.right, ast.Constant) and node.right.value in range(-64, 65)
    if isinstance(node, ast.Constant):
        # Some of sympy's functions evaluate texts: a plain name or number is harmless.
        plain = (_IDENTIFIER, _NUMBER)
        return not isinstance(node.value, (str, bytes)) or (
            isinstance(node.value, str) and "__" not in node.value and any(r.fullmatch(node.value) for r in plain)
        )
    return True


def _is_operator(text: str) -> bool:
    module, _, name = text.partition(".")
    if module in ("_operator", "math"):
        return name in (_OPERATORS if module == "_operator" else _MATH)
    higher_order = _HIGHER_ORDER.fullmatch(text)
    if higher_order is not None:
        return higher_order.group(1) in _HIGHER_ORDER_NAMES
    overload = _OVERLOAD.fullmatch(text)
    if overload is None:
        return _SYMBOLIC.fullmatch(text) is not None
    namespace, name, variant = overload.groups()
    return namespace in NAMESPACES and name not in REACHING_OUT and _is_overload(namespace, name, variant)


def _is_overload(namespace: str, name: str, variant: str) -> bool:
    """Whether this is an operator, or unknown, rather than some attribute of torch's tables of operators."""
    import torch

    packet = getattr(getattr(torch.ops, namespace), name, None)
    if packet is None:
        return "__" not in name + variant
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return False
    return variant in packet.overloads()


def _is_tree(text: str) -> bool:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return type(parsed) is list and len(parsed) == 2 and parsed[0] == 1 and _is_subtree(parsed[1])


def _is_subtree(tree: Any) -> bool:
    if type(tree) is not dict or set(tree) != set(_LEAF) or type(tree["children_spec"]) is not list:
        return False
    if tree["type"] is None:
        return bool(tree == _LEAF)
    if type(tree["type"]) is not str or _CONTAINERS.fullmatch(tree["type"]) is None:
        return False
    context = tree["context"]
    if type(context) is str:
        try:
            context = json.loads(context)
        except (ValueError, RecursionError):
            # Of a named tuple it is the name of its type.
            return _is_path(context) and all(_is_subtree(child) for child in tree["children_spec"])
    return _is_context(context) and all(_is_subtree(child) for child in tree["children_spec"])


def _is_context(value: Any) -> bool:
    if type(value) is dict:
        factory = (value.get("default_factory_module"), value.get("default_factory_name"))
        keys = {"default_factory_module", "default_factory_name", "dict_context"}
        allowed = set(value) == keys and factory[0] == "builtins" and factory[1] in _FACTORIES
        return allowed and _is_context(value["dict_context"])
    if type(value) is list:
        return all(_is_context(item) for item in value)
    return value is None or type(value) in (int, float, bool) or (type(value) is str and _is_path(value))


_Rule = Callable[[str], bool]
_RULES: Dict[str, _Rule] = {
    "SymExpr.expr_str": is_arithmetic,
    "ExportedProgram.guards_code": is_arithmetic,
    "ExportedProgram.range_constraints": is_arithmetic,
    "ExportedProgram.opset_version": _is_identifier,
    "ExportedProgram.verifiers": _is_identifier,
    "ExportedProgram.torch_version": _is_any,
    "Node.target": _is_operator,
    "Argument.as_operator": _is_operator,
    # Names of functions, looked up by getattr.
    "Node.metadata source_fn_stack": lambda text: _SOURCES.fullmatch(text) is not None and "__" not in text,
    "Node.metadata": _is_any,
    "GraphModule.metadata": _is_any,
    "GraphModule.treespec_namedtuple_fields": _is_path,
    "NamedTupleDef.field_names": _is_identifier,
    "ModuleCallEntry.fqn": _is_path,
    "ModuleCallSignature.in_spec": _is_tree,
    "ModuleCallSignature.out_spec": _is_tree,
    "Device.type": lambda text: text in ("cpu", "meta"),
    "Argument.as_string": _is_any,
    "Argument.as_strings": _is_any,
    "ConstantValue.as_string": _is_any,
    "NamedArgument.name": _is_argument,
    "InputToConstantInputSpec.name": _is_argument,
    "PayloadMeta.path_name": lambda text: _PAYLOAD.fullmatch(text) is not None,
    "PayloadConfig.config": _is_path,
    **dict.fromkeys(
        (
            *("Node.name", "TensorArgument.name", "TokenArgument.name", "GraphArgument.name"),
            *("SymIntArgument.as_name", "SymFloatArgument.as_name", "SymBoolArgument.as_name"),
            *("Graph.tensor_values", "Graph.sym_int_values", "Graph.sym_bool_values", "Graph.sym_float_values"),
            *("Argument.as_string_to_argument", "ModuleCallSignature.forward_arg_names"),
            *("GradientToUserInputSpec.user_input_name", "UserInputMutationSpec.user_input_name"),
        ),
        _is_identifier,
    ),
    **dict.fromkeys(
        (
            *("InputToParameterSpec.parameter_name", "InputToBufferSpec.buffer_name"),
            *("InputToTensorConstantSpec.tensor_constant_name", "BufferMutationSpec.buffer_name"),
            *("ParameterMutationSpec.parameter_name", "GradientToParameterSpec.parameter_name"),
        ),
        _is_path,
    ),
}


#: The files of an archive that torch.jit.save writes.
SCRIPT_FILES = re.compile(
    r"(data|constants|traced_inputs)\.pkl|(data|constants|traced_inputs|tensors)/\d+|code/.+\.py(\.debug_pkl)?"
    r"|version|byteorder|\.data/\w+|\.format_version|\.storage_alignment|extra/.+"
)
#: What torch.jit's mobile formats add.
MOBILE_NAMES = re.compile(r"bytecode\.pkl|bytecode/.*|mobile_debug_handles\.pkl|.*\.ff")

# As torch's own lexer takes it, but stricter: no comments, no prefixed or tripled quotes, no joined lines.
_TOKEN = re.compile(
    r"(?P<space>[ \t\n]+)"
    r"|(?P<number>(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?j?)"
    r"|(?P<name>[A-Za-z_]\w*(?![\"']))"
    r"|(?P<text>(\"([^\"\\\n]|\\.)*\"|'([^'\\\n]|\\.)*')(?![\"']))"
    r"|(?P<sign>[-+*/%@&|^~<>=!:;,.()\[\]{}])",
    re.ASCII,
)
_WORD = re.compile(r"[\"']\w+[\"']", re.ASCII)
# Packed weights; other classes load libraries or speak with other processes.
_CLASSES = frozenset({"quantized", "sparse", "xnnpack", "mkldnn", "rnn"})
_GLOBALS = re.compile(
    r"__torch__\.[\w.]+|torch\.jit\._pickle\.(build|restore)_\w+|torch\._utils\._rebuild_\w+|torch\.\w+Storage"
    r"|torch\.(device|Size|per_(tensor|channel)_\w+|_tensor\._rebuild_from_type_v2)|collections\.OrderedDict",
    re.ASCII,
)

_NOTHING = [("", "")] * 4


def check_code(text: str) -> None:
    """Refuse TorchScript that names an operator or class which reaches beyond the model."""
    tokens = _tokens(text)
    padded = [*tokens, *_NOTHING]
    for number, (kind, name) in enumerate(tokens):
        if kind != "name":
            continue
        before = tokens[number - 1][1] if number else ""
        dot, member, second_dot, namespace = [token for _, token in padded[number + 1 : number + 5]]
        if name in REACHING_OUT:
            raise Untrusted("the operator {}".format(name))
        if name in ("torch", "__torch__") and (dot != "." or not member.isidentifier()):
            raise Untrusted("the name {} on its own".format(name))
        if name == "torch" and member == "classes" and (second_dot != "." or namespace not in _CLASSES):
            raise Untrusted("the class torch.classes.{}".format(namespace))
        is_variable = before == "." or dot in (":", "=")
        if name == "ops" and not is_variable and (dot != "." or member not in NAMESPACES):
            raise Untrusted("the operators ops.{}".format(member))
        if name == "getattr":
            _check_getattr(tokens, number)


def check_pickle(data: bytes) -> None:
    """Refuse a pickle of TorchScript that names anything but TorchScript's own types."""
    try:
        named = [argument for code, argument, _ in pickletools.genops(data) if "GLOBAL" in code.name]
    except Exception as error:
        raise Untrusted("a damaged pickle ({})".format(shortened(error))) from None
    for argument in named:
        name = str(argument).replace(" ", ".")
        outside = re.match(r"__torch__\.torch\.classes(\.(\w+))?", name)
        if _GLOBALS.fullmatch(name) is None or (outside is not None and outside.group(2) not in _CLASSES):
            raise Untrusted(shortened(name))


def _check_getattr(tokens: List[Tuple[str, str]], number: int) -> None:
    """Its second argument is one plain word: texts can be joined and escaped."""
    depth, position = 0, number + 1
    while position < len(tokens):
        depth += {"(": 1, ")": -1}.get(tokens[position][1], 0)
        if depth <= 0:
            break
        position += 1
    comma, word = tokens[position - 2 : position] if position - number > 3 else (("", ""), ("", ""))
    if comma[1] != "," or _WORD.fullmatch(word[1]) is None or word[1][1:-1] in REACHING_OUT:
        raise Untrusted("getattr with {}".format(shortened(word[1])))


def _tokens(text: str) -> List[Tuple[str, str]]:
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Untrusted("the code {}".format(shortened(text[position : position + 40].split("\n")[0])))
        if match.lastgroup != "space":
            tokens.append((str(match.lastgroup), match.group()))
        position = match.end()
    return tokens
