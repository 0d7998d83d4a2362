"""Documents of the store in words: comparisons, capacities, profiles, versions, …, read from their JSON."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inferlab.errors import BadInput
from inferlab.store.entries import Document
from inferlab.units import count, decimal, duration, plural, share
from inferlab.views import columns
from inferlab.views.history import clean
from inferlab.views.intervals import between, interval_text, rounded, would_settle

Content = Mapping[str, Any]

# So many candidates of a recommendation are shown; all of them are in the file.
_SHOWN = 12
_METRICS = {"median": "median latency an item", "throughput": "time an item at full throughput"}
_ERRORS = {"max": "largest error", "rms": "RMS error", "share": "share that differs"}


def lines(document: Document) -> list[str]:
    """The main lines of a document; of a kind or version that is not known here, what it has of plain values."""
    content = document.content
    known = _KINDS.get(str(content.get("format")))
    try:
        found = known(content) if known else _anything(document)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, BadInput):
        # Kept by another version, or by hand: what is there is shown all the same.
        found = _anything(document)
    return found


def machines(content: Content) -> list[Content]:
    """The machines that a document names."""
    return [one["machine"] for one in _parts(content) if isinstance(one.get("machine"), Mapping)]


def versions(content: Content) -> list[Mapping[str, str]]:
    """The versions of packages that a document names."""
    return [one["versions"] for one in _parts(content) if isinstance(one.get("versions"), Mapping)]


def _parts(content: Content) -> list[Content]:
    """The document itself, arms of a comparison, measured parts of a profile or a version, machines."""
    several, engines = content.get("results"), content.get("measured")
    whole = several if isinstance(several, list) else [content]
    parts = [
        content,
        content.get("performance"),
        *(one.get(name) for one in whole if isinstance(one, Mapping) for name in "ab"),
    ]
    parts += engines if isinstance(engines, list) else []
    machines = content.get("machines")
    parts += (
        [one.get("recommendation") for one in machines or () if isinstance(one, Mapping)]
        if isinstance(machines, list)
        else []
    )
    return [one for one in parts if isinstance(one, Mapping)]


def _anything(document: Document) -> list[str]:
    plain = {name: value for name, value in document.content.items() if isinstance(value, str | int | float)}
    told = [clean(f"{name}: {value}") for name, value in plain.items()]
    return [clean(document.title), *told, f"All of it as JSON: inferlab show {document.id} -x result.json"]


def _comparison(content: Content) -> list[str]:
    arms = [
        f"{name.upper()}: {content[name]['label']}: {decimal(statistics.median(content[name]['times_ms']))} ms "
        f"({_METRICS[content['metric']]})"
        for name in "ab"
    ]
    said = [
        f"B takes {rounded(content['ratio'], content['interval'])} of A's time",
        interval_text(content["interval"], content["level"]),
        f"margin {share(content['margin'])}",
    ]
    found = [*arms, f"Verdict: {content['verdict']} ({', '.join(said)}; {_outputs(content)})"]
    found.append(f"Measured: {_measured(content)}; {duration(content['seconds'])}")
    if content["settle_seconds"] is not None:
        found.append(would_settle(content["settle_seconds"]))
    return found + [f"Note: {text}" for text in content["notes"]]


def _comparisons(content: Content) -> list[str]:
    found = []
    for one in content["results"]:
        cell = one["a"]["cell"]
        found += ["", f"{plural(cell['num_cores'], 'core')}, batch size {cell['batch_size']}", *_comparison(one)]
    for one in content["failures"]:
        where = f"{one['num_cores'] or 'all'} cores, batch size {one['batch_size'] or 'as it is'}"
        found += ["", f"Failure ({where}): {one['message']}"]
    return found[1:]


def _outputs(content: Content) -> str:
    if content["outputs_match"] is None:
        return f"outputs not compared: {content['output_detail']}"
    # JSON has no infinity, so that one is kept as a word.
    error, metric = content["output_error"], _ERRORS[content.get("output_metric", "max")]
    said = "" if error is None else f" ({metric} {float(error):.2g})"
    return (
        f"outputs match{said}"
        if content["outputs_match"]
        else f"outputs DIFFER{said} in '{content['output_detail']}'"
    )


def _measured(content: Content) -> str:
    if content["paired"]:
        return f"{content['pairs']} pairs of fresh processes, measured in turns"
    return (
        f"unpaired, {len(content['a']['times_ms'])} and {len(content['b']['times_ms'])} processes of saved results"
    )


def _capacity(content: Content) -> list[str]:
    cell = content["cell"]
    streams = plural(cell["num_streams"], "stream")
    if cell["num_streams"] > 1:
        streams += f" ({content['stream_mode']})"
    if cell["instances"] > 1:
        streams = f"{cell['instances']} instances of {streams}"
    saturation = f"Saturation: {count(content['saturation_rate'])} requests/s"
    if content["predicted_rate"]:
        saturation += f"; predicted from the service times: {count(content['predicted_rate'])} requests/s"
    return [
        f"Original Model Path: {content['model']['source']}",
        f"Batch Size: {cell['batch_size']}",
        f"Engine: {cell['engine']}, cores: {cell['num_cores']}, {streams}",
        _highest_rate(content),
        saturation,
        *_curve(content),
        f"Output Check: {_check(content['output_check'])}",
        *(f"Note: {one['text']}" for one in content["findings"]),
    ]


def _highest_rate(content: Content) -> str:
    objective, lone = content["slo"]["text"], content["lone_request"]
    if lone:
        return (
            f"No rate keeps {objective}: even requests that come one by one take "
            f"{duration(lone['time'] / 1e3)} ({lone['statistic']} of the service time)."
        )
    if content["max_rate"] == 0:
        return f"No rate keeps {objective}: the lowest that was tried misses it."
    processes = len(content["processes"])
    sure = f"{processes} process{'es' if processes > 1 else ''}"
    if content["interval"]:
        sure = f"{interval_text(content['interval'], content['level'])}, {sure}"
    highest = rounded(content["max_rate"], content["interval"], count)
    return f"Highest rate that keeps {objective}: {highest} requests/s ({sure})"


def _curve(content: Content) -> list[str]:
    """Latency over rate."""
    from inferlab.views.capacity import kept

    if not content["curve"]:
        return []
    own = content["slo"]["statistic"]
    names = list(dict.fromkeys(("median", "p90", "p99", own)))
    head = ["rate/s", "of saturation", *(f"response {name}" for name in names), f"service {own}", "unserved",
            "requests", "kept"]  # fmt: skip
    rows = [head]
    for rung in content["curve"]:
        times = [*(rung["response"][name] for name in names), rung["service"][own]]
        rows.append(
            [
                count(rung["rate"]),
                share(rung["share_of_saturation"]),
                *("-" if one is None else count(one) for one in times),
                share(rung["unserved_share"]),
                str(rung["requests"]),
                kept(rung["kept"], rung["share_of_saturation"]),
            ]
        )
    return ["Latency over rate, times in ms, all processes together:", *columns.aligned(rows)]


def _check(check: Content) -> str:
    if check["status"] == "unchecked":
        return f"unchecked: {check['detail']}"
    error = f"{_ERRORS[check['metric']]} {float(check['error']):.2g}"
    found = f"{error}, tolerance {check['tolerance']:g}, against {check['reference']}"
    return f"match ({found})" if check["status"] == "match" else f"WRONG (output '{check['detail']}': {found})"


def _recommendation(content: Content) -> list[str]:
    best, second = content["recommended"], content["runner_up"]
    found = [f"Original Model Path: {content['model']['source']}"]
    if content["objective"]:
        found.append(f"Objective: {content['objective']['text']}")
    found.append(f"Recommended: {_configured(best)}" if best else "Nothing could be recommended.")
    found += [f"Runner-up: {_configured(second)}"] if second else []
    found += ["", *_candidates(content["candidates"]), ""]
    found += [_pairs(one) for one in content["comparisons"]]
    if content["simpler_of_equals"]:
        found.append("Of those that are as fast, the simplest is recommended: cores, batch, streams.")
    found += [f"Note: {one}." for one in content["troubles"]]
    found += [f"Note: {name} {reason}." for name, reason in content["left_out"].items()]
    found += ["Note: interrupted; this is what was known by then."] if content["interrupted"] else []
    measured = sum("items_per_sec" in one for one in content["candidates"])
    found.append(
        f"{plural(len(content['candidates']), 'configuration')}, {measured} measured; "
        f"{duration(content['seconds'])} of {duration(content['seconds_allowed'])}."
    )
    code = content["code"]
    return [*found, "", "The code that sets it:", "", *code.splitlines()] if code else found


def _configured(one: Content) -> str:
    return (
        f"{one['engine']}, {plural(one['num_cores'], 'core')}, {plural(one['num_streams'], 'stream')}, "
        f"batch {one['batch_size']}"
    )


def _candidates(found: Sequence[Content]) -> list[str]:
    """Those that were measured, in the order of the search's own verdict."""
    measured = [one for one in found if "items_per_sec" in one]
    rows = [["Engine", "Cores", "Streams", "Batch", "Items/s", "95 % interval", "Median", "Status"]]
    for one in measured[:_SHOWN]:
        ends = one["interval"]
        rows.append(
            [
                columns.shortened(one["engine"], 28),
                *(str(one[name]) for name in ("num_cores", "num_streams", "batch_size")),
                rounded(one["items_per_sec"], ends, count),
                between(ends, count) if ends else "-",
                duration(one["median_ms"] / 1e3),
                one["status"],
            ]
        )
    return columns.aligned(rows, left=range(len(rows[0])))


_VERDICTS = {
    "faster": "the second is faster",
    "slower": "the first is faster",
    "same": "they are the same within {margin}",
    "inconclusive": "inconclusive",
}


def _pairs(one: Content) -> str:
    ends = f" ({between(one['interval'])})" if one["interval"] else ""
    verdict = _VERDICTS[one["verdict"]].format(margin=share(one["margin"]))
    ratio = rounded(one["ratio"], one["interval"], "{:.3f}".format)
    return (
        f"In {plural(one['pairs'], 'pair')}: {one['b']} takes {ratio}{ends} of the time an item of "
        f"{one['a']}: {verdict}."
    )


def _fleet_recommendation(content: Content) -> list[str]:
    from inferlab.views import fleet_recommend

    return fleet_recommend.lines(content)


def _profile(content: Content) -> list[str]:
    # Late: history and the other kinds need none of it.
    from inferlab.views import profile, profile_files

    return profile.lines(profile_files.from_content(content, "profile"))


def _version(content: Content) -> list[str]:
    from inferlab.views import optimization, optimization_files

    return optimization.lines(optimization_files.from_content(content, "version"))


def _search(content: Content) -> list[str]:
    from inferlab.views import front

    return front.lines(front.from_content(content, "search"))


_KINDS: dict[str, Callable[[Content], list[str]]] = {
    "inferlab-comparison/1": _comparison,
    "inferlab-comparisons/1": _comparisons,
    "inferlab-capacity/1": _capacity,
    "inferlab-recommendation/1": _recommendation,
    "inferlab-fleet-recommendation/1": _fleet_recommendation,
    "inferlab-profile/1": _profile,
    "inferlab-optimization/1": _version,
    "inferlab-search/1": _search,
}
