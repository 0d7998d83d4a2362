"""The numbers of a card, each with its interval: of a cell, of the best of many, and how arms compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nicegui.element import Element

from inferlab.measure.intervals import LEVEL
from inferlab.measure.stats import statistic
from inferlab.records import Estimate
from inferlab.records.generation import Agreement
from inferlab.store.entries import CellEntry
from inferlab.units import count, decimal, plural, share, three_digits
from inferlab.views.charts.cards import best_and_worst
from inferlab.views.charts.points import Point
from inferlab.views.fields import Form, between, between_at, level_percent, rounded, useful
from inferlab.web import shell
from inferlab.web.shell import div, span
from inferlab.workspace.cards import Duel, GenerationCardCell, ms_per_item

_PAIRED = "measured interleaved"
_UNPAIRED = "not measured interleaved: less sure"
_OPPOSITE = {"faster": "slower", "slower": "faster"}


def show_stats(
    values: tuple[Estimate, Estimate, Estimate] | None,
    scenario: str = "",
    struck: bool = False,
    rests_on: tuple[int, int] | None = None,
) -> None:
    """Time per item and per batch, items per second; struck out where meaningless, dashes for nothing.

    They rest on so many processes and batches, where these are known.
    """
    labels = {
        "ms-per-item": f"Time per item (ms, {statistic(scenario)})",
        "ms-per-batch": "Time per batch (ms, median)",
        "items-per-second": "Throughput (items/s, mean)",
    }
    for (name, label), value in zip(labels.items(), values or (None,) * 3, strict=True):
        form = count if name == "items-per-second" else three_digits
        _estimate(label, value, name, form).classes("il-struck" if struck else "")
    if rests_on is not None:
        _rests_on(rests_on[0], plural(rests_on[1], "batch", "batches"))


def cached_stats(entry: CellEntry) -> tuple[Estimate, Estimate, Estimate] | None:
    """Time per item and per batch and items per second as the store has them cached; None where it has not."""
    if entry.median_ms is None or not entry.items_per_sec:
        return None
    batch = Estimate(entry.median_ms, entry.median_ms_low, entry.median_ms_high, LEVEL, "student")
    rate = Estimate(entry.items_per_sec, entry.items_per_sec_low, entry.items_per_sec_high, LEVEL, "student")
    return ms_per_item(entry.cell, batch, rate), batch, rate


def show_speedup(duel: Duel, arm: int, other: str) -> None:
    """How many times as fast an arm is as the other, which has a name, and whether that is sure."""
    value, verdict = duel.speedup, duel.verdict
    if arm != 0:
        value, verdict = duel.ratio, _OPPOSITE.get(duel.verdict, duel.verdict)
    with div("il-stat", name="speedup"):
        div("il-stat-label", f"Speed-up over {other}")
        with div("il-bench-verdict"):
            span("il-stat-value", f"{three_digits(value.value)}×")
            shell.verdict(verdict)
        level = f"× ({level_percent(value.level)} %)" if useful(value.ends) else ""
        div("il-stat-detail", f"{between(value.ends)}{level}")
        div("il-stat-detail", _PAIRED if duel.paired else _UNPAIRED)


def show_scaling(points: Sequence[Point], by_cores: bool) -> None:
    """The best and the worst of some cells along core counts, or along batch sizes."""
    what, name = ("core count", "num_cores") if by_cores else ("batch size", "batch_size")
    extremes = best_and_worst(points)
    if extremes is None:
        div("il-muted", "No cell has a valid result.")
        return
    best, worst = extremes
    low, high = best.ends("ms_per_item") or (None, None)
    took = Estimate(best.ms_per_item or 0.0, low, high, LEVEL, "student")
    shell.stat(f"Best {what}", str(getattr(best, name)), name="best")
    interval = between_at(took.ends, took.level)
    shell.stat(f"Time per item (ms, {statistic(best.scenario)})", three_digits(took.value), interval)
    detail = f"{three_digits(worst.ms_per_item or 0.0)} ms per item"
    shell.stat(f"Worst {what}", str(getattr(worst, name)), detail, "worst")


def show_cell(cell: GenerationCardCell) -> None:
    """How fast one cell of a generation is, and whether its tokens are right."""
    numbers = cell.numbers
    if numbers is None:
        shell.stat("Time per output token (ms)", "–")
        return
    _tokens("Time to first token (ms)", numbers.ttft_ms, "ttft")
    _tokens("Time per output token (ms)", numbers.tpot_ms, "tpot")
    if cell.cell.rate is None:
        _tokens("Decode (tokens/s)", numbers.decode_tokens_per_s, "decode")
    else:
        _tokens("Output (tokens/s)", numbers.output_tokens_per_s, "output")
    _agreement("Agreement", cell.agreement)
    _rests_on(cell.measured_processes, plural(numbers.sequences, "sequence"))


def show_best(cells: Sequence[GenerationCardCell]) -> None:
    """The best of each number, of cells whose tokens are right."""
    right = [cell for cell in cells if cell.numbers is not None and cell.status == "done" and not cell.wrong]
    for label, name, sign in (
        ("Lowest TTFT (ms)", "ttft_ms", 1.0),
        ("Lowest TPOT (ms)", "tpot_ms", 1.0),
        ("Highest output (tokens/s)", "output_tokens_per_s", -1.0)
        if any(cell.cell.rate is not None for cell in cells)
        else ("Highest decode (tokens/s)", "decode_tokens_per_s", -1.0),
    ):
        known = [value for cell in right if (value := getattr(cell.numbers, name)) is not None]
        best = min(known, key=lambda value: sign * value.value, default=None)
        _tokens(label, best, name.replace("_", "-"))
    checked = [cell.agreement for cell in cells if cell.agreement is not None]
    shares = [agreement for agreement in checked if agreement.top1 is not None]
    worst = min(shares, key=lambda agreement: agreement.top1 or 0.0, default=None)
    _agreement("Lowest agreement", worst or next(iter(checked), None))


def _agreement(label: str, agreement: Agreement | None) -> None:
    if agreement is None or agreement.top1 is None:
        shell.stat(label, "unchecked", name="agreement")
        return
    word = "WRONG, " if agreement.status == "mismatch" else ""
    detail = f"{agreement.agreeing} of {agreement.positions} tokens"
    shell.stat(label, f"{word}{share(agreement.top1)}", detail, "agreement")


def _tokens(label: str, value: Estimate | None, name: str) -> None:
    form = three_digits if value is None or value.value < 100 else count
    _estimate(label, value, name, form, form)


def _estimate(
    label: str, value: Estimate | None, name: str, form: Callable[[float], str], ends_form: Form = decimal
) -> Element:
    """A number with its interval; a dash where there is none."""
    if value is None:
        return shell.stat(label, "–", name=name)
    interval = between_at(value.ends, value.level, ends_form)
    return shell.stat(label, rounded(value.value, value.ends, form), interval, name)


def _rests_on(processes: int, what: str) -> None:
    div("il-stat-detail", f"{plural(processes, 'process', 'processes')}, {what}")
