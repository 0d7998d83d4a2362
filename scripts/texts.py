"""Print every text that a user may read, by file and line: to be read from beginning to end.

python scripts/texts.py [FOLDER…]
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_SOURCE = Path(__file__).parent.parent / "src" / "inferlab"
# A word of letters beside another one, or one that ends as a sentence does: prose, not a key or a path.
_PROSE = re.compile(r"[A-Za-z]{2,} [a-z]+|^[A-Z][a-z]+ [A-Z][a-z]+|^[A-Z][a-z]+[.:…]$")


def main() -> None:
    """Print the texts of all Python files below the named folders of src/inferlab, or of all."""
    roots = [_SOURCE / name for name in sys.argv[1:]] or [_SOURCE]
    for root in roots:
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            for line, text in texts(ast.parse(path.read_text())):
                print(f"{path.relative_to(_SOURCE)}:{line}: {text}")


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every literal that looks like prose, {…} for what is filled in; docstrings are for those who read code."""
    docstrings, parts = set(), set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            docstrings.add(id(body[0].value))
        if isinstance(node, ast.JoinedStr):
            parts |= {id(value) for value in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | parts:
            text = node.value
        else:
            continue
        if _PROSE.search(text):
            yield node.lineno, " ".join(text.split())


if __name__ == "__main__":
    main()
