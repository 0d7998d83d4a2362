"""One measurement at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from inferlab.measure.lock import lock_file, measuring_alone
from inferlab.records import Event

HOLDER = """
import sys
from pathlib import Path
from inferlab.measure.lock import measuring_alone
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
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    heard: list[Event] = []
    with measuring_alone("ours", heard.append):
        pass
    assert [event.code for event in heard] == ["unlocked"]


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
