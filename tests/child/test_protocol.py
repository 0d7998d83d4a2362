"""Framed messages."""

from __future__ import annotations

import io
from array import array
from typing import Any

import numpy as np
import pytest

from inferlab.child import protocol


def through(message: dict[str, Any], blocks: list[Any]) -> tuple[dict[str, Any], list[bytes]]:
    pipe = io.BytesIO()
    protocol.send(pipe, message, blocks)
    pipe.seek(0)
    return protocol.receive(pipe)


def test_a_message_and_its_blocks_arrive_as_they_were_sent() -> None:
    message, blocks = through({"do": "x", "n": [1, None]}, [b"abc", array("q", [1, 2]), b""])
    assert message == {"do": "x", "n": [1, None]}
    assert blocks == [b"abc", array("q", [1, 2]).tobytes(), b""]


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array(5, dtype=np.int64),
        np.zeros((0, 4), np.float16),
        np.array(["a", "bcd"]),
        np.arange(12).reshape(3, 4).T,
        np.array([True, False]),
    ],
)
def test_arrays_arrive_equal_and_writable(value: np.ndarray[Any, Any]) -> None:
    heads, blocks = protocol.pack_arrays({"x": value})
    message, received = through({"arrays": heads}, list(blocks))
    arrived = protocol.unpack_arrays(message["arrays"], received)["x"]
    assert arrived.dtype == value.dtype and arrived.shape == value.shape
    assert np.array_equal(arrived, value)
    assert arrived.flags.writeable and arrived.flags.c_contiguous


@pytest.mark.parametrize("cut", [0, 3, 8, 20])
def test_a_pipe_that_ends_in_the_middle_is_closed(cut: int) -> None:
    pipe = io.BytesIO()
    protocol.send(pipe, {"do": "something"}, [b"0123456789"])
    with pytest.raises(protocol.Closed):
        protocol.receive(io.BytesIO(pipe.getvalue()[:cut]))
