"""Files that results are written to: whether one can be written, and writing it whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from inferlab.errors import BadInput, NotSaved
from inferlab.files import whole_file

#: What a result can be written as; any other ending gets JSON.
ENDINGS = (".json", ".csv", ".md", ".html")


def check_writable(path: Path) -> None:
    """Refuse a path to which no file can be written, before anything is measured, not after."""
    if path.is_dir():
        raise BadInput(f"The export path {path} is a folder. Give a file in it, such as {path / 'result.json'}.")
    if not path.parent.is_dir():
        raise BadInput(
            f"The folder of the export path {path} does not exist. Make it first: mkdir -p {path.parent}"
        )
    if path.exists():
        if not os.access(path, os.W_OK):
            raise BadInput(
                f"The export path {path} cannot be written to. Choose another or change its permissions."
            )
        return
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".inferlab-")
    except OSError as error:
        raise BadInput(
            f"The export path {path} cannot be written: {error.strerror}. Choose another folder."
        ) from error
    os.close(handle)
    Path(name).unlink()


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all; a pipe or a terminal is written to directly."""
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            path.write_text(text, encoding="utf-8")
            return
        with whole_file(path.resolve()) as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise NotSaved(f"The result could not be written to {path}: {error.strerror}.") from error
