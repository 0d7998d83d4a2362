"""Results in files that `-x` wrote, read back to be compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inferlab.errors import BadInput
from inferlab.lab.lookup import choose_result
from inferlab.measure.unpaired import CONDITIONS, SavedResult
from inferlab.views import flat
from inferlab.views.text import SCENARIO_NAMES

_ENDINGS = (".json", ".csv", ".md")


def is_file(name: str) -> bool:
    """Whether a name on the command line means a saved result rather than a model."""
    return name.partition("#")[0].lower().endswith(_ENDINGS)


def load(name: str) -> SavedResult:
    """A result of a file; of several, the one whose number follows a #."""
    path, _, _ = name.partition("#")
    content = choose_result(name, flat.results(Path(path)))
    if not content.get("benchmark_result"):
        raise BadInput(f"{name} has no measurement: its status is {content.get('status', 'unknown')}.")
    try:
        result = _result(name, content)
        times = [*result.medians_ms, *result.throughput_ms, result.seconds]
        if not all(0 < time < math.inf for time in times):
            raise ValueError("a time is not positive")
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise BadInput(f"{name} is damaged: its measurements cannot be read.") from None
    return result


def _result(name: str, content: Mapping[str, Any]) -> SavedResult:
    batch = content["batch_size"]
    # Version 1 had one process, whose numbers are the result's.
    processes = content.get("processes") or [content["benchmark_result"]]
    scenarios = {shown: scenario for scenario, shown in SCENARIO_NAMES.items()}
    scenario = scenarios.get(content["scenario"], content["scenario"])
    check = content.get("output_check") or {}
    return SavedResult(
        label=name,
        is_sync=scenario == "sync",
        medians_ms=tuple(float(process["median"] / batch) for process in processes),
        throughput_ms=tuple(float(1e3 / process["items_per_sec"]) for process in processes),
        seconds=float(content["benchmark_result"]["seconds_ran"]),
        model_digest=content["model"]["digest"],
        model_source=content["orig_model_path"],
        conditions={**{key: content.get(key) for key in CONDITIONS}, "scenario": scenario},
        machine=content.get("machine") or {},
        check_status=str(check.get("status") or ""),
        check_detail=str(check.get("detail") or ""),
    )
