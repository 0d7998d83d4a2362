"""What may be named over HTTP, and uploads that come in pieces."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from inferlab.errors import BadInput, Conflict, TooLarge, TooMany
from inferlab.workspace.sources import Arriving, Received, Sources, file_name


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    folder = tmp_path / "allowed"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "model.onnx").write_bytes(b"x")
    (tmp_path / "secret.onnx").write_bytes(b"x")
    return folder


@pytest.fixture
def sources(allowed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    monkeypatch.setenv("INFERLAB_MODELS", str(tmp_path / "models"))
    return Sources([allowed], most_bytes=100)


async def _pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _receive(sources: Sources, upload_id: str, name: str, *pieces: bytes, size: int | None = None) -> Path:
    return asyncio.run(sources.receive(upload_id, name, _pieces(*pieces), size)).path


def test_a_path_below_an_allowed_folder_is_opened(sources: Sources, allowed: Path) -> None:
    wanted = str(allowed / "deep" / "model.onnx")
    assert sources.resolve(wanted) == sources.resolve("deep/model.onnx") == wanted


@pytest.mark.parametrize("path", ["../secret.onnx", "/etc/passwd", "deep/../../secret.onnx", "link.onnx", "~/x"])
def test_nothing_outside_is_opened_and_nothing_is_said_about_it(
    sources: Sources, allowed: Path, path: str
) -> None:
    (allowed / "link.onnx").symlink_to(allowed.parent / "secret.onnx")
    with pytest.raises(BadInput, match="is not below a folder from which models may be opened"):
        sources.resolve(path)


def test_names_that_are_fetched_pass_and_other_protocols_do_not(sources: Sources) -> None:
    for name in ("demo:mlp", "hf:org/name", "zoo:cv/x", "https://host/model.onnx"):
        assert sources.resolve(f" {name} ") == name
    with pytest.raises(BadInput, match=r"not from file://"):
        sources.resolve("file:///etc/passwd")
    with pytest.raises(BadInput, match="No model was named"):
        sources.resolve("  ")


def test_an_upload_is_written_as_it_comes(sources: Sources) -> None:
    upload_id = sources.new_upload()
    path = _receive(sources, upload_id, "my model.onnx", b"abc", b"def", size=6)
    assert (path.name, path.read_bytes()) == ("my model.onnx", b"abcdef")
    assert sources.resolve(f"upload:{upload_id}") == str(path)


def test_the_model_of_several_files_is_the_one_that_is_loaded(sources: Sources) -> None:
    upload_id = sources.new_upload()
    _receive(sources, upload_id, "model.bin", b"weights")
    _receive(sources, upload_id, "model.xml", b"<net>")
    assert Path(sources.resolve(f"upload:{upload_id}")).name == "model.xml"
    _receive(sources, upload_id, "other.xml", b"<net>")
    with pytest.raises(BadInput, match=r"Several models were uploaded: model\.xml, other\.xml"):
        sources.resolve(f"upload:{upload_id}")


def test_too_much_is_refused_before_or_while_it_comes_and_leaves_nothing(sources: Sources) -> None:
    upload_id = sources.new_upload()
    _receive(sources, upload_id, "a.onnx", b"x" * 60)
    for size in (50, None):
        with pytest.raises(BadInput, match="is too large"):
            _receive(sources, upload_id, "b.data", b"x" * 30, b"x" * 20, size=size)
    folder = Path(sources.resolve(f"upload:{upload_id}")).parent
    assert [file.name for file in folder.iterdir()] == ["a.onnx"]


def test_an_upload_that_is_cut_off_leaves_nothing(sources: Sources) -> None:
    upload_id = sources.new_upload()
    with pytest.raises(BadInput, match="was cut off after 3 of 6 bytes"):
        _receive(sources, upload_id, "a.onnx", b"abc", size=6)
    with pytest.raises(BadInput, match="None of the uploaded files is a model"):
        sources.resolve(f"upload:{upload_id}")


def test_an_upload_that_is_not_there_is_told_of(sources: Sources) -> None:
    for upload_id in ("abcdefghij", "..", "../../x"):
        with pytest.raises(BadInput, match="There is no such upload"):
            _receive(sources, upload_id, "a.onnx", b"x")


def test_only_uploads_are_discarded(sources: Sources, allowed: Path) -> None:
    upload_id = sources.new_upload()
    path = _receive(sources, upload_id, "a.onnx", b"x")
    sources.discard(str(path))
    assert not path.parent.exists()
    sources.discard(str(allowed / "deep" / "model.onnx"))
    assert (allowed / "deep" / "model.onnx").exists()


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("model.onnx", "model.onnx"),
        ("../../etc/passwd", "passwd"),
        ("C:\\models\\net.onnx", "net.onnx"),
        (".hidden", "model.hidden"),
        ("a b/模?.onnx", "model.onnx"),
        ("no ending", "no ending"),
        ("...", "model"),
        ("", "model"),
        ("x" * 300 + ".onnx", "x" * 115 + ".onnx"),
    ],
)
def test_names_of_uploads_are_made_harmless(sent: str, kept: str) -> None:
    assert file_name(sent) == kept


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders that are allowed, with a model in each, beside a secret."""
    for name in ("models", "more", "secret", "models-old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.onnx").write_bytes(b"")
    return tmp_path / "models", tmp_path / "more"


def test_a_file_below_an_allowed_folder_is_found(folders: tuple[Path, Path]) -> None:
    models, more = folders
    assert Sources(folders, 0).below(str(models / "a.onnx")) == models / "a.onnx"
    assert Sources(folders, 0).below(str(more / "a.onnx")) == more / "a.onnx"
    assert Sources(folders, 0).below("a.onnx") == models / "a.onnx"
    assert Sources(folders, 0).below("../more/./a.onnx") == more / "a.onnx"
    assert Sources(folders, 0).below(str(models)) == models
    assert Sources(folders, 0).below("nothing.onnx") == models / "nothing.onnx"


def test_a_link_to_a_place_that_is_allowed_is_followed(folders: tuple[Path, Path]) -> None:
    models, more = folders
    (models / "link.onnx").symlink_to(more / "a.onnx")
    assert Sources(folders, 0).below("link.onnx") == more / "a.onnx"


def test_what_is_not_below_is_refused_in_the_same_words_whether_or_not_it_exists(
    folders: tuple[Path, Path],
) -> None:
    models, _ = folders
    (models / "out").symlink_to(models.parent / "secret")
    (models / "loop").symlink_to(models / "loop")
    said = set()
    for name in (
        "../secret/a.onnx",
        "../secret/nothing.onnx",
        str(models.parent / "secret" / "a.onnx"),
        "out/a.onnx",
        "out/nothing.onnx",
        "../models-old/a.onnx",
        "/etc/passwd",
        "..",
        "/",
        "~root/x",
        "~nobody-of-this-name/x",
        "a\0b",
        "loop/a.onnx",
        "x" * 5000 + "/../../../..",
        "",
    ):
        with pytest.raises(BadInput) as refused:
            Sources(folders, 0).below(name)
        text = str(refused.value)
        assert len(text) < 1000
        said.add(text[text.index("' is not below") :])
    (only,) = said
    assert only == (
        f"' is not below a folder from which models may be opened ({folders[0]}, {folders[1]}). "
        "Upload the file, or start inferlab with --folder and the folder that it is in."
    )


def test_without_folders_nothing_is_below() -> None:
    with pytest.raises(BadInput, match=r"\(none\)"):
        Sources((), 0).below("a.onnx")


# Several requests at once.


class _Sending:
    """A file that is being sent: the test says when its next piece comes, and when it ends."""

    def __init__(self, sources: Sources, upload_id: str, name: str) -> None:
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self.received = asyncio.create_task(sources.receive(upload_id, name, self._come(), None))

    async def _come(self) -> AsyncIterator[bytes]:
        while piece := await self._pieces.get():
            yield piece

    async def send(self, piece: bytes) -> None:
        """Send a piece, and let the server read it."""
        self._pieces.put_nowait(piece)
        while not self._pieces.empty():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.001)

    async def end(self) -> Received:
        self._pieces.put_nowait(b"")
        return await self.received


def test_of_one_name_that_is_sent_twice_at_once_the_last_wins_whole(sources: Sources) -> None:
    async def both() -> None:
        upload_id = sources.new_upload()
        first, second = (_Sending(sources, upload_id, "a.onnx") for _ in range(2))
        await first.send(b"1" * 10)
        await second.send(b"2" * 15)
        with pytest.raises(Conflict, match=r"a\.onnx is being sent again"):
            await first.end()
        done = await second.end()
        assert (done.size_bytes, done.path.read_bytes()) == (15, b"2" * 15)
        assert [file.name for file in done.path.parent.iterdir()] == ["a.onnx"]

    asyncio.run(both())


def test_files_that_are_sent_at_once_share_the_limit(sources: Sources) -> None:
    async def both() -> None:
        upload_id = sources.new_upload()
        first, second = (_Sending(sources, upload_id, name) for name in ("a.onnx", "b.data"))
        await first.send(b"x" * 60)
        await second.send(b"x" * 40)
        assert (await first.end()).size_bytes == 60
        second._pieces.put_nowait(b"x")
        with pytest.raises(TooLarge, match=r"b\.data is too large"):
            await second.received
        assert [file.name for file in sources.folder(upload_id).iterdir()] == ["a.onnx"]

    asyncio.run(both())


def test_no_more_than_eight_files_are_received_at_once(sources: Sources) -> None:
    async def many() -> None:
        upload_id = sources.new_upload()
        sent = [_Sending(sources, upload_id, f"{number}.bin") for number in range(8)]
        for each in sent:
            await each.send(b"x")
        with pytest.raises(TooMany, match="8 files are being sent already"):
            await sources.receive(upload_id, "more.bin", _pieces(b"x"), None)
        for each in sent:
            await each.end()
        await sources.receive(upload_id, "more.bin", _pieces(b"x"), None)

    asyncio.run(many())


def test_the_disk_is_written_to_by_threads_and_not_by_the_event_loop(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = set()
    write = Arriving.write

    def watched(arriving: Arriving, chunks: Sequence[bytes]) -> None:
        writers.add(threading.current_thread())
        write(arriving, chunks)

    monkeypatch.setattr(Arriving, "write", watched)
    assert _receive(sources, sources.new_upload(), "a.onnx", b"abc").read_bytes() == b"abc"
    assert writers and threading.main_thread() not in writers


def test_what_was_begun_and_left_is_removed_and_what_became_something_stays(
    sources: Sources, tmp_path: Path
) -> None:
    def aged(upload_id: str, seconds: float) -> None:
        for folder in (tmp_path / "models" / upload_id, tmp_path / "models" / ".pending" / upload_id):
            if folder.is_dir():
                for each in (*folder.iterdir(), folder):
                    os.utime(each, (time.time() - seconds,) * 2)

    left, used, data, fresh = (sources.new_upload() for _ in range(4))
    for each in (left, used, data, fresh):
        _receive(sources, each, "a.onnx", b"x")
    # As a server leaves it that is killed while it receives a file.
    cut_off = tmp_path / "models" / ".pending" / fresh / "b.data.aaaaaaaaaa"
    cut_off.write_bytes(b"half")
    sources.adopt(sources.resolve(f"upload:{used}"))
    sources.file(f"upload:{data}")
    for each in (left, used, data):
        aged(each, 25 * 3600)
    aged(fresh, 3600)
    Sources([], 100).sweep()
    assert {one.name for one in (tmp_path / "models").iterdir()} == {".pending", used, data, fresh}
    assert not cut_off.exists()


def test_nothing_is_added_to_an_upload_of_which_something_was_made(sources: Sources) -> None:
    upload_id = sources.new_upload()
    path = _receive(sources, upload_id, "a.onnx", b"x")
    sources.adopt(str(path))
    with pytest.raises(Conflict, match="This upload is in use already"):
        _receive(sources, upload_id, "a.onnx", b"other")
    assert path.read_bytes() == b"x"


def test_the_number_of_uploads_of_which_nothing_was_made_is_limited(sources: Sources) -> None:
    begun = [sources.new_upload() for _ in range(100)]
    with pytest.raises(TooMany, match="100 uploads are not in use"):
        sources.new_upload()
    sources.give_up(begun[0])
    sources.new_upload()
