"""What sentences advise, in the words of the pages: they were written for the command line."""

from __future__ import annotations

import re

_FIELDS = (
    (r'Give its shape, for example: -shapes "(.+?)"', r"Give its shape in the field Input Shapes, for example \1"),
    (
        r"other shapes are given with -shapes or --sequence_length",
        "give other shapes in the field Input Shapes",
    ),
    (r"; --timeout sets how long to wait", ""),
    (r"Install it with: inferlab engines install \S+", "Install it under Engines on the start page."),
    (r"See: inferlab engines", "See Engines on the start page."),
    (r"See: inferlab history", "See Benchmarks."),
    (r"Measure it again: inferlab rerun( \S+)?", "Choose Re-run in its menu."),
    (r"Give an ONNX file; inferlab export writes one", "Make a project of its ONNX file"),
    (r"leave out --no-performance and --no-loss", "switch both on"),
    (r"Give a larger --budget", "Allow more loss"),
    (r"Name that file with --data", "Choose that file as Data File"),
)
_OPTIONS = {
    "-shapes": "Input Shapes",
    "--input_shapes": "Input Shapes",
    "--sequence_length": "Sequence Length",
    "--data": "Data File",
    "--int8": "INT8 copy",
    "--levels": "Times of pruned copies",
    "--roofline": "Roofline",
    "--rate": "Requests a Second",
}
_OPTION = re.compile("|".join(rf"(?<![\w-]){re.escape(one)}(?![\w-])" for one in _OPTIONS))


def on_pages(text: str) -> str:
    """A sentence with the fields and buttons of the pages in place of options and commands."""
    for pattern, told in _FIELDS:
        text = re.sub(pattern, told, text)
    return _OPTION.sub(lambda found: _OPTIONS[found[0]], text)
