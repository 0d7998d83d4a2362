"""Run benchmarks by name, one after the other; without names those that hold inferlab to a bare loop."""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
from pathlib import Path

#: What `make bench` runs.
LOOP = ("startup", "sync_overhead", "c_api", "async_streams", "bare_engines")
#: What programs are made of; they print nothing of their own.
_PARTS = ("__init__", "__main__", "bare", "bare_generation", "side_by_side", "slowed")


def programs() -> dict[str, str]:
    """Every program and what it answers."""
    files = sorted(file for file in Path(__file__).parent.glob("*.py") if file.stem not in _PARTS)
    docstrings = {file.stem: ast.get_docstring(ast.parse(file.read_text())) or "" for file in files}
    return {name: docstring.splitlines()[0] for name, docstring in docstrings.items()}


def main() -> None:
    """Run what is named; `--help` lists all."""
    known = programs()
    listed = "\n".join(f"  {name:18} {answer}" for name, answer in known.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=f"{listed}\n\nOptions of one: python -m benchmarks.NAME --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="of what is listed below")
    arguments, options = parser.parse_known_args()
    names: list[str] = arguments.names
    if options and len(names) != 1:
        parser.error(f"{options[0]} is an option of one program: name that one alone")
    if unknown := [name for name in names if name not in known]:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(known)}")
    for name in names or LOOP:
        print(f"\n## {known[name]}", flush=True)
        sys.argv[1:] = options
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
