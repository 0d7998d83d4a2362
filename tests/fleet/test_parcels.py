"""Files that travel: whole, checked, once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx
import pytest

from inferlab.errors import BadInput
from inferlab.fleet import parcels
from inferlab.fleet.parcels import PackedFile, Parcel, find, pack_file, pack_model, unpack
from inferlab.fleet.remote import receive
from inferlab.lab import read_model
from tests.helpers.onnx_files import save_linear


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path / "node"))
    monkeypatch.setattr(parcels, "PIECE_BYTES", 50)
    return tmp_path / "node" / "fleet"


def test_a_model_with_weights_in_other_files_arrives_as_it_was(tmp_path: Path, node: Path) -> None:
    proto = onnx.load(save_linear(tmp_path / "plain.onnx", "batch", width=64))
    path = tmp_path / "external.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    model = read_model(str(path))
    packed = pack_model(model)
    assert [file.name for file in packed.parcel.files] == ["external.onnx", "weights.bin"]
    assert find(packed.parcel) is None
    pieces = packed.pieces()
    there = unpack(packed.parcel, partial(next, pieces))
    assert find(packed.parcel) == there and node in there.parents
    assert read_model(str(there)).digest == model.digest
    assert next(pieces, None) is None


def test_what_was_damaged_on_its_way_is_refused_and_leaves_nothing(tmp_path: Path, node: Path) -> None:
    (tmp_path / "data.npz").write_bytes(bytes(120))
    packed = pack_file(str(tmp_path / "data.npz"))
    pieces = iter([bytes(50), b"x" * 50, bytes(20)])
    with pytest.raises(BadInput, match=r"data\.npz was damaged on its way"):
        unpack(packed.parcel, partial(next, pieces))
    assert list(node.iterdir()) == []


@pytest.mark.parametrize("now", [b"less", b"much more than it was"])
def test_a_file_that_changed_after_it_was_packed_is_refused(tmp_path: Path, node: Path, now: bytes) -> None:
    file = tmp_path / "data.npz"
    file.write_bytes(b"packed so")
    packed = pack_file(str(file))
    file.write_bytes(now)
    with pytest.raises(BadInput, match=r"data\.npz was damaged on its way"):
        receive(packed.parcel, packed.pieces())
    assert list(node.iterdir()) == []


def test_what_was_damaged_at_its_place_is_not_found_and_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "data.npz").write_bytes(b"good")
    packed = pack_file(str(tmp_path / "data.npz"))
    there = unpack(packed.parcel, partial(next, packed.pieces()))
    there.write_bytes(b"evil")
    assert find(packed.parcel) is None
    assert unpack(packed.parcel, partial(next, packed.pieces())).read_bytes() == b"good"


def test_what_another_node_with_the_same_cache_put_there_meanwhile_stays(tmp_path: Path, node: Path) -> None:
    (tmp_path / "data.npz").write_bytes(b"good")
    packed = pack_file(str(tmp_path / "data.npz"))
    there = unpack(packed.parcel, partial(next, packed.pieces()))
    before = there.stat().st_ino
    assert unpack(packed.parcel, partial(next, packed.pieces())) == there
    assert there.stat().st_ino == before
    assert [one.name for one in node.iterdir()] == [there.parent.name]


def test_a_file_cannot_leave_its_folder(node: Path) -> None:
    parcel = Parcel("x", (PackedFile("../x", 1, ""),))
    with pytest.raises(BadInput, match="leads out of its folder"):
        unpack(parcel, lambda: b"x")


def test_another_content_is_another_parcel(tmp_path: Path) -> None:
    (tmp_path / "data.npz").write_bytes(b"good")
    (one,) = pack_file(str(tmp_path / "data.npz")).parcel.files
    digests = {
        Parcel("data.npz", (file,)).digest for file in (one, replace(one, name="b"), replace(one, sha256=""))
    }
    assert len(digests) == 3
