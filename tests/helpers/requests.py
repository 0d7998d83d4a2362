"""What pages and the HTTP API ask for, written in a line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from inferlab.records import Plan
from inferlab.records.profile import LEVELS, ProfileOptions
from inferlab.workspace.requests import ONE_BY_ONE, BenchmarkRequest, ProfileRequest
from inferlab.workspace.versions import VersionRequest

_SWEPT = {
    "engine": "engines",
    "scenario": "scenarios",
    "num_streams": "num_streams",
    "rate": "rates",
    "batch_size": "batch_sizes",
    "sequence_length": "sequence_lengths",
}


def _plan(given: dict[str, Any]) -> Plan:
    """The plan of what is given; its options are taken out."""
    fields: dict[str, Any] = {}
    for name in [*given]:
        if name in _SWEPT:
            fields[_SWEPT[name]] = (given.pop(name),)
        elif name in Plan.__slots__ and name != "engines":
            value = given.pop(name)
            fields[name] = (value,) if name == "num_cores" and not isinstance(value, tuple) else value
    return replace(ONE_BY_ONE, **fields)


def asked_benchmark(**given: Any) -> BenchmarkRequest:
    """A benchmark of a project."""
    return BenchmarkRequest(_plan(given), **given)


def asked_profile(**given: Any) -> ProfileRequest:
    """Profiles of a project."""
    version = given.pop("version", None)
    time_s = given.get("time_s", 10.0)
    plan = _plan(given)
    given["levels"] = LEVELS if given.pop("levels", False) else None
    given["data_file"] = given.pop("data", None)
    return ProfileRequest(plan, ProfileOptions(**{"roofline": True, **given}, time_s=time_s), version)


def asked_version(name: str, **given: Any) -> VersionRequest:
    """A version of a project's model."""
    return VersionRequest(name, _plan(given), **given)
