"""inferlab: how fast a model runs on a CPU, on which engine, and how sure that is."""

from __future__ import annotations

from inferlab.version import __version__

# As `typing` has it, which takes longer to import than all the rest here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from inferlab.api import (
        benchmark,
        capacity,
        compare,
        compare_sweeps,
        doctor,
        generate,
        optimize,
        profile,
        recommend,
    )
    from inferlab.errors import BadInput, GoalNotReached, InferlabError
    from inferlab.lab import Lab
    from inferlab.model.export import export_to_onnx
    from inferlab.model_results import OptimizationResult, ProfileResult
    from inferlab.plotting import plot
    from inferlab.records import Plan
    from inferlab.results import (
        BenchmarkResult,
        CapacityResult,
        ComparisonResult,
        ComparisonSweepResult,
        DoctorResult,
        GenerationCapacityResult,
        GenerationComparisonResult,
        GenerationRecommendationResult,
        GenerationResult,
        RecommendationResult,
    )
    from inferlab.store import open_store

__all__ = [
    "BadInput",
    "BenchmarkResult",
    "CapacityResult",
    "ComparisonResult",
    "ComparisonSweepResult",
    "DoctorResult",
    "GenerationCapacityResult",
    "GenerationComparisonResult",
    "GenerationRecommendationResult",
    "GenerationResult",
    "GoalNotReached",
    "InferlabError",
    "Lab",
    "OptimizationResult",
    "Plan",
    "ProfileResult",
    "RecommendationResult",
    "__version__",
    "benchmark",
    "capacity",
    "compare",
    "compare_sweeps",
    "doctor",
    "export_to_onnx",
    "generate",
    "open_store",
    "optimize",
    "plot",
    "profile",
    "recommend",
]

_WHERE = {
    "BadInput": "inferlab.errors",
    "BenchmarkResult": "inferlab.results",
    "CapacityResult": "inferlab.results",
    "ComparisonResult": "inferlab.results",
    "ComparisonSweepResult": "inferlab.results",
    "DoctorResult": "inferlab.results",
    "GenerationCapacityResult": "inferlab.results",
    "GenerationComparisonResult": "inferlab.results",
    "GenerationRecommendationResult": "inferlab.results",
    "GenerationResult": "inferlab.results",
    "GoalNotReached": "inferlab.errors",
    "InferlabError": "inferlab.errors",
    "Lab": "inferlab.lab",
    "OptimizationResult": "inferlab.model_results",
    "Plan": "inferlab.records",
    "ProfileResult": "inferlab.model_results",
    "RecommendationResult": "inferlab.results",
    "benchmark": "inferlab.api",
    "capacity": "inferlab.api",
    "compare": "inferlab.api",
    "compare_sweeps": "inferlab.api",
    "doctor": "inferlab.api",
    "export_to_onnx": "inferlab.model.export",
    "generate": "inferlab.api",
    "open_store": "inferlab.store",
    "optimize": "inferlab.api",
    "plot": "inferlab.plotting",
    "profile": "inferlab.api",
    "recommend": "inferlab.api",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `import inferlab` stays quick."""
    if name not in _WHERE:
        raise AttributeError(f"module 'inferlab' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    """What there is, for those who complete names."""
    return __all__
