"""A profile as one HTML file that opens offline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from inferlab.charts import profiles as charts
from inferlab.charts.profile_values import FLOPS, VALUES, model_name
from inferlab.errors import BadInput
from inferlab.profiling.records import FlopsProfile, LossProfile, Profile
from inferlab.records import Finding
from inferlab.render import profile_parts as parts
from inferlab.render import profile_tables as tables
from inferlab.render.profile_how import PRUNING, how
from inferlab.render.profile_summary import summary
from inferlab.render.text import finding, output_check
from inferlab.units import plural, scaled, share, size

_METHODS = {
    "approximated": "foretold from the weights alone",
    "one-shot": "measured without data: each layer pruned alone, on {items}",
    "one-shot with data": "measured with data: each layer pruned alone, on {items}",
}
_METRICS = {
    "relative power": "A loss is the power of the change of the outputs over the power of the dense outputs.",
    "cross-entropy": "A loss is the rise of the cross-entropy over that of the dense model.",
}


def report(profile: Profile) -> str:
    """The report of a profile: one self-contained page."""
    drawn = parts.Charts()
    sections = {
        "Model Summary": summary(profile),
        "Layer Summaries": _timed(profile, drawn, "summaries"),
        "Layer Results": _timed(profile, drawn, "results"),
        "Pruning": _pruning(profile, drawn),
        "Roofline": _roofline(profile, drawn),
        "Estimate": tables.estimates(profile),
        "Loss Profile": _loss(profile.loss, profile, drawn),
        "FLOPS Profile": _flops(profile.flops, profile, drawn),
        "How it was measured": how(profile),
    }
    there = {title: body for title, body in sections.items() if body}
    links = " ".join(f'<a href="#{_anchor(title)}">{title}</a>' for title in there)
    body = [*_head(profile), f"<nav>{links}</nav>"]
    for title, section in there.items():
        body += [f'<h2 id="{_anchor(title)}">{title}</h2>', *section]
    return parts.page(f"{model_name(profile)}: profile", body, drawn)


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _head(profile: Profile) -> Iterator[str]:
    model, performance = profile.model, profile.performance
    yield f"<h1>{parts.escaped(model_name(profile))}</h1>"
    known = [
        size(model.size_bytes),
        "" if model.parameters is None else f"{scaled(model.parameters)} parameters",
        model.precision,
        f"{share(zeros)} zeros" if (zeros := round(model.zero_fraction or 0.0, 3)) else "",
        f"digest {model.digest[:12]}" if model.digest else "",
        profile.created_at[:16].replace("T", " "),
    ]
    if performance:
        known += [performance.machine.cpu, performance.engine_and_version]
    yield f'<p class="soft">{parts.escaped(" · ".join(filter(None, known)))}</p>'
    if performance and performance.output_check.status == "mismatch":
        yield parts.box(
            [f"The outputs are WRONG: {output_check(performance.output_check)}. These times are worth nothing."],
            wrong=True,
        )
    notes = [_told(one) for one in _findings(profile) if one.code != "output-mismatch"]
    if performance and performance.output_check.status == "unchecked":
        notes.append(f"The outputs were not checked: {performance.output_check.detail or 'no reason is known'}.")
    notes += profile.problems
    notes += performance.problems if performance else ()
    if profile.interrupted:
        notes.append("It was interrupted; what was done by then is kept.")
    yield parts.box(list(dict.fromkeys(notes)))


def _findings(profile: Profile) -> list[Finding]:
    return [one for part in (profile.performance, profile.loss) if part for one in part.findings]


def _told(one: Finding) -> str:
    """A finding as a sentence that stands alone."""
    sentence = finding(one)
    return sentence[:1].upper() + sentence[1:]


def _timed(profile: Profile, drawn: parts.Charts, name: str) -> list[str]:
    """Layer summaries or layer results, with what may be chosen."""
    performance = profile.performance
    if performance is None or not performance.layers:
        return []
    options = {key: text for key, text in charts.summaries(profile).items() if key not in FLOPS}
    made = [*_chosen(profile, drawn, name, options)]
    if name == "summaries":
        fallbacks = sum(one.share for one in performance.layers if one.fallback)
        if fallbacks:
            made.append(
                parts.caption(
                    f"{share(fallbacks)} of the time ran in the engine's fallback, which pruning does not help."
                )
            )
        return made
    return [*made, "<h3>All layers</h3>", tables.layers(profile)]


def _chosen(profile: Profile, drawn: parts.Charts, name: str, options: Mapping[str, str]) -> Iterator[str]:
    draw = charts.layer_summaries if name.endswith("summaries") else charts.layer_results
    figures = {f"{key}|{value}": draw(profile, key, value) for key in options for value in VALUES}
    yield parts.selectors(name, {"Summary Type": options, "Value Display": VALUES})
    yield drawn.add(name, figures)


def _pruning(profile: Profile, drawn: parts.Charts) -> list[str]:
    performance = profile.performance
    if performance is None or not performance.pruned:
        return []
    return [
        parts.caption(PRUNING.get(performance.pruning, "")),
        drawn.add("pruning", {"": charts.pruning(profile)}),
    ]


def _roofline(profile: Profile, drawn: parts.Charts) -> list[str]:
    try:
        figure = charts.roofline(profile)
    except BadInput:  # no layer has both a time and counted work
        return []
    return [
        parts.caption(
            "Below the slope a layer waits for memory, below the flat part it computes. Ceilings were measured on "
            "this machine with as many cores; a layer whose data stay in the cache may lie above the slope."
        )
        if profile.performance and profile.performance.ceilings
        else "",
        drawn.add("roofline", {"": figure}),
    ]


def _loss(loss: LossProfile | None, profile: Profile, drawn: parts.Charts) -> list[str]:
    if loss is None:
        return []
    estimate = profile.estimate
    how = _METHODS[loss.method].format(items=plural(loss.items, "input"))
    known = loss.average_sensitivity
    made = [
        parts.caption(f"{loss.name}: {how}. {_METRICS[loss.metric]}"),
        parts.tiles(
            parts.tile("Parameters", scaled(loss.params), f"{scaled(loss.prunable_params)} can be pruned"),
            parts.tile("Average Sensitivity", "unknown" if known is None else f"{known:.3g}"),
            parts.tile(
                "Estimated Reduction",
                share(estimate.parameter_reduction),
                f"of the parameters, budget {estimate.budget:g}",
            )
            if estimate
            else "",
            parts.tile("Estimated Recovery", share(estimate.recovery), "of the outputs' quality")
            if estimate and estimate.recovery is not None
            else "",
            parts.tile("Dense Accuracy", share(loss.dense_accuracy)) if loss.dense_accuracy is not None else "",
            parts.tile("Dense Loss", f"{loss.dense_loss:.4g}") if loss.dense_loss is not None else "",
        ),
    ]
    if loss.left_out:
        named = [f"{name}: {reason}" for name, reason in loss.left_out.items()]
        more = f" and {len(named) - 5} more" if len(named) > 5 else ""
        made.append(parts.caption(f"Left out: {'; '.join(named[:5])}{more}."))
    if not loss.layers:
        return made
    for name, title, draw in (
        ("sensitivities", "Layer Sensitivities", charts.loss_sensitivities),
        ("parameters", "Parameter Counts", charts.parameter_counts),
    ):
        made += [f"<h3>{title}</h3>", parts.selectors(name, {"Value Display": VALUES})]
        made.append(drawn.add(name, {value: draw(profile, value) for value in VALUES}))
        if name == "sensitivities" and any(
            value is not None for one in loss.layers for value in one.losses.values()
        ):
            made.append(drawn.add("curves", {"": charts.loss_curves(profile)}))
    return [*made, "<details><summary>Losses of all layers</summary>", tables.losses(loss), "</details>"]


def _flops(flops: FlopsProfile | None, profile: Profile, drawn: parts.Charts) -> list[str]:
    if flops is None:
        return []
    kinds = ", ".join(f"{scaled(work.flops, 'FLOP')} in {name}" for name, work in flops.by_dtype.items())
    intensity = "unknown" if flops.intensity is None else f"{flops.intensity:.3g}"
    made = [
        parts.caption("In theory, from the architecture alone; a multiply-add counts as two."),
        parts.tiles(
            parts.tile("FLOPs", scaled(flops.flops, "FLOP"), kinds),
            parts.tile("Multiply-adds", scaled(flops.macs, "MAC")),
            parts.tile("Parameters", scaled(flops.params), size(flops.weight_bytes)),
            parts.tile("Activations", size(flops.activation_bytes), "read and written"),
            parts.tile("Intensity", intensity, "FLOPs a byte"),
            parts.tile("Batch Size", str(flops.batch_size)),
        ),
        parts.box(
            [f"Not counted: {plural(one.count, 'node')} of {one.type}: {one.reason}." for one in flops.uncounted]
        ),
    ]
    if not flops.layers:
        return made
    for name, title in (("flops-summaries", "FLOPs by Layer Type"), ("flops-results", "FLOPs by Layer")):
        made += [f"<h3>{title}</h3>", *_chosen(profile, drawn, name, FLOPS)]
    return [*made, "<details><summary>All layers in theory</summary>", tables.theory(flops), "</details>"]
