"""The report of a generation: one page with its numbers, charts, agreement, memory, and how it was measured."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import Any

from inferlab.errors import BadInput
from inferlab.measure.stats import engine_version
from inferlab.records import Estimate
from inferlab.records.generation import GenerationSweep
from inferlab.units import count, decimal, duration, plural, scaled, share, size
from inferlab.version import __version__
from inferlab.views import command
from inferlab.views import generation as view
from inferlab.views import report as parts
from inferlab.views.charts import frame
from inferlab.views.charts.points import GenerationPoint, points_of, varying
from inferlab.views.charts.sweeps import generation_scaling, latency_throughput
from inferlab.views.charts.timeline import token_times
from inferlab.views.fields import between, rounded, useful
from inferlab.views.generation import Row
from inferlab.views.report import Cell, Element, numbers
from inferlab.views.text import generation_label, machine_line

_TITLES = {
    "num_cores": "Cores",
    "batch_size": "Batch size",
    "prompt_tokens": "Prompt",
    "new_tokens": "New tokens",
    "depth": "Depth",
}
# More figures than these in one chart would make a page that opens slowly.
_MOST_FIGURES = 48
_PROMPTS = (
    "Prompts are random token ids, new for each repetition and the same for every engine; tokens are chosen "
    "greedily, the end-of-sequence token does not end a sequence, and prefixes are not cached."
)
_NUMBERS = (
    "Each is the typical process's; an interval (95 %) is Student's on what its processes say. TTFT counts from "
    "the submission to the first token of each sequence; TPOT is the mean time of the tokens after it; decode "
    "throughput is these tokens of a whole batch over the time in which they were decoded."
)
_NAMES = ("Engine", "Status", "Tokens", "Reference", "Type")


def report(sweep: GenerationSweep) -> str:
    """The report of a generation: one self-contained page."""
    drawn, shown, points = parts.Charts(), view.rows(sweep), points_of(sweep)
    sections = {
        "Summary": _one(shown[0]) if len(shown) == 1 else _many(shown),
        "Cells": _cells(shown) if len(shown) > 1 else [],
        "Time per output token by depth": _chart(
            points, drawn, "depth", lambda some: generation_scaling(some, "depth", "tpot_ms")
        ),
        "Time to first token by prompt length": _chart(
            points, drawn, "prompt_tokens", lambda some: generation_scaling(some, "prompt_tokens", "ttft_ms")
        ),
        "Latency and throughput": _chart(points, drawn, "batch_size", latency_throughput),
        "Time per output token by cores": _chart(
            points, drawn, "num_cores", lambda some: generation_scaling(some, "num_cores", "tpot_ms")
        ),
        "Inter-token latency": _tokens(shown, drawn),
        "Agreement": _agreement(shown),
        "Memory and KV cache": _memory(shown),
        "How it was measured": _how(sweep, shown),
    }
    name = PurePath(sweep.model.source).name or sweep.model.source
    return parts.page(f"{name}: generation", _head(sweep, name, shown), sections, drawn)


def _head(sweep: GenerationSweep, name: str, shown: Sequence[Row]) -> list[Element | None]:
    model = sweep.model
    runs = [run for row in shown for run in row.outcome.runs]
    began = min((run.started_at for run in runs), default="")
    below = [
        *(model.architecture, f"{scaled(model.parameters)} parameters", model.precision, size(model.size_bytes)),
        *(f"context {model.context}", f"digest {model.digest[:12]}", began[:16].replace("T", " ")),
        *dict.fromkeys(run.machine.cpu for run in runs),
        *dict.fromkeys(_engine(row) for row in shown),
    ]
    told = view.notes(shown)
    return [
        parts.heading(name, below),
        parts.box([_sentence(note.text) for note in told if note.warning], wrong=True),
        parts.box([_sentence(note.text) for note in told if not note.warning]),
    ]


def _engine(row: Row) -> str:
    runs = row.outcome.runs
    return f"{row.cell.engine} {engine_version(runs[0]) if runs else ''}".rstrip()


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _one(row: Row) -> list[Element]:
    cell, summary = row.cell, row.summary
    what = parts.tiles(
        parts.tile("Engine", _engine(row), style="words"),
        *(parts.tile(label, str(getattr(cell, name))) for name, label in _TITLES.items()),
    )
    if summary is None:
        return [what, parts.caption("Nothing was measured.")]
    return [
        what,
        parts.tiles(
            _measured("Time to first token (ms)", summary.ttft_ms),
            _measured("Time per output token (ms)", summary.tpot_ms),
            _measured("Decode (tokens/s)", summary.decode_tokens_per_s, count),
            _measured("Prefill (tokens/s)", summary.prefill_tokens_per_s, count),
        ),
        parts.tiles(
            _check_tile(row),
            parts.tile("End to end", f"{decimal(summary.end_to_end_ms.value, 3)} ms"),
            *(
                parts.tile(f"Inter-token p{p:g}", f"{decimal(value, 3)} ms")
                for p, value in summary.itl_percentiles_ms.items()
                if value is not None and p in (50.0, 90.0, 99.0)
            ),
            parts.tile("Load", duration(summary.load_s.value), _first(row)),
            parts.tile("Measured", plural(summary.sequences, "sequence"), _processes([row])),
        ),
    ]


def _measured(label: str, value: Estimate | None, form: Callable[[float], str] | None = None) -> Element:
    more = {} if form is None else {"form": form}
    if value is None:
        return parts.tile(label, "–", "fewer than two tokens", "main")
    return parts.measured_tile(label, value.value, value.ends, **more)


def _first(row: Row) -> str:
    assert row.summary is not None
    return f"first generation {duration(row.summary.first_generation_ms.value / 1e3)}"


def _check_tile(row: Row) -> Element:
    found = row.agreement
    if found is None or found.top1 is None:
        return parts.tile("Agreement", "unchecked", found.detail if found else "", "words")
    value = f"{'WRONG, ' if found.status == 'mismatch' else ''}{share(found.top1)}"
    return parts.tile("Agreement", value, f"{found.agreeing} of {found.positions} tokens", "words")


def _many(shown: Sequence[Row]) -> list[Element]:
    """The best of each number, of cells whose tokens are right."""
    states = Counter(row.outcome.status for row in shown)
    wrong = sum(_is_wrong(row) for row in shown)
    checked = {row.agreement.status for row in shown if row.agreement}
    right = [
        row for row in shown if row.summary is not None and row.outcome.status == "done" and not _is_wrong(row)
    ]
    tokens = f"{plural(wrong, 'cell')} WRONG" if wrong else "match" if checked == {"match"} else "unchecked"
    tiles = [
        parts.tile("Cells", str(len(shown)), ", ".join(f"{number} {state}" for state, number in states.items())),
        parts.tile("Tokens", tokens, style="words"),
    ]
    if not right:
        return [parts.tiles(*tiles), parts.caption("No cell was measured to its end with tokens that are right.")]
    names = dict(zip((row.cell.id for row in shown), view.short_labels([row.cell for row in shown]), strict=True))
    best = []
    for label, name, sign, form in (
        ("Lowest time to first token (ms)", "ttft_ms", 1, None),
        ("Lowest time per output token (ms)", "tpot_ms", 1, None),
        ("Highest decode throughput (tokens/s)", "decode_tokens_per_s", -1, count),
    ):
        known = [(sign * value.value, row) for row in right if (value := getattr(row.summary, name)) is not None]
        if known:
            row = min(known, key=lambda pair: pair[0])[1]
            value = getattr(row.summary, name)
            text = rounded(value.value, value.ends, form or (lambda number: decimal(number, 3)))
            best.append(parts.tile(label, text, names[row.cell.id], "main"))
    return [
        parts.tiles(*best, *tiles),
        parts.caption(
            "Cells were measured in random order, not interleaved; cells of different precision are not the same "
            "model. Numbers of cells whose tokens are wrong are left out here."
        ),
    ]


def _is_wrong(row: Row) -> bool:
    return row.agreement is not None and row.agreement.status == "mismatch"


def _cells(shown: Sequence[Row]) -> list[Element]:
    """The table of all cells, with both ends of the intervals that matter most."""
    cells = [row.cell for row in shown]
    columns: dict[str, Sequence[str | Cell]] = {"#": [Cell(str(n), n) for n in range(1, len(shown) + 1)]}
    columns["Engine"] = [row.cell.engine for row in shown]
    for name, label in _TITLES.items():
        if len({getattr(cell, name) for cell in cells}) > 1:
            columns[label] = [Cell(str(getattr(cell, name)), getattr(cell, name)) for cell in cells]
    for label, name, ends in (
        ("TTFT (ms)", "ttft_ms", "TTFT, 95\u00a0%"),
        ("TPOT (ms)", "tpot_ms", "TPOT, 95\u00a0%"),
        ("Decode (tok/s)", "decode_tokens_per_s", ""),
        ("Prefill (tok/s)", "prefill_tokens_per_s", ""),
        ("Whole (ms)", "end_to_end_ms", ""),
    ):
        values = [_estimate(row, name) for row in shown]
        columns[label] = numbers([None if value is None else value.value for value in values])
        if ends:
            columns[ends] = [Cell("–" if value is None else _between(value)) for value in values]
    columns["Tokens"] = [_tokens_cell(row) for row in shown]
    if any(row.outcome.status != "done" for row in shown):
        columns["Status"] = [Cell(row.outcome.status, wrong=row.outcome.status == "failed") for row in shown]
    same = [f"{label} {getattr(cells[0], name)}" for name, label in _TITLES.items() if label not in columns]
    return [
        *([parts.caption(f"In all cells: {', '.join(same)}.")] if same else []),
        parts.rows_table("all-cells", list(columns), list(zip(*columns.values(), strict=True)), left=_NAMES),
    ]


def _estimate(row: Row, name: str) -> Estimate | None:
    found: Estimate | None = None if row.summary is None else getattr(row.summary, name)
    return found


def _between(value: Estimate) -> str:
    if value.ends is None:
        return "–"
    return between(value.ends, lambda number: decimal(number, 3)) if useful(value.ends) else "too noisy"


def _tokens_cell(row: Row) -> Cell:
    found = row.agreement
    if found is None:
        return Cell("–")
    if found.top1 is None:
        return Cell("unchecked")
    return Cell(f"{'WRONG, ' if _is_wrong(row) else ''}{share(found.top1)}", found.top1, wrong=_is_wrong(row))


def _chart(
    points: Sequence[GenerationPoint],
    drawn: parts.Charts,
    axis: str,
    draw: Callable[[Sequence[GenerationPoint]], Any],
) -> list[Element]:
    """A chart along an axis, with selectors for what else varies; nothing where the axis has one value."""
    several = varying(points)
    if axis not in several:
        return []
    others = {name: values for name, values in several.items() if name != axis and name in _TITLES}
    while others and _product(others) > _MOST_FIGURES:
        # What has the most values is drawn as lines instead.
        others.pop(max(others, key=lambda name: len(others[name])))
    figures = {}
    for choice in itertools.product(*others.values()):
        chosen = dict(zip(others, choice, strict=True))
        some = [point for point in points if all(getattr(point, name) == value for name, value in chosen.items())]
        try:
            figure = draw(some)
        except BadInput:
            # Nothing of this was measured.
            continue
        figures["|".join(map(str, choice))] = frame.compact(
            figure, figure.layout.height - figure.layout.margin.t + 30
        )
    if not figures:
        return []
    choices = {_TITLES[name]: {str(value): str(value) for value in values} for name, values in others.items()}
    return [
        parts.caption("Bars are 95 % intervals; the best line whose tokens are right is in colour."),
        *([parts.selectors(axis, choices)] if choices else []),
        drawn.add(axis, figures),
    ]


def _product(others: dict[str, list[Any]]) -> int:
    found = 1
    for values in others.values():
        found *= len(values)
    return found


def _tokens(shown: Sequence[Row], drawn: parts.Charts) -> list[Element]:
    """The gaps between the tokens of a cell, along its sequence."""
    figures = {}
    for number, row in enumerate(shown, 1):
        try:
            figure = token_times([(generation_label(row.cell), row.outcome)])
        except BadInput:
            continue
        figures[str(number)] = frame.compact(figure, 320)
    if not figures:
        return []
    said = parts.caption("The median gap before each token; four of five sequences lie in the shade.")
    if len(shown) == 1:
        return [said, drawn.add("tokens", {"": figures["1"]})]
    names = {key: f"#{key}: {generation_label(shown[int(key) - 1].cell)}" for key in figures}
    return [said, parts.selectors("tokens", {"Cell": names}), drawn.add("tokens", figures)]


def _agreement(shown: Sequence[Row]) -> list[Element]:
    """How the tokens of each cell compare with the reference's."""
    checked = [row for row in shown if row.agreement is not None]
    if not any(row.agreement and row.agreement.positions for row in checked):
        return [parts.caption("The tokens were not compared with a reference.")] if checked else []
    names = view.short_labels([row.cell for row in checked]) if len(checked) > 1 else [""]
    rows: list[list[str | Cell]] = []
    for row, name in zip(checked, names, strict=True):
        found = row.agreement
        assert found is not None
        rows.append(
            [
                name or generation_label(row.cell),
                _tokens_cell(row),
                Cell(f"{found.agreeing} of {found.positions}", found.agreeing),
                Cell(str(found.ties), found.ties),
                Cell(f"{found.prefix} of {found.prefix_of}", found.prefix),
                found.reference or found.detail,
            ]
        )
    head = ["Cell", "Tokens", "Forced positions that agree", "Close choices", "Free-running prefix", "Reference"]
    return [
        parts.caption(
            "Forced: given the reference's own tokens, the engine chooses the same next one. Free: tokens of a "
            "generation of its own, until the first that differs."
        ),
        parts.rows_table("agreement", head, rows, left=("Cell", *_NAMES)),
    ]


def _memory(shown: Sequence[Row]) -> list[Element]:
    """What the process took, and the cache of keys and values told in three ways."""
    measured = [row for row in shown if row.outcome.runs]
    if not measured:
        return []
    names = view.short_labels([row.cell for row in measured]) if len(measured) > 1 else [""]
    rows: list[list[str | Cell]] = []
    for row, name in zip(measured, names, strict=True):
        cache = row.outcome.runs[0].cache
        told = [cache.formula_bytes, cache.engine_bytes, cache.measured_bytes]
        memory = [
            view.most(row, key)
            for key in ("loaded_memory_bytes", "prefilled_memory_bytes", "decoded_memory_bytes")
        ]
        rows.append(
            [name or generation_label(row.cell), *map(_size, memory), *map(_size, told), cache.dtype or "–"]
        )
    head = ["Cell", "After load", "After prefill", "After decoding"]
    head += ["KV per token by formula", "by the engine", "measured", "Type"]
    return [parts.rows_table("memory", head, rows, left=("Cell", *_NAMES))]


def _size(value: float | None) -> Cell:
    return Cell("–") if value is None else Cell(size(value), value)


def _processes(shown: Sequence[Row]) -> str:
    counts = sorted({len(row.outcome.runs) for row in shown if row.outcome.runs})
    if not counts:
        return ""
    if len(counts) == 1:
        return f"in {plural(counts[0], 'fresh process', 'fresh processes')}"
    return f"in {counts[0]} to {counts[-1]} fresh processes"


def _how(sweep: GenerationSweep, shown: Sequence[Row]) -> list[Element]:
    """All that a reader needs to measure the same again."""
    plan, model = sweep.plan, sweep.model
    runs = [run for row in shown for run in row.outcome.runs]
    times = sorted(run.started_at for run in runs)
    types = ", ".join(f"{group.type} {scaled(group.parameters)}" for group in model.tensors)
    pairs = {
        "Model": model.source,
        "Digest": model.digest,
        "Architecture": f"{model.architecture}, {plural(model.layers, 'layer')}, {plural(model.heads, 'head')}, "
        f"{plural(model.kv_heads, 'KV head')}, context {model.context}, vocabulary {model.vocabulary}",
        "Parameters": f"{scaled(model.parameters)} ({types}), {size(model.size_bytes)}",
        "Command": _command(sweep),
        "Measured": " to ".join(dict.fromkeys((times[0], times[-1]))) if times else "",
        "Each cell": f"{duration(plan.time_s)} in all {_processes(shown)}".rstrip(),
        "Tokens": _PROMPTS,
        "Numbers": _NUMBERS,
        "Pinning": plan.thread_pinning,
        "Engine options": ", ".join(f"{name}={value}" for name, value in plan.engine_options),
        "Settings": "; ".join(dict.fromkeys(_settings(row) for row in shown if row.outcome.runs)),
        "Seed": str(plan.seed),
        "Machine": "; ".join(dict.fromkeys(machine_line(run.machine) for run in runs)),
        "Versions": _each(f"{name} {version}" for run in runs for name, version in run.versions.items()),
        "Made by": f"inferlab {__version__} {sweep.id}".strip(),
    }
    return [parts.facts(pairs)]


def _settings(row: Row) -> str:
    told = row.outcome.runs[0].settings
    return f"{row.cell.engine}: " + ", ".join(f"{name} {value}" for name, value in told.items())


def _each(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, texts)))


def _command(sweep: GenerationSweep) -> str:
    try:
        return command.generation(sweep.plan)
    except BadInput:  # Python can ask for what no single command says
        return ""
