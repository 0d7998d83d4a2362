"""Records as what an entry of the store holds, and back; also those that earlier versions wrote.

Profiles, versions and searches are stored as they are. Runs of a comparison lie in cells of their own, beside it.

Version 1 of comparisons, capacities and recommendations was the file that the command writes (`older_formats`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from inferlab.codec import finite, plain, restored
from inferlab.errors import BadInput
from inferlab.records import (
    Capacity,
    Comparison,
    ComparisonFailure,
    ComparisonSweep,
    FleetRecommendation,
    Outcome,
    Pair,
    Recommendation,
)
from inferlab.records.optimization import FORMAT as OPTIMIZATION
from inferlab.records.optimization import Front, Optimization
from inferlab.records.profile import FORMAT as PROFILE
from inferlab.records.profile import Profile
from inferlab.store.entries import Document
from inferlab.store.record_files import PROFILES, VERSIONS

Content = Mapping[str, Any]
Record = ComparisonSweep | Capacity | Recommendation | FleetRecommendation | Profile | Optimization | Front

COMPARISON = "inferlab-comparison/2"
CAPACITY = "inferlab-capacity/2"
RECOMMENDATION = "inferlab-recommendation/2"
FLEET_RECOMMENDATION = "inferlab-fleet-recommendation/2"
SEARCH = "inferlab-search/1"
_FORMATS: dict[type, str] = {
    Capacity: CAPACITY,
    Recommendation: RECOMMENDATION,
    FleetRecommendation: FLEET_RECOMMENDATION,
    Front: SEARCH,
    Profile: PROFILE,
    Optimization: OPTIMIZATION,
}
# Stored as the file that the command writes.
_FILES = (Profile, Optimization, Front)
_KINDS: dict[type, str] = {
    ComparisonSweep: "comparison",
    Capacity: "capacity",
    Recommendation: "recommendation",
    FleetRecommendation: "recommendation",
    Front: "search",
    Profile: "profile",
    Optimization: "version",
}


def kind_of(record: Record) -> str:
    """The kind of entry that a record is stored as."""
    return _KINDS[type(record)]


def content_of(record: Record) -> dict[str, Any]:
    """A record as the JSON values that an entry holds."""
    if isinstance(record, ComparisonSweep):
        return {
            "format": COMPARISON,
            "results": [_stored_comparison(one) for one in record.results],
            "failures": [plain(one) for one in record.failures],
        }
    content = plain(record)
    # What is not a number is null: these are the files that the commands write.
    return {"format": _FORMATS[type(record)], **(finite(content) if isinstance(record, _FILES) else content)}


def _stored_comparison(comparison: Comparison) -> dict[str, Any]:
    log_ratios = [pair.log_ratio for pair in comparison.pairs]
    return {**plain(replace(comparison, pairs=())), "log_ratios": log_ratios}


def outcomes_of(comparison: Comparison) -> tuple[Outcome, ...]:
    """What was measured of A and of B; nothing where saved results were compared."""
    if comparison.cells is None:
        return ()
    runs = [pair.a for pair in comparison.pairs], [pair.b for pair in comparison.pairs]
    return tuple(Outcome(cell, "done", tuple(each)) for cell, each in zip(comparison.cells, runs, strict=True))


def record_of(document: Document) -> Record:
    """The record that an entry holds; BadInput where it is of a format that this version does not read."""
    known = str(document.content.get("format"))
    if known.endswith("/1") and known not in _READERS:
        from inferlab.store.older_formats import READERS  # late: few entries are as old

        read = READERS.get(known)
    else:
        read = _READERS.get(known)
    if read is None:
        raise BadInput(f"{document.id} is a {document.kind} in a format that this version does not read: {known}.")
    try:
        record: Record = read(document)
        return record if isinstance(record, Front) else replace(record, id=document.id)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise BadInput(f"The {document.kind} {document.id} is damaged: {error}.") from error


def _reader(kind: type[Record]) -> Callable[[Document], Any]:
    return lambda document: restored(kind, document.content)


def _comparisons(document: Document) -> ComparisonSweep:
    outcomes = iter(document.outcomes)
    return ComparisonSweep(
        tuple(_comparison(content, outcomes) for content in document.content["results"]),
        tuple(restored(ComparisonFailure, content) for content in document.content["failures"]),
    )


def _comparison(content: Content, outcomes: Iterator[Outcome]) -> Comparison:
    comparison = restored(Comparison, {**content, "pairs": []})
    return replace(comparison, pairs=pairs_of(outcomes, content["log_ratios"])) if comparison.cells else comparison


def pairs_of(outcomes: Iterator[Outcome], log_ratios: Sequence[float]) -> tuple[Pair, ...]:
    """The pairs of a comparison out of its next two arms."""
    a, b = next(outcomes, None), next(outcomes, None)
    if a is None or b is None or not len(a.runs) == len(b.runs) == len(log_ratios):
        raise ValueError("its runs are not those of its pairs")
    return tuple(Pair(*pair) for pair in zip(a.runs, b.runs, log_ratios, strict=True))


_READERS: dict[str, Callable[[Document], Any]] = {
    COMPARISON: _comparisons,
    CAPACITY: _reader(Capacity),
    RECOMMENDATION: _reader(Recommendation),
    FLEET_RECOMMENDATION: _reader(FleetRecommendation),
    SEARCH: _reader(Front),
    PROFILE: lambda document: PROFILES.from_content(document.content, document.id),
    OPTIMIZATION: lambda document: VERSIONS.from_content(document.content, document.id),
}
