"""A profile as one HTML file that opens offline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from inferlab.errors import BadInput
from inferlab.records.profile import FlopsProfile, LossProfile, Profile
from inferlab.units import plural, scaled, share, size
from inferlab.views import profile_tables as tables
from inferlab.views import profile_words as words
from inferlab.views import report_parts as parts
from inferlab.views.charts import profiles as charts
from inferlab.views.charts.profile_values import FLOPS, VALUES, model_name
from inferlab.views.profile_how import PRUNING, how
from inferlab.views.profile_summary import summary


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
    return parts.document(f"{model_name(profile)}: profile", [*_head(profile)], sections, drawn)


def _head(profile: Profile) -> Iterator[str]:
    performance = profile.performance
    known = [profile.created_at[:16].replace("T", " ")]
    if performance:
        known += [performance.machine.cpu, performance.engine_and_version]
    yield parts.heading(model_name(profile), profile.model, known)
    if told := words.wrong(profile):
        yield parts.box([told], wrong=True)
    yield parts.box(words.notes(profile))


def _timed(profile: Profile, drawn: parts.Charts, name: str) -> list[str]:
    """Layer summaries or layer results, with what may be chosen."""
    performance = profile.performance
    if performance is None or not performance.layers:
        return []
    options = {key: text for key, text in charts.summaries(profile).items() if key not in FLOPS}
    made = [*_chosen(profile, drawn, name, options)]
    if name == "summaries":
        if told := words.fallbacks(profile):
            made.append(parts.caption(told))
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
        parts.caption(words.ROOFLINE) if profile.performance and profile.performance.ceilings else "",
        drawn.add("roofline", {"": figure}),
    ]


def _loss(loss: LossProfile | None, profile: Profile, drawn: parts.Charts) -> list[str]:
    if loss is None:
        return []
    estimate = profile.estimate
    known = loss.average_sensitivity
    made = [
        parts.caption(f"{loss.name}: {words.method(loss)}. {words.metric(loss)}"),
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
    if told := words.left_out(loss):
        made.append(parts.caption(told))
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
