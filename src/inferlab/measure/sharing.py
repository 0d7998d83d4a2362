"""How fresh processes share a cell's time, and when there were enough of them; pure, and quick to import."""

from __future__ import annotations

from collections.abc import Sequence

from inferlab.measure.intervals import precise_enough
from inferlab.measure.stats import items_per_sec, median_ms, with_samples
from inferlab.records import Cell, Run

PROCESSES = 5
# Long enough to hold many calls, short enough that a disturbance can be told apart from the rest.
WINDOW_S = 0.5


def processes_for(cell: Cell, ready_s: float) -> int:
    """How many processes share the time: as asked, or 5, or so few that loading takes no longer than measuring."""
    if cell.processes is not None:
        return cell.processes
    return max(1, min(PROCESSES, int(cell.time_s / ready_s)))


def share_s(cell: Cell, ready_s: float) -> float:
    """The measuring time of one process; with a wanted precision, about what it takes to get it ready."""
    if cell.precision is None:
        return cell.time_s / processes_for(cell, ready_s)
    return min(cell.time_s / PROCESSES, max(WINDOW_S, ready_s))


def time_is_up(cell: Cell, processes: int, ready_s: float) -> bool:
    """Whether so many processes have used up the cell's time."""
    if cell.precision is None:
        return processes >= processes_for(cell, ready_s)
    return (processes + 0.5) * share_s(cell, ready_s) > cell.time_s


def precise(cell: Cell, runs: Sequence[Run]) -> bool:
    """Whether a wanted precision is reached, of latency and throughput alike.

    A server's throughput does not count: it follows the number of requests that chance sends.
    """
    if cell.precision is None:
        return False
    runs = with_samples(runs)
    if not precise_enough([median_ms(run) for run in runs], cell.precision):
        return False
    rates = [items_per_sec(run, cell.batch_size) for run in runs]
    return cell.rate is not None or precise_enough(rates, cell.precision)
