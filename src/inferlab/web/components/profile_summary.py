"""The Model Summary of a measured profile: what was measured, how fast it is, and how fast it could be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from nicegui import html, ui
from nicegui.element import Element

from inferlab.records import Shape
from inferlab.records.profile import Interval, PerformanceProfile, Profile
from inferlab.units import count, decimal, share
from inferlab.views import profile as words
from inferlab.views import text
from inferlab.views.intervals import between_at
from inferlab.web import shell
from inferlab.web.components.advice import on_pages
from inferlab.web.components.estimates import foretold
from inferlab.workspace.engines import title

# A speed-up that is worth the work.
_WORTH_SAYING = 1.01


def notices(profile: Profile) -> None:
    """What must not be missed, above everything: wrong outputs first."""
    if told := words.wrong(profile):
        shell.banner("wrong", told).props('data-testid="wrong-outputs"')
    if found := words.notes(profile):
        shell.findings([on_pages(one) for one in found], "notes")


def start_optimizing(project_id: str, speedup: float | None = None) -> None:
    """The way from what pruning would give to where it is done."""
    gain = "Prune or quantise the model, and measure what that gains."
    if speedup is not None and speedup >= _WORTH_SAYING:
        gain = f"An estimated {speedup:.2f} × speed-up could be achieved by optimizing."
    html.p(gain).classes("il-caption").props('data-testid="optimizing-gain"')
    button = ui.button("START OPTIMIZING").classes("il-start-optimizing")
    button.props(f'href="/projects/{project_id}/optimization" data-testid="start-optimizing"')


def of_version(name: str | None) -> None:
    """Say which version of the model was profiled, where it is not the original."""
    if name is not None:
        shell.chip(f"version: {name}").props('data-testid="profiled-version"')


def setting(performance: PerformanceProfile) -> None:
    """Under which conditions it was measured."""
    version = performance.versions.get(performance.engine, "")
    with shell.stats("il-summary-facts"):
        _words("Name", performance.name, "name")
        _words("Engine", f"{title(performance.engine)} {version}".rstrip(), "engine")
        _words("Batch Size", str(performance.batch_size), "batch-size")
        _words("Core Count", str(performance.num_cores), "num-cores")
        input_shapes(performance.shapes)
        sets = ", ".join(one.upper().replace("_", ".") for one in performance.instruction_sets)
        _words("Measured", moment(performance.measured_at), "measured-at")
        _words("Instruction Sets", sets or "unknown", "instruction-sets").classes("il-whole-row")


def input_shapes(shapes: Mapping[str, Shape]) -> None:
    """Which shapes the inputs had."""
    shell.stat("Input Shapes", text.shapes(shapes) or "unknown").classes("il-stat-words il-whole-row").props(
        'data-testid="shapes"'
    )


def measured(performance: PerformanceProfile) -> None:
    """How fast it is."""
    with shell.stats("il-summary-numbers"):
        ms, items = performance.ms_per_batch, performance.items_per_second
        ms_ends, items_ends = performance.ms_interval, performance.items_interval
        _stat("MS per Batch (median)", decimal(ms, 3), _ends(ms_ends, lambda one: decimal(one, 3)), "ms-per-batch")
        _stat("Items per Second (mean)", count(items), _ends(items_ends, count), "items-per-second")
        if performance.int8_ms_per_batch:
            int8_ms = performance.int8_ms_per_batch
            _stat("INT8 MS per Batch", decimal(int8_ms, 3), f"{ms / int8_ms:.2f} × as fast", "int8-ms-per-batch")
    check = performance.output_check
    kind: shell.Kind = {"match": "ok", "mismatch": "wrong"}.get(check.status, "warn")  # type: ignore[assignment]
    with html.div().classes("il-chips"):
        shell.chip(f"outputs: {check.status}", kind).props('data-testid="output-check"')
        if performance.layers:
            shell.chip(f"profiler overhead {words.overhead(performance)}", "muted")
            shell.chip(f"{share(performance.unjoined_share)} unjoined", "muted")


def estimated(slot: Element, profile: Profile) -> None:
    """How fast it could be, within the budget."""
    found = foretold(profile)
    slot.clear()
    with slot:
        with shell.stats("il-summary-numbers"):
            _stat("Estimated MS per Batch", found.ms_per_batch, found.spent, "estimated-ms")
            _stat("Estimated Speed-up", found.speedup, found.reduction_share, "estimated-speedup")
        html.p(found.note).classes("il-caption").props('data-testid="estimate-note"')


def moment(text: str) -> str:
    """A moment as it was kept, in the time of this machine."""
    try:
        return f"{datetime.fromisoformat(text).astimezone():%Y-%m-%d %H:%M}"
    except ValueError:
        return text


def _ends(ends: Interval | None, told: Callable[[float], str]) -> str:
    if ends is None:
        return "no interval: one process"
    return between_at(ends, 0.95, told)


def _stat(label: str, value: str, detail: str, name: str) -> None:
    shell.stat(label, value, detail).props(f'data-testid="{name}"')


def _words(label: str, value: str, name: str) -> Element:
    return shell.stat(label, value).classes("il-stat-words").props(f'data-testid="{name}"')
