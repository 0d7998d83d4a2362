"""How long the command takes to say --help, and Python to import inferlab (over starting Python at all)."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path


def main(rounds: int = 15) -> None:
    """Print medians of fresh processes."""
    helped = [str(Path(sys.executable).parent / "inferlab"), "--help"]
    print(f"inferlab --help             {median_s(helped, rounds):.3f} s  (aim: at most 0.25)")
    bare = median_s([sys.executable, "-c", "pass"], rounds)
    imported = median_s([sys.executable, "-c", "import inferlab"], rounds)
    print(f"import inferlab             {imported - bare:.3f} s  (aim: at most 0.1; Python itself: {bare:.3f} s)")


def median_s(command: list[str], rounds: int) -> float:
    """The median wall time of a command."""
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
