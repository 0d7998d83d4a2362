"""One measurement at a time."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from inferlab.measure.cell import lock_file, measuring_alone
from inferlab.records import Event

HOLDER = """
import sys
from pathlib import Path
from inferlab.measure.cell import measuring_alone
with measuring_alone("the other"):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_second_measurement_waits_and_says_for_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERLAB_NODE", f"test/{os.getpid()}")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None and holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    heard: list[Event] = []

    def listen(event: Event) -> None:
        heard.append(event)
        holder.communicate("\n")

    with measuring_alone("ours", listen):
        assert lock_file().read_text() == f"process {os.getpid()}: ours\n"
    assert heard == [Event("waiting", {"holder": f"process {holder.pid}: the other"})]
    lock_file().unlink()


def test_a_free_lock_is_taken_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERLAB_NODE", f"free-{os.getpid()}")
    heard: list[Event] = []
    for _ in range(2):
        with measuring_alone("ours", heard.append):
            pass
    assert heard == []
    lock_file().unlink()


def test_a_lock_that_cannot_be_used_is_said_and_does_not_stop_the_measurement(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    lock_file().mkdir()
    heard: list[Event] = []
    with measuring_alone("ours", heard.append):
        pass
    assert [event.code for event in heard] == ["unlocked"]


def test_the_lock_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    before = os.umask(0)
    try:
        with measuring_alone("ours"):
            assert lock_file().parent == tmp_path
            assert stat.S_IMODE(lock_file().stat().st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.mark.skipif(Path(f"/run/user/{os.geteuid()}").exists(), reason="there is a runtime folder, which is used")
def test_without_a_runtime_folder_the_lock_lies_in_a_folder_that_only_its_user_can_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for useless in ("", "relative", str(tmp_path / "missing")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", useless)
        heard: list[Event] = []
        with measuring_alone("ours", heard.append):
            folder = lock_file().parent
        assert (heard, folder) == ([], tmp_path / f"inferlab-{os.geteuid()}")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    lock_file().unlink()
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with measuring_alone("ours", heard.append):
        pass
    assert [event.data["reason"] for event in heard] == [f"{folder} belongs to another user"]


def test_what_the_lock_says_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    lock_file().write_bytes(b"\x1b]0;owned\x07\xff\n" + b"x" * 1000)
    with lock_file().open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        heard: list[Event] = []

        def listen(event: Event) -> None:
            heard.append(event)
            fcntl.flock(file, fcntl.LOCK_UN)

        with measuring_alone("ours", listen):
            pass
    (told,) = [event.data["holder"] for event in heard]
    assert told.startswith(r"\x1b]0;owned\x07\ufffd\nx"[:16]) and told.isprintable() and len(told) < 120


def test_a_part_of_a_measurement_does_not_wait_for_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERLAB_NODE", f"test/{os.getpid()}/parts")
    with measuring_alone("the whole"):
        with measuring_alone("a part"):
            assert lock_file().read_text() == f"process {os.getpid()}: the whole\n"
        other = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(1)  # the part's end has not let go of the whole
        other.kill()
        other.communicate()
    lock_file().unlink()
