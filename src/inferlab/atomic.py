"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes its name when all is written, also when two processes write it at once."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".inferlab-")
    made = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        made.chmod(_mode(path))
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


def _mode(path: Path) -> int:
    """The permissions of the file that is replaced, or those that a new file would have."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
