"""Sentences of the command line in the words of the pages."""

from __future__ import annotations

import pytest

from inferlab.web.faults import on_pages


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (
            "The model does not say how many dimensions its input 'x' has. Give its shape, for example: "
            '-shapes "x=[1,128]"',
            "The model does not say how many dimensions its input 'x' has. Give its shape in the field Input "
            "shapes, for example x=[1,128]",
        ),
        (
            "It broke (Tried with x=[1, 128]; other shapes are given with -shapes or --sequence_length.)",
            "It broke (Tried with x=[1, 128]; give other shapes in the field Input shapes.)",
        ),
        (
            "Engine 'torch' is not installed. Install it with: inferlab engines install torch",
            "Engine 'torch' is not installed. Install it under Engines on the start page.",
        ),
        ("--levels, --int8 and --roofline belong", "Times of pruned copies, INT8 copy and Roofline belong"),
        ("What names no option stays: a-data--set.", "What names no option stays: a-data--set."),
    ],
)
def test_advice_names_what_to_click(written: str, shown: str) -> None:
    assert on_pages(written) == shown
