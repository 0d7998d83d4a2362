"""What disturbed a measurement: shares of time lost, by cause, and the windows that were touched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from inferlab.measure.stats import seconds
from inferlab.records import Run, Window

#: Shares of the cores' time above which a cause is worth a word, over the whole and in one window.
WORTH_A_WORD = {"run_queue_wait_s": 0.02, "throttled_s": 0.005, "steal_s": 0.05}
_TOUCHED = 0.05
# The clock speed changed if fixed work took so much longer or shorter in the later half of the windows, and nearly
# every later window agrees. A neighbour on the same core comes and goes: that shows in the interval instead.
_CLOCK_CHANGE = 0.1
_AGREEMENT = 0.9
_FEWEST_WINDOWS = 8


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One cause: the share of the cores' time that it took, and in how many windows it showed.

    A wait for a CPU is a share of the threads' time where they are more than the cores.
    """

    counter: str
    share: float
    touched: int
    windows: int


def disturbances(runs: Sequence[Run], num_cores: int) -> list[Disturbance]:
    """The causes that are worth a word."""
    windows = [window for run in runs for window in run.windows if seconds(window) > 0]
    total_s = sum(seconds(window) for window in windows) * num_cores
    found = []
    for counter, limit in WORTH_A_WORD.items():
        lost_s = sum(window.counters.get(counter, 0.0) for window in windows)
        touched = sum(counter in touching(window, num_cores) for window in windows)
        if total_s and lost_s / total_s > limit:
            whole_s = max(total_s, _thread_s(windows)) if counter == "run_queue_wait_s" else total_s
            share = lost_s / whole_s
            found.append(Disturbance(counter, share, touched, len(windows)))
    return found


def _thread_s(windows: Sequence[Window]) -> float:
    """The time that threads ran or waited: with more threads than cores it is more than the cores have."""
    return sum(window.counters.get(name, 0.0) for window in windows for name in ("run_queue_wait_s", "cpu_s"))


def touching(window: Window, num_cores: int) -> list[str]:
    """The causes that took a visible share of one window."""
    span_s = seconds(window) * num_cores
    if not span_s:
        return []
    return [name for name in WORTH_A_WORD if window.counters.get(name, 0.0) / span_s > _TOUCHED]


def totals(runs: Sequence[Run]) -> Mapping[str, float]:
    """Every counter over all windows."""
    added: Counter[str] = Counter()
    for run in runs:
        for window in run.windows:
            added.update(window.counters)
    return dict(added)


def clock_change(runs: Sequence[Run]) -> float | None:
    """How much longer fixed work took in the later windows than in the earlier ones; None if just noise."""
    songs = np.array([window.canary_ns for run in runs for window in run.windows], float)
    if len(songs) < _FEWEST_WINDOWS:
        return None
    earlier, later = songs[: len(songs) // 2], songs[len(songs) // 2 :]
    change = float(np.median(later) / np.median(earlier)) - 1.0
    slower = float(np.mean(later[:, None] > earlier[None, :]))
    agree = max(slower, 1.0 - slower) >= _AGREEMENT
    return change if agree and abs(change) > _CLOCK_CHANGE else None
