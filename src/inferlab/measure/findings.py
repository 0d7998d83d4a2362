"""What is worth a warning about a cell's runs, as data; what disturbed them, by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from inferlab.measure import stats
from inferlab.measure.check import deviates, worst
from inferlab.measure.stats import load, seconds, summarize, with_samples
from inferlab.records import Cell, Finding, Outcome, Run, Window

if TYPE_CHECKING:  # late: a benchmark compares nothing
    from inferlab.records import Comparison

#: Shares of the cores' time above which a cause is worth a word, over the whole and in one window.
WORTH_A_WORD = {"run_queue_wait_s": 0.02, "throttled_s": 0.005, "steal_s": 0.05}
_TOUCHED = 0.05
# The clock speed changed if fixed work took so much longer or shorter in the later half of the windows, and nearly
# every later window agrees. A neighbour on the same core comes and goes: that shows in the interval instead.
_CLOCK_CHANGE = 0.1
_AGREEMENT = 0.9
_FEWEST_WINDOWS = 8


class Watched(Protocol):
    """What was measured window by window."""

    @property
    def windows(self) -> tuple[Window, ...]:
        """Its windows, with what the system said about them."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One cause: the share of the cores' time that it took, and in how many windows it showed.

    A wait for a CPU is a share of the threads' time where they are more than the cores.
    """

    counter: str
    share: float
    touched: int
    windows: int


def disturbances(runs: Sequence[Watched], num_cores: int) -> list[Disturbance]:
    """The causes that are worth a word."""
    stretches = [stretch for run in runs for stretch in _stretches(run) if stretch.span_s > 0]
    total_s = sum(stretch.span_s for stretch in stretches) * num_cores
    notable = []
    for counter, limit in WORTH_A_WORD.items():
        lost_s = sum(stretch.counters.get(counter, 0.0) for stretch in stretches)
        touched = sum(counter in _touching(stretch, num_cores) for stretch in stretches)
        if total_s and lost_s / total_s > limit:
            whole_s = max(total_s, _thread_s(stretches)) if counter == "run_queue_wait_s" else total_s
            share = lost_s / whole_s
            notable.append(Disturbance(counter, share, touched, len(stretches)))
    return notable


class _Stretch(NamedTuple):
    """What was measured between two readings of the counters: a window, or the turns of a process in a pair."""

    span_s: float
    counters: Mapping[str, float]


def _stretches(run: Watched) -> Iterator[_Stretch]:
    span_s = 0.0
    for window in run.windows:
        span_s += seconds(window)
        if window.canary_ns is not None:
            yield _Stretch(span_s, window.counters)
            span_s = 0.0


def _thread_s(stretches: Sequence[_Stretch]) -> float:
    """The time that threads ran or waited: with more threads than cores it is more than the cores have."""
    return sum(stretch.counters.get(name, 0.0) for stretch in stretches for name in ("run_queue_wait_s", "cpu_s"))


def touching(window: Window, num_cores: int) -> list[str]:
    """The causes that took a visible share of one window."""
    return _touching(_Stretch(seconds(window), window.counters), num_cores)


def _touching(stretch: _Stretch, num_cores: int) -> list[str]:
    whole_s = stretch.span_s * num_cores
    return [name for name in WORTH_A_WORD if whole_s and stretch.counters.get(name, 0.0) / whole_s > _TOUCHED]


def totals(runs: Sequence[Run]) -> Mapping[str, float]:
    """Every counter over all windows."""
    added: Counter[str] = Counter()
    for run in runs:
        for window in run.windows:
            added.update(window.counters)
    return dict(added)


def clock_change(runs: Sequence[Watched]) -> float | None:
    """How much longer fixed work took in the later windows than in the earlier ones; None if just noise."""
    songs = np.array([window.canary_ns for run in runs for window in run.windows if window.canary_ns], float)
    if len(songs) < _FEWEST_WINDOWS:
        return None
    earlier, later = songs[: len(songs) // 2], songs[len(songs) // 2 :]
    change = float(np.median(later) / np.median(earlier)) - 1.0
    slower = float(np.mean(later[:, None] > earlier[None, :]))
    agree = max(slower, 1.0 - slower) >= _AGREEMENT
    return change if agree and abs(change) > _CLOCK_CHANGE else None


# Said of an arm as a whole; the processes of a pair are few and short by design.
_NOT_OF_ARMS = ("one-process", "interrupted", "not-precise")
# Of fewer requests the mean service may be one stall.
_MANY = 50

_CODES = {"run_queue_wait_s": "waited-for-cpu", "throttled_s": "throttled", "steal_s": "steal"}


def find_all(outcome: Outcome) -> tuple[Finding, ...]:
    """What `find` says of an outcome's runs, and why there are no more of them."""
    findings = find(outcome.cell, outcome.runs)
    if outcome.status == "failed" and outcome.runs:
        return (*findings, Finding("failed-later", {"processes": len(outcome.runs)}))
    if outcome.status == "cancelled" and outcome.runs and not outcome.runs[-1].interrupted:
        return (*findings, _interrupted(outcome.cell, outcome.runs))
    return findings


def find_in_all(outcomes: Sequence[Outcome]) -> list[tuple[Finding, ...]]:
    """What `find_all` says of each outcome; noise that several of them met is told of all in the same words."""
    return with_joint_noise([find_all(outcome) for outcome in outcomes])


def with_joint_noise(findings_by_cell: list[tuple[Finding, ...]]) -> list[tuple[Finding, ...]]:
    """The findings of several cells, in which noise that several of them met is told in the same words."""
    for code in (*_CODES.values(), "waited-for-each-other", "clock-changed"):
        same = [finding for findings in findings_by_cell for finding in findings if finding.code == code]
        if len(same) > 1:
            joint = _joint(code, same)
            findings_by_cell = [
                tuple(joint if finding.code == code else finding for finding in findings)
                for findings in findings_by_cell
            ]
    return findings_by_cell


def _joint(code: str, same: Sequence[Finding]) -> Finding:
    """One finding for several cells: the largest number, the least one, and the windows of all."""
    name = "change" if code == "clock-changed" else "share"
    numbers = sorted((finding.data[name] for finding in same), key=abs)
    windows = {
        key: sum(finding.data[key] for finding in same) for key in ("touched", "windows") if key in same[0].data
    }
    return Finding(code, {name: numbers[-1], "least": numbers[0], **windows})


def find(cell: Cell, runs: Sequence[Run]) -> tuple[Finding, ...]:
    """Everything about these runs that their reader must know; derived from them, never stored."""
    if not runs:
        return ()
    check = worst([run.check for run in runs])
    machine = runs[0].machine
    findings = []
    if check.status == "mismatch":
        findings.append(Finding("output-mismatch", {"error": check.error, "output": check.detail}))
    if check.status == "match" and deviates(check.error, check.metric):
        findings.append(
            Finding("deviates", {"error": check.error, "metric": check.metric, "output": check.detail})
        )
    if check.status == "unchecked":
        findings.append(Finding("unchecked", {"reason": check.detail}))
    if cell.thread_pinning != "none" and not all(run.pinned for run in runs):
        findings.append(Finding("not-pinned", {}))
    if any(run.rewritten for run in runs):
        findings.append(Finding("batch-rewritten", {"batch_size": cell.batch_size}))
    if any("io_binding_refused" in run.settings for run in runs):
        findings.append(Finding("outputs-not-bound", {}))
    limit, _, instructions = str(runs[0].settings.get("max_cpu_isa", "")).partition(":")
    if limit == "auto":
        findings.append(Finding("limited-isa", {"isa": instructions}))
    if runs[0].settings.get("sparse") == "on:none":
        findings.append(Finding("no-sparse-layers", {}))
    if cell.guessed_inputs:
        chosen = {name: list(shape) for name, shape in cell.shapes if name in cell.guessed_inputs}
        findings.append(Finding("shapes-guessed", {"shapes": chosen}))
    if machine.cpu_quota is not None and machine.cpu_quota < cell.num_cores:
        findings.append(Finding("quota-below-cores", {"quota": machine.cpu_quota, "num_cores": cell.num_cores}))
    findings += _stream_findings(cell)
    if len(nodes := {run.machine.node for run in runs}) > 1:
        findings.append(Finding("several-machines", {"machines": len(nodes)}))
    if any(window.full for run in runs for window in run.windows):
        findings.append(Finding("sample-limit", {}))
    if any(run.interrupted for run in runs):
        findings.append(_interrupted(cell, runs))
    return tuple(
        findings + _certainty(cell, runs) + _requests(cell, runs) + noise(runs, cell.num_cores, _crowded(cell))
    )


def _interrupted(cell: Cell, runs: Sequence[Run]) -> Finding:
    spent_s = sum(seconds(window) for run in runs for window in run.windows)
    return Finding("interrupted", {"seconds": spent_s, "wanted_s": cell.time_s})


def _stream_findings(cell: Cell) -> list[Finding]:
    """Cores that are shared or idle; those of one instance are divided among its streams, or used by all."""
    each = 1 if cell.scenario in ("sync", "elastic") else cell.num_streams
    data = {"num_streams": each * cell.instances, "num_cores": cell.num_cores}
    if each * cell.instances > cell.num_cores:
        return [Finding("streams-share-cores", data)]
    portion = cell.num_cores // cell.instances
    idle = cell.num_cores - cell.instances * (portion - portion % each)
    return [Finding("idle-cores", {**data, "idle": idle})] if idle else []


def _certainty(cell: Cell, runs: Sequence[Run]) -> list[Finding]:
    """How sure the numbers are, where it is less than wanted."""
    ready_s = runs[0].ready_s
    if len(runs) == 1:
        alone = cell.precision is None and stats.processes_for(cell, ready_s) == 1
        why = "asked" if cell.processes == 1 else "loading" if alone else "interrupted"
        return [Finding("one-process", {"why": why, "ready_s": ready_s})]
    if cell.precision is not None and not stats.precise(cell, runs) and stats.time_is_up(cell, len(runs), ready_s):
        return [Finding("not-precise", {"wanted": cell.precision, "seconds": cell.time_s})]
    return []


def _requests(cell: Cell, runs: Sequence[Run]) -> list[Finding]:
    """Too few requests to measure, or too many to serve."""
    without = len(runs) - len(with_samples(runs))
    if without and cell.rate is not None:
        return [Finding("no-requests", {"idle": without, "processes": len(runs), "rate": cell.rate})]
    summary = summarize(cell, runs)
    if summary is None or summary.service_percentiles_ms is None or any(run.interrupted for run in runs):
        return []
    # Some of the queue is worked off after the last arrival, so that nothing need be left when time is up.
    needed = load(cell, runs)
    if not summary.unserved_share and (needed < 1 or summary.iterations < _MANY):
        return []
    return [Finding("overloaded", {"share": summary.unserved_share, "load": needed, "rate": cell.rate})]


def noise(runs: Sequence[Watched], num_cores: int, crowded: bool = False) -> list[Finding]:
    """What disturbed runs; `crowded` says that they had more threads than cores by their own choice."""
    findings = []
    for disturbance in disturbances(runs, num_cores):
        code = _CODES[disturbance.counter]
        if code == "waited-for-cpu" and crowded:
            code = "waited-for-each-other"
        findings.append(
            Finding(
                code, {"share": disturbance.share, "touched": disturbance.touched, "windows": disturbance.windows}
            )
        )
    change = clock_change(runs)
    if change is not None:
        findings.append(Finding("clock-changed", {"change": change}))
    return findings


def _crowded(cell: Cell) -> bool:
    """Whether the cell has more threads than cores by its own choice."""
    streams = cell.num_streams * cell.instances
    return streams > 1 and (cell.scenario == "elastic" or streams > cell.num_cores)


def arm_findings(comparison: Comparison) -> list[list[Finding]]:
    """What was found about A and about B of a comparison, over all processes of each."""
    if comparison.cells is None:
        return [[], []]
    return [
        [finding for finding in find(cell, runs) if finding.code not in _NOT_OF_ARMS]
        for cell, runs in zip(comparison.cells, arm_runs(comparison), strict=True)
    ]


def arm_runs(comparison: Comparison) -> tuple[list[Run], list[Run]]:
    """The runs of both arms."""
    return [pair.a for pair in comparison.pairs], [pair.b for pair in comparison.pairs]
