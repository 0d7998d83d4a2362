"""The nouns of inferlab: frozen, plain, importing nothing of ours. Profiles and recipes lie in their modules."""

from inferlab.records.comparison import Comparison, Pair, Verdict
from inferlab.records.engine import EngineInfo
from inferlab.records.event import Event, Finding, Listener, ignore
from inferlab.records.model import Dim, Kind, Model, Shape, TensorSpec
from inferlab.records.plan import Cell, Pinning, Plan, Scenario, StreamMode
from inferlab.records.run import (
    Benchmark,
    Failure,
    Machine,
    Metric,
    Outcome,
    OutputCheck,
    Run,
    Samples,
    Status,
    Window,
)
from inferlab.records.summary import Estimate, Method, Summary

__all__ = [
    "Benchmark",
    "Cell",
    "Comparison",
    "Dim",
    "EngineInfo",
    "Estimate",
    "Event",
    "Failure",
    "Finding",
    "Kind",
    "Listener",
    "Machine",
    "Method",
    "Metric",
    "Model",
    "Outcome",
    "OutputCheck",
    "Pair",
    "Pinning",
    "Plan",
    "Run",
    "Samples",
    "Scenario",
    "Shape",
    "Status",
    "StreamMode",
    "Summary",
    "TensorSpec",
    "Verdict",
    "Window",
    "ignore",
]
