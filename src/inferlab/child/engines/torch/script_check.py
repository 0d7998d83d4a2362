"""What a TorchScript archive may hold before torch.jit.load compiles it.

torch.jit.load unpickles with a reader in C++ that knows TorchScript's types only, and compiles the archive's code;
but it runs `__setstate__` of the objects in it, and TorchScript has operators that write and read files
(aten::save, aten::from_file), call Python or other processes, and classes of libraries (torch.classes) that load
more. So the code is split into tokens here, and may name no such operator or class, by any spelling.
"""

from __future__ import annotations

import pickletools
import re
from typing import List, Tuple

from .program_check import NAMESPACES, REACHING_OUT, Untrusted, shortened

#: The files of an archive that torch.jit.save writes.
FILE_NAMES = re.compile(
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
