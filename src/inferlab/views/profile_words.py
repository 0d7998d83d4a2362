"""What is said of a profile in sentences, in its report and on its pages alike."""

from __future__ import annotations

from inferlab.records import Finding
from inferlab.records.profile import LossProfile, PerformanceProfile, Profile
from inferlab.units import plural, share
from inferlab.views.text import finding, output_check

_METHODS = {
    "approximated": "foretold from the weights alone",
    "one-shot": "measured without data: each layer pruned alone, on {items}",
    "one-shot with data": "measured with data: each layer pruned alone, on {items}",
}
_METRICS = {
    "relative power": "A loss is the power of the change of the outputs over the power of the dense outputs.",
    "cross-entropy": "A loss is the rise of the cross-entropy over that of the dense model.",
}
ROOFLINE = (
    "Below the slope a layer waits for memory, below the flat part it computes. Ceilings were measured on this "
    "machine with as many cores; a layer whose data stay in the cache may lie above the slope."
)


def wrong(profile: Profile) -> str:
    """That the outputs are not what they should be; empty where they are, or where nobody knows."""
    check = profile.performance.output_check if profile.performance else None
    if check is None or check.status != "mismatch":
        return ""
    return f"The outputs are {output_check(check)}. These times are worth nothing."


def notes(profile: Profile) -> list[str]:
    """All that qualifies the numbers: findings, what could not be made, that it was cut off."""
    performance = profile.performance
    found = [_told(one) for one in _findings(profile) if one.code != "output-mismatch"]
    if performance and performance.output_check.status == "unchecked":
        found.append(f"The outputs were not checked: {performance.output_check.detail or 'no reason is known'}.")
    found += profile.problems
    found += performance.problems if performance else ()
    if profile.interrupted:
        found.append("It was interrupted; what was done by then is kept.")
    return list(dict.fromkeys(found))


def fallbacks(profile: Profile) -> str:
    """How much of the time ran elsewhere than in the engine; empty where nothing did."""
    found = sum(one.share for one in profile.performance.layers if one.fallback) if profile.performance else 0.0
    return (
        f"{share(found)} of the time ran in the engine's fallback, which pruning does not help." if found else ""
    )


def method(loss: LossProfile) -> str:
    """How the losses were found."""
    return _METHODS[loss.method].format(items=plural(loss.items, "input"))


def metric(loss: LossProfile) -> str:
    """What a loss is, in a sentence."""
    return _METRICS[loss.metric]


def left_out(loss: LossProfile, most: int = 5) -> str:
    """Which weights have no losses, and why; empty where all have."""
    named = [f"{name}: {reason}" for name, reason in loss.left_out.items()]
    more = f" and {len(named) - most} more" if len(named) > most else ""
    return f"Left out: {'; '.join(named[:most])}{more}." if named else ""


def _findings(profile: Profile) -> list[Finding]:
    return [one for part in (profile.performance, profile.loss) if part for one in part.findings]


def _told(one: Finding) -> str:
    """A finding as a sentence that stands alone."""
    sentence = finding(one)
    return sentence[:1].upper() + sentence[1:]


def overhead(found: PerformanceProfile) -> str:
    """What the engine's profiler adds to an inference, with its interval; it cannot make one faster."""
    ends = found.overhead_interval
    between = "" if ends is None else f"{share(ends[0])} to {share(ends[1])}"
    if found.profiler_overhead < 0 or (ends is not None and ends[0] <= 0):
        return f"not measurable ({between})" if between else "not measurable"
    return f"{share(found.profiler_overhead)} ({between})" if between else share(found.profiler_overhead)
