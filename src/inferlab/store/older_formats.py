"""Readers of what version 1 stored of comparisons, capacities and recommendations: the files of the commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inferlab.codec import restored
from inferlab.records import Cell, Estimate, Failure, Finding, Machine, Model, Outcome, OutputCheck
from inferlab.records.capacity import Capacity, CapacityProcess, LoneRequest, Objective, RatePoint
from inferlab.records.comparison import Comparison, ComparisonFailure, ComparisonSweep
from inferlab.records.recommendation import (
    Candidate,
    Contender,
    Figures,
    FleetRecommendation,
    MachineRecommendation,
    PairedRatio,
    Recommendation,
    Round,
)
from inferlab.store.entries import Document
from inferlab.store.formats import pairs_of

Content = Mapping[str, Any]


def _comparisons_1(document: Document) -> ComparisonSweep:
    outcomes = list(document.outcomes)
    several = document.content.get("results", [document.content])
    results = []
    for place, content in enumerate(several):
        arms = outcomes[2 * place : 2 * place + 2]
        if len(arms) != 2:
            raise ValueError("its runs were not stored")
        results.append(_comparison_1(content, arms))
    failures = tuple(restored(ComparisonFailure, content) for content in document.content.get("failures", ()))
    return ComparisonSweep(tuple(results), failures)


def _comparison_1(content: Content, arms: Sequence[Outcome]) -> Comparison:
    low, high = content["interval"] or (None, None)
    sides = content["a"], content["b"]
    error = content["output_error"]
    return Comparison(
        labels=(sides[0]["label"], sides[1]["label"]),
        ratio=Estimate(content["ratio"], low, high, content["level"], content["method"]),
        verdict=content["verdict"],
        margin=content["margin"],
        metric=content["metric"],
        seconds=content["seconds"],
        outputs_match=content["outputs_match"],
        # JSON had no infinity, so that one was stored as a word.
        output_error=None if error is None else float(error),
        output_detail=content["output_detail"],
        settle_s=content["settle_seconds"],
        cells=(arms[0].cell, arms[1].cell),
        models=(_model_1(sides[0]["model"]), _model_1(sides[1]["model"])),
        pairs=pairs_of(iter(arms), content["log_ratios"]),
        times_ms=(tuple(sides[0]["times_ms"]), tuple(sides[1]["times_ms"])),
        differences=tuple(content["differences"]),
        interrupted=content["interrupted"],
        output_metric=content.get("output_metric", "max"),
    )


def _model_1(about: Content) -> Model:
    """A model of which version 1 had only a few words."""
    source = about["source"]
    return Model(
        about.get("kind", "onnx"),
        source,
        source,
        about["digest"],
        (),
        (),
        0,
        precision=about.get("precision", "FP32"),
    )


def _capacity_1(document: Document) -> Capacity:
    content = document.content
    objective = content["slo"]
    lone = content["lone_request"]
    cell = {**content["cell"], "rate": None, "scenario": "server", "precision": None, "warmup_s": 0.0}
    return Capacity(
        cell=restored(Cell, cell),
        model=_model_1(content["model"]),
        objective=_objective_1(objective, objective["limit"]),
        predicted_rate=content["predicted_rate"],
        processes=tuple(restored(CapacityProcess, process) for process in content["processes"]),
        curve=tuple(map(_rate_point_1, content["curve"])),
        stream_mode=content["stream_mode"],
        check=_check_1(content["output_check"]),
        findings=tuple(Finding(finding["code"], finding["data"]) for finding in content["findings"]),
        machine=restored(Machine, content["machine"]),
        versions=content["versions"],
        settings=content["engine_settings"],
        lone=lone and LoneRequest(lone["time"] / 1e3, lone["statistic"]),
        interrupted=content["interrupted"],
    )


def _objective_1(content: Content, limit_ms: float) -> Objective:
    return Objective(content["statistic"], limit_ms / 1e3, content["text"])


def _rate_point_1(content: Content) -> RatePoint:
    def seconds(name: str) -> dict[str, float | None]:
        return {key: None if value is None else value / 1e3 for key, value in content[name].items()}

    return RatePoint(
        rate=content["rate"],
        load=content["share_of_saturation"],
        requests=content["requests"],
        processes=content["processes"],
        unserved_share=content["unserved_share"],
        responses_s=seconds("response"),
        services_s=seconds("service"),
        kept=content["kept"],
    )


def _check_1(content: Content) -> OutputCheck:
    error = content["error"]
    return restored(OutputCheck, {**content, "error": None if error is None else float(error)})


def _recommendation_1(document: Document) -> Recommendation:
    return _recommendation(document.content)


def _recommendation(content: Content) -> Recommendation:
    objective = content["objective"]
    return Recommendation(
        model=_model_1(content["model"]),
        objective=_objective_1(objective, objective["limit_ms"]) if objective else None,
        contenders=tuple(map(_contender_1, content["candidates"])),
        comparisons=tuple(map(_paired_ratio_1, content["comparisons"])),
        troubles=tuple(content["troubles"]),
        simpler=content["simpler_of_equals"],
        deployment=None,
        left_out=content["left_out"],
        time_s=content["seconds_allowed"],
        seconds=content["seconds"],
        interrupted=content["interrupted"],
        machine=restored(Machine, content["machine"]) if content["machine"] else None,
        versions=content["versions"],
        code=content["code"] or "",
    )


def _contender_1(content: Content) -> Contender:
    figures = None
    if "items_per_sec" in content:
        objective_ms = content["objective_ms"]
        figures = Figures(
            items_per_sec=_estimate_1(content["items_per_sec"], content["interval"]),
            median_s=content["median_ms"] / 1e3,
            objective_s=None if objective_ms is None else objective_ms / 1e3,
            batches=None,
            check=OutputCheck(content["output_check"]),
            lost_share=0.0,
        )
    rounds = tuple(
        Round(
            part["started_at"],
            part["items_per_sec"],
            part["median_ms"],
            part["peak_memory_bytes"],
            part["load_time_ms"] / 1e3,
        )
        for part in content.get("rounds", ())
    )
    spared_by = content["spared_by"]
    return Contender(
        restored(Candidate, dict(content)),
        content["status"],
        rounds,
        figures,
        content["stream_mode"],
        content["problem"] or "",
        restored(Candidate, spared_by) if spared_by else None,
    )


def _estimate_1(value: float, ends: Sequence[float] | None) -> Estimate:
    low, high = ends or (None, None)
    return Estimate(value, low, high, 0.95, "student")


def _paired_ratio_1(content: Content) -> PairedRatio:
    low, high = content["interval"] or (None, None)
    return PairedRatio(
        (content["a"], content["b"]),
        Estimate(content["ratio"], low, high, content["level"], content["method"]),
        content["verdict"],
        content["margin"],
        content["metric"],
        content["pairs"],
        content["seconds"],
    )


def _fleet_recommendation_1(document: Document) -> FleetRecommendation:
    content = document.content
    machines = tuple(map(_machine_recommendation_1, content["machines"]))
    objectives = [machine.recommendation.objective for machine in machines if machine.recommendation]
    about = content["objective"]
    first = next(iter(objectives), None) if about else None
    objective = first or (Objective(about["statistic"], 0.0, about["text"]) if about else None)
    return FleetRecommendation(_model_1(content["model"]), objective, machines, content["interrupted"])


def _machine_recommendation_1(content: Content) -> MachineRecommendation:
    cost = content["cost_per_million"]
    return MachineRecommendation(
        content["machine_type"],
        content["price_per_hour"],
        _recommendation(content["recommendation"]) if content["recommendation"] else None,
        restored(Failure, content["failure"]) if content["failure"] else None,
        None if cost is None else _estimate_1(cost, content["cost_per_million_interval"]),
    )


READERS: dict[str, Callable[[Document], Any]] = {
    "inferlab-comparison/1": _comparisons_1,
    "inferlab-comparisons/1": _comparisons_1,
    "inferlab-capacity/1": _capacity_1,
    "inferlab-recommendation/1": _recommendation_1,
    "inferlab-fleet-recommendation/1": _fleet_recommendation_1,
}
