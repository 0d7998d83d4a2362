"""Reads a batch of mutations in this process, under limits of memory and time; one line of JSON for each fault."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from types import FrameType

from benchmarks.fuzzing import readers

MOST_BYTES = 1 << 30
MOST_S = 20
_BY_COMMAND_S = 120


class TooLong(BaseException):
    """A reader took longer than it may."""


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TooLong


def main() -> None:
    """Read the mutations, say how far it is on stdout: the next number, then how many of each answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=readers.kinds())
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--command-every", type=int, default=0)
    arguments = parser.parse_args()
    signal.signal(signal.SIGALRM, _too_long)
    counts = {"success": 0, "sentence": 0}
    shared = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="inferlab-fuzz-", dir=shared) as folder:
        _read_one(arguments.kind, arguments.first, Path(folder))  # all is imported by then
        most = _used_bytes() + MOST_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (_mapped_bytes() + 2 * MOST_BYTES,) * 2)
        for seed in range(arguments.first, arguments.first + arguments.count):
            print(json.dumps({"at": seed, **counts}), flush=True)
            by_command = arguments.command_every and seed % arguments.command_every == 0
            answer, details = (_by_command if by_command else _read_one)(arguments.kind, seed, Path(folder))
            if answer in counts:
                counts[answer] += 1
            else:
                print(json.dumps({"fault": answer, "seed": seed, "details": details}), flush=True)
            if _used_bytes() > most:
                print(
                    json.dumps({"fault": "memory", "seed": seed, "details": f"above {MOST_BYTES} bytes"}),
                    flush=True,
                )
                break
    print(json.dumps({"at": seed + 1, **counts}), flush=True)


def _read_one(kind: str, seed: int, folder: Path) -> tuple[str, str]:
    path = _written(kind, seed, folder)
    signal.alarm(MOST_S)
    try:
        return readers.read(kind, path, seed), ""
    except TooLong:
        return "time", f"above {MOST_S} s\n{traceback.format_exc(limit=-8)}"
    except Exception as error:
        return type(error).__name__, traceback.format_exc(limit=-12)
    finally:
        signal.alarm(0)
        path.unlink(missing_ok=True)
        if seed % 50 == 0:
            gc.collect()


def _by_command(kind: str, seed: int, folder: Path) -> tuple[str, str]:
    path = _written(kind, seed, folder)
    command = [part.format(path) for part in readers.COMMANDS[kind]]
    with contextlib.suppress(FileNotFoundError):
        (folder / "target.db").unlink()
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "inferlab", *command],
            cwd=folder,
            env={**os.environ, "INFERLAB_STORE": str(folder / "own.db")},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_BY_COMMAND_S,
        )
    except subprocess.TimeoutExpired:
        return "time", f"the command took more than {_BY_COMMAND_S} s"
    finally:
        path.unlink()
    if ended.returncode == 0:
        return "success", ""
    if ended.returncode in (2, 3) and "Traceback" not in ended.stderr:
        return "sentence", ""
    return f"exit code {ended.returncode}", ended.stderr


def _written(kind: str, seed: int, folder: Path) -> Path:
    ending, content = readers.mutation(kind, seed)
    path = folder / f"mutation.{ending}"
    path.write_bytes(content)
    return path


def _used_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    main()
