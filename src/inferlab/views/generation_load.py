"""Requests for tokens that arrive by themselves, as columns, as blocks of one cell, and as values of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from inferlab.records import Estimate
from inferlab.records.generation import LoadSummary, PromptSet
from inferlab.units import decimal, duration, plural, share
from inferlab.views.fields import Field, estimate
from inferlab.views.intervals import half_width, rounded, useful
from inferlab.views.tables import Pair

_MS = partial(decimal, places=3)
_SHOWN = (50.0, 90.0, 99.0)


def _percentile(key: str, label: str, name: str, p: float) -> Field:
    def get(row: Any) -> Any:
        return row.load and getattr(row.load, name)[p]

    return Field(f"{key}_p{p:g}_ms", f"{label} p{p:g} ms", get, _MS, title=f"{label} p{p:g}", unit="ms")


def _of_load(key: str, label: str, form: Callable[[Any], str], **more: Any) -> Field:
    return Field(key, label, lambda row: row.load and getattr(row.load, key), form, **more)


SERVED = estimate("served_per_s", "served/s", lambda row: row.load and row.load.served_per_s, form=_MS)
GOODPUT = estimate(
    "goodput_per_s",
    "goodput/s",
    lambda row: row.load and row.load.goodput_per_s,
    form=_MS,
    title="Goodput",
    unit="requests/s",
)
#: What is shown of a cell whose requests arrive by themselves.
LOAD_FIELDS: tuple[Field, ...] = (
    SERVED,
    _percentile("ttft", "TTFT", "ttft_percentiles_ms", 50.0),
    _percentile("ttft", "TTFT", "ttft_percentiles_ms", 90.0),
    _percentile("ttft", "TTFT", "ttft_percentiles_ms", 99.0),
    _percentile("tpot", "TPOT", "tpot_percentiles_ms", 50.0),
    _percentile("tpot", "TPOT", "tpot_percentiles_ms", 90.0),
    _percentile("end_to_end", "end to end", "end_to_end_percentiles_ms", 50.0),
    _percentile("queue", "queue", "queue_percentiles_ms", 50.0),
    _of_load("attainment", "meet SLO", share),
    GOODPUT,
    _of_load("unserved_share", "unserved", share),
    _of_load("concurrency", "at once", _MS),
)


def load_blocks(load: LoadSummary, slo: str, serving: str) -> list[Pair]:
    """What requests met that arrived by themselves."""
    unserved = f", {share(load.unserved_share)} not served in time" if load.unserved_share else ""
    found = [
        Pair("Requests", f"{load.requests} arrived{unserved}; served {_estimate(load.served_per_s)} requests/s"),
        Pair("Serving", f"{serving}, {decimal(load.concurrency, 3)} at once on average while it works"),
    ]
    if load.goodput_per_s is not None and load.attainment is not None:
        met = f"{share(load.attainment)} of the requests meet {slo}"
        found.append(Pair("Goodput", f"{_estimate(load.goodput_per_s)} requests/s ({met})", True))
    for name, values in {
        "Time to first token": load.ttft_percentiles_ms,
        "Time per output token": load.tpot_percentiles_ms,
        "End to end": load.end_to_end_percentiles_ms,
        "Wait in the queue": load.queue_percentiles_ms,
    }.items():
        found.append(Pair(name, percentiles_text(values)))
    return found


def percentiles_text(values: Mapping[float, float | None]) -> str:
    """Those percentiles that the samples carry."""
    known = {p: values.get(p) for p in _SHOWN}
    return ", ".join(f"p{p:g} {_MS(value)} ms" for p, value in known.items() if value is not None) or "unknown"


def _estimate(value: Estimate) -> str:
    width = half_width(value.ends)
    sure = f" (±{width})" if useful(value.ends) else f" ({width})" if width else ""
    return f"{rounded(value.value, value.ends, _MS)}{sure}"


def prompts_pair(prompts: PromptSet) -> Pair:
    """The prompts of the user's own, and what tokenising took."""
    lengths = f"{prompts.shortest_tokens} to {prompts.longest_tokens} tokens, median {prompts.median_tokens}"
    made = ""
    if prompts.texts:
        each = duration(prompts.tokenize_s / prompts.texts)
        made = f"; tokenised by {prompts.tokenizer} in {each} each, which no other time contains"
    return Pair("Prompts", f"{plural(prompts.count, 'prompt')} of {lengths}{made}")


def load_content(load: LoadSummary | None) -> dict[str, Any] | None:
    """The values of a file; every estimate has its interval beside it."""
    if load is None:
        return None

    def by_name(values: Mapping[float, float | None]) -> dict[str, float | None]:
        return {f"p{p:g}": value for p, value in values.items()}

    goodput = load.goodput_per_s
    return {
        "requests": load.requests,
        "unserved_share": load.unserved_share,
        "served_per_s": load.served_per_s.value,
        "served_per_s_interval": load.served_per_s.ends and list(load.served_per_s.ends),
        "goodput_per_s": None if goodput is None else goodput.value,
        "goodput_per_s_interval": None if goodput is None or goodput.ends is None else list(goodput.ends),
        "attainment": load.attainment,
        "ttft_ms": by_name(load.ttft_percentiles_ms),
        "tpot_ms": by_name(load.tpot_percentiles_ms),
        "end_to_end_ms": by_name(load.end_to_end_percentiles_ms),
        "queue_ms": by_name(load.queue_percentiles_ms),
        "concurrency": load.concurrency,
        "late_share": load.late_share,
        "latest_ms": load.latest_ms,
    }
