"""Data files that are small and declare much are refused before room is made for what they declare."""

from __future__ import annotations

import io
import resource
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferlab.errors import BadInput
from inferlab.model.inputs import array_names, make_inputs, memory_limit, read_arrays, read_data
from inferlab.records import TensorSpec

X = TensorSpec("x", "float32", (None, 4))


def npz(path: Path, entries: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def header(shape: tuple[int, ...], descr: str = "<f4") -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_an_archive_that_would_fill_the_memory_is_refused_by_its_header(tmp_path: Path) -> None:
    rows = memory_limit() // 16 + 1
    path = npz(tmp_path / "bomb.npz", {"x.npy": header((rows, 4)) + bytes(64 << 20)})
    assert path.stat().st_size < 100_000
    before = peak_bytes()
    with pytest.raises(BadInput, match=r"'x' in .* takes .* GB; data may take .* GB here in all"):
        read_data(path, [X])
    assert peak_bytes() - before < 32 << 20


def test_the_limit_is_that_of_all_arrays_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferlab.model.inputs.memory_limit", lambda: 100)
    path = tmp_path / "two.npz"
    np.savez(path, a=np.zeros(20, np.float32), b=np.zeros(20, np.float32))
    assert read_arrays(path, ["a"])["a"].nbytes == 80
    with pytest.raises(BadInput, match=r"'b' in .* takes"):
        read_arrays(path, ["a", "b"])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (header((2, 4)) + bytes(31), "'x' has fewer bytes than its shape needs"),
        (header((2, 4)) + bytes(33), "'x' has more bytes than its shape needs"),
        (header((2, 4), "|O") + bytes(64), "'x' is an array of object"),
        (header((2,), "<M8[s]") + bytes(16), "'x' is an array of datetime64"),
        (b"\x93NUMPY\x09\x00" + bytes(64), "'x' is written in version 9.0"),
        (b"", "EOF"),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"[" * 65535, ""),
    ],
    ids=["short", "long", "objects", "dates", "version", "empty", "brackets"],
)
def test_an_array_that_is_not_what_its_header_says_is_refused(
    content: bytes, problem: str, tmp_path: Path
) -> None:
    path = npz(tmp_path / "odd.npz", {"x.npy": content})
    with pytest.raises(BadInput, match=f"cannot be read as an .npz file: .*{problem}"):
        read_arrays(path, ["x"])


def test_two_arrays_of_one_name_and_very_many_are_refused(tmp_path: Path) -> None:
    path = npz(tmp_path / "twice.npz", {"x.npy": header((1,)) + bytes(4), "x": b""})
    with pytest.raises(BadInput, match="two of its arrays have the same name"):
        array_names(path)
    many = npz(tmp_path / "many.npz", {f"{index}.npy": b"" for index in range(10_001)})
    with pytest.raises(BadInput, match="10,001 entries, more than the 10,000 that are read"):
        array_names(many)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(12, dtype=np.int64).reshape(3, 4),
        np.asfortranarray(np.arange(12, dtype=np.float16).reshape(3, 4)),
        np.array(["a", "bc"]),
        np.array(True),
        np.zeros((0, 4), np.float32),
    ],
)
def test_what_numpy_writes_is_read_as_it_is(value: np.ndarray[Any, Any], tmp_path: Path) -> None:
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "file.npz", x=value)
        found = read_arrays(tmp_path / "file.npz", ["x"])["x"]
        np.testing.assert_array_equal(found, value)
        assert (found.dtype, found.shape) == (value.dtype, value.shape)


def test_an_input_that_the_memory_cannot_hold_is_refused_before_it_is_made() -> None:
    rows = memory_limit() // 16 + 1
    before = peak_bytes()
    with pytest.raises(BadInput, match=r"takes .* GB, more than .* a quarter of its memory"):
        make_inputs([X], {"x": (rows, 4)}, 0)
    assert peak_bytes() - before < 32 << 20
