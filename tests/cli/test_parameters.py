"""Lists and ranges as the command line takes them."""

from __future__ import annotations

from typing import Any

import pytest

from inferlab.cli.serve import Bytes
from inferlab.options import Kind, Number, Option, Whole, Word
from inferlab.options.kinds import Prices


def listed(kind: Kind) -> Option:
    """An option that takes a list."""
    return Option(("-x",), kind, "Measuring", "", many="commas")


@pytest.mark.parametrize(
    ("kind", "text", "values"),
    [
        (Whole(), "8", (8,)),
        (Whole(), "1,8,32", (1, 8, 32)),
        (Whole(), " 4 , 1,4", (4, 1)),
        (Whole(), "1-4", (1, 2, 3, 4)),
        (Whole(), "2-10+4", (2, 6, 10)),
        (Whole(), "1-64*2", (1, 2, 4, 8, 16, 32, 64)),
        (Whole(), "1-100x10,7", (1, 10, 100, 7)),
        (Whole(), "-1", (-1,)),
        (Whole(most=True), "1,max", (1, None)),
        (Number(), "50,100.5", (50.0, 100.5)),
        (Prices(), "c7i=0.0892, zone=a=1", (("c7i", 0.0892), ("zone=a", 1.0))),
        (Word(), "onnxruntime, my.py:Engine", ("onnxruntime", "my.py:Engine")),
        (Word("sync", "async"), "async,sync,async", ("async", "sync")),
    ],
)
def test_a_list_is_read_in_the_order_given_each_value_once(kind: Kind, text: str, values: tuple[Any, ...]) -> None:
    assert listed(kind).read(text) == values


def test_a_plan_file_gives_lists_as_lists() -> None:
    assert listed(Whole()).read([1, "2-4*2"]) == (1, 2, 4)
    assert listed(Whole()).read(["8"]) == (8,)


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (Whole(), "two", "'two' is not a whole number such as 8, nor a range"),
        (Whole(), "1,,2", "'' is not a whole number"),
        (Whole(), "max", "'max' is not a whole number"),
        (Whole(), "8-1", "does not lead from its first to its last number"),
        (Whole(), "1-8*1", "does not lead from its first to its last number"),
        (Whole(), "0-8*2", "does not lead from its first to its last number"),
        (Whole(), "1-8+0", "does not lead from its first to its last number"),
        (Whole(), "1-1000000", "has more than 1000 numbers"),
        (Number(), "fast", "'fast' is not a number"),
        (Word("sync"), "async", "'async' is not one of sync"),
        (Word(), "a,,b", "a name is missing between commas"),
        (Prices(), "c7i", "'c7i' is not a price per hour such as c7i=0.0892."),
        (Prices(), "c7i=free", "'c7i=free' is not a price per hour"),
        (Prices(), "c7i=0", "'c7i=0' is not a price per hour"),
    ],
)
def test_what_is_no_list_is_refused_with_a_sentence(kind: Kind, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("'", "'")):
        listed(kind).read(text)


@pytest.mark.parametrize(
    ("text", "count"), [("4G", 4 * 2**30), ("500M", 500 * 2**20), ("1.5k", 1536), ("2 GiB", 2**31), ("10", 10)]
)
def test_a_size_is_read_in_binary_units(text: str, count: int) -> None:
    assert Bytes().convert(text, None, None) == count
