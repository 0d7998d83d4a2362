"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from inferlab.files import whole_file


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o002])
def test_a_new_file_has_the_permissions_that_the_umask_leaves(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with whole_file(tmp_path / "new") as file:
            file.write(b"1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o666 & ~umask


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_text("0")
    path.chmod(0o640)
    with whole_file(path) as file:
        file.write(b"1")
    assert (stat.S_IMODE(path.stat().st_mode), path.read_text()) == (0o640, "1")


def test_writing_does_not_change_the_umask_that_other_threads_make_files_with(tmp_path: Path) -> None:
    before = os.umask(0o077)
    ended = threading.Event()
    modes = set[int]()

    def make() -> None:
        number = 0
        while not ended.is_set():
            path = tmp_path / f"other{number}"
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
            modes.add(stat.S_IMODE(path.stat().st_mode))
            path.unlink()
            number += 1

    other = threading.Thread(target=make)
    other.start()
    try:
        for number in range(2000):
            with whole_file(tmp_path / f"own{number % 5}x{number}") as file:
                file.write(b"1")
    finally:
        ended.set()
        other.join()
        os.umask(before)
    assert modes == {0o600}


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), whole_file(tmp_path / "new") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
