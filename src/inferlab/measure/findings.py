"""What is worth a warning about a run, as data."""

from __future__ import annotations

from inferlab.measure.crew import Slice
from inferlab.records import Cell, Finding, Machine, OutputCheck

# Shares of the measured time above which a disturbance is worth a word.
_WORTH_A_WORD = {"run_queue_wait_s": 0.02, "throttled_s": 0.005, "steal_s": 0.02}
_CODES = {"run_queue_wait_s": "waited-for-cpu", "throttled_s": "throttled", "steal_s": "steal"}


def find(
    cell: Cell, machine: Machine, measured: Slice, check: OutputCheck, pinned: bool, rewritten: bool
) -> tuple[Finding, ...]:
    """Everything about this run that its reader must know."""
    found = []
    if check.status == "mismatch":
        found.append(Finding("output-mismatch", {"error": check.error, "output": check.detail}))
    if check.status == "unchecked":
        found.append(Finding("unchecked", {"reason": check.detail}))
    if cell.thread_pinning != "none" and not pinned:
        found.append(Finding("not-pinned", {}))
    if rewritten:
        found.append(Finding("batch-rewritten", {"batch_size": cell.batch_size}))
    if machine.cpu_quota is not None and machine.cpu_quota < cell.num_cores:
        found.append(Finding("quota-below-cores", {"quota": machine.cpu_quota, "num_cores": cell.num_cores}))
    found += _stream_findings(cell)
    if measured.full:
        found.append(Finding("sample-limit", {}))
    if measured.interrupted:
        found.append(Finding("interrupted", {"seconds": _seconds(measured), "wanted_s": cell.time_s}))
    return tuple(found + _disturbances(measured, cell))


def _stream_findings(cell: Cell) -> list[Finding]:
    if cell.scenario != "async" or cell.num_streams == 1:
        return []
    data = {"num_streams": cell.num_streams, "num_cores": cell.num_cores}
    if cell.num_streams > cell.num_cores:
        return [Finding("streams-share-cores", data)]
    idle = cell.num_cores % cell.num_streams
    return [Finding("idle-cores", {**data, "idle": idle})] if idle else []


def _disturbances(measured: Slice, cell: Cell) -> list[Finding]:
    seconds = _seconds(measured)
    if seconds <= 0:
        return []
    found = []
    for counter, limit in _WORTH_A_WORD.items():
        share = measured.counters.get(counter, 0.0) / (seconds * cell.num_cores)
        if share > limit:
            code = _CODES[counter]
            if code == "waited-for-cpu" and _crowded(cell):
                code = "waited-for-each-other"
            found.append(Finding(code, {"share": share}))
    return found


def _crowded(cell: Cell) -> bool:
    """Whether the cell has more threads than cores by its own choice."""
    return cell.num_streams > 1 and (cell.scenario == "elastic" or cell.num_streams > cell.num_cores)


def _seconds(measured: Slice) -> float:
    streams = [stream for stream in measured.streams if len(stream)]
    if not streams:
        return 0.0
    return (max(one.ends_ns[-1] for one in streams) - min(one.starts_ns[0] for one in streams)) / 1e9
