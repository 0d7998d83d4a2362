"""The nouns of inferlab: frozen, plain, importing nothing of ours. Profiles and recipes lie in their modules.

What only some commands need is imported when it is asked for: `history` is quicker by a tenth.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from inferlab.records.benchmark import (
    Benchmark,
    Cell,
    Dim,
    EngineInfo,
    Estimate,
    Event,
    Fact,
    FactState,
    Failure,
    Finding,
    Kind,
    Listener,
    Machine,
    Method,
    Metric,
    Model,
    Outcome,
    OutputCheck,
    Pinning,
    Plan,
    Run,
    Samples,
    Scenario,
    Shape,
    Status,
    StreamMode,
    Summary,
    TensorSpec,
    Window,
    engine_name,
    ignore,
    is_release,
)

if TYPE_CHECKING:
    from inferlab.records.capacity import Capacity, CapacityProcess, LoneRequest, Objective, RatePoint, Reach
    from inferlab.records.comparison import (
        Comparison,
        ComparisonFailure,
        ComparisonSweep,
        Pair,
        Spread,
        SpreadPrior,
        Spreads,
        TimeMetric,
        Verdict,
    )
    from inferlab.records.recommendation import (
        Candidate,
        Contender,
        Deployment,
        Figures,
        FleetRecommendation,
        MachineRecommendation,
        PairedRatio,
        Recommendation,
        Round,
        Standing,
    )

__all__ = [
    "Benchmark",
    "Candidate",
    "Capacity",
    "CapacityProcess",
    "Cell",
    "Comparison",
    "ComparisonFailure",
    "ComparisonSweep",
    "Contender",
    "Deployment",
    "Dim",
    "EngineInfo",
    "Estimate",
    "Event",
    "Fact",
    "FactState",
    "Failure",
    "Figures",
    "Finding",
    "FleetRecommendation",
    "Kind",
    "Listener",
    "LoneRequest",
    "Machine",
    "MachineRecommendation",
    "Method",
    "Metric",
    "Model",
    "Objective",
    "Outcome",
    "OutputCheck",
    "Pair",
    "PairedRatio",
    "Pinning",
    "Plan",
    "RatePoint",
    "Reach",
    "Recommendation",
    "Round",
    "Run",
    "Samples",
    "Scenario",
    "Shape",
    "Spread",
    "SpreadPrior",
    "Spreads",
    "Standing",
    "Status",
    "StreamMode",
    "Summary",
    "TensorSpec",
    "TimeMetric",
    "Verdict",
    "Window",
    "engine_name",
    "ignore",
    "is_release",
]

_LATE = ("capacity", "comparison", "recommendation")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in map(import_module, (f"{__name__}.{late}" for late in _LATE)):
            if hasattr(module, name):
                globals()[name] = getattr(module, name)
                return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
