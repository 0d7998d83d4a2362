"""What was measured as a command line that a shell takes; what is as by default is left out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.records import Plan

if TYPE_CHECKING:
    from inferlab.optimizing.asked import Asked
    from inferlab.profiling.asked import Wanted

_DEFAULT = Plan("")
#: The option for each field of a plan that fixes a cell, in the order in which they are written.
_CELL = {
    "scenarios": "-s",
    "num_cores": "-ncores",
    "num_streams": "-nstreams",
    "instances": "--instances",
    "batch_sizes": "-b",
    "sequence_lengths": "--sequence_length",
    "input_shapes": "-i",
    "thread_pinning": "-pin",
    "stream_mode": "--stream-mode",
}
#: Those of both arms of a comparison.
_SHARED = {"input_file": "--input", "seed": "--seed", "patience_s": "--timeout"}
_MEASURING = {"time_s": "-t", "warmup_s": "-w", "processes": "--processes"}
_CLUSTER = {"cluster": "--cluster", "on": "--on", "nodes": "--nodes", "wait_s": "--wait"}
#: What an arm of a comparison calls its own options.
_OWN = {
    **{field: field for field in _CELL},
    "scenarios": "scenario",
    "batch_sizes": "batch_size",
    "sequence_lengths": "sequence_length",
}
# A profile has a scenario of its own, and no streams.
_PROFILED = ("num_cores", "batch_sizes", "sequence_lengths", "input_shapes", "thread_pinning")
_NOT_PROFILED = ("instances", "stream_mode")
_SWITCHES = {
    "performance": "--no-performance",
    "loss": "--no-loss",
    "int8": "--int8",
    "roofline": "--roofline",
    "verify": "--verify-estimate",
}
_PROFILE_VALUES = {
    "performance_name": "--performance-name",
    "loss_name": "--loss-name",
    "data_file": "--data",
    "budget": "--budget",
    "time_s": "-t",
}
# What `inferlab compare` and `inferlab optimize` take where nobody says.
_COMPARISON_S = 60.0
_VERSION_S = 10.0
_MARGIN = 0.01


def benchmark(plan: Plan) -> str:
    """The command that measures this plan."""
    options = ["-e", _text("engines", plan.engines)] if plan.engines != _DEFAULT.engines else []
    options += _given(plan, {**_CELL, "rates": "--rate", **_SHARED, **_MEASURING})
    if plan.precision is not None:
        options += ["--precision", _share(plan.precision)]
    options += _given(plan, _CLUSTER)
    if plan.prices:
        options += ["--price", ",".join(f"{name}={_number(price)}" for name, price in plan.prices)]
    options += _engine_options(plan.engine_options)
    options += [] if plan.verify else ["--no-verify"]
    return _line("benchmark", [plan.model], options)


def comparison(a: Plan, b: Plan, time_s: float, margin: float) -> str:
    """The command that compares B with A, plans of one cell each."""
    _refuse_several(a)
    _refuse_several(b)
    models = [a.model] if a.model == b.model else [a.model, b.model]
    options = []
    if (a.engines, b.engines) != (_DEFAULT.engines,) * 2:
        options += ["-e", _text("engines", dict.fromkeys((*a.engines, *b.engines)))]
    for field, flag in _CELL.items():
        if getattr(a, field) == getattr(b, field):
            options += _given(a, {field: flag})
        else:
            options += [*_own("--a", a, field), *_own("--b", b, field)]
    common = [pair for pair in a.engine_options if pair in b.engine_options]
    options += _engine_options(common)
    for flag, plan in (("--a", a), ("--b", b)):
        for name, value in plan.engine_options:
            if (name, value) not in common:
                options += [flag, f"engine-option={name}={value}"]
    for field in (*_SHARED, "verify"):
        if getattr(a, field) != getattr(b, field):
            raise _impossible(f"both arms have one {field}, but here are two")
    options += _given(a, _SHARED)
    options += [] if a.verify else ["--no-verify"]
    options += [] if time_s == _COMPARISON_S else ["-t", _number(time_s)]
    options += [] if margin == _MARGIN else ["--margin", _share(margin)]
    return _line("compare", models, options)


def profile(plan: Plan, wanted: Wanted) -> str:
    """The command that makes this profile."""
    from inferlab.profiling.asked import Wanted

    for field in _NOT_PROFILED:
        if getattr(plan, field) != getattr(_DEFAULT, field):
            raise _impossible(f"a profile has no {field}")
    default = Wanted()
    options = [flag for name, flag in _SWITCHES.items() if getattr(wanted, name) != getattr(default, name)]
    options += ["-e", _text("engines", plan.engines)] if plan.engines != _DEFAULT.engines else []
    options += _given(plan, {field: _CELL[field] for field in _PROFILED} | _SHARED)
    options += [] if wanted.levels is None else ["--levels", _levels(wanted.levels)]
    for name, flag in _PROFILE_VALUES.items():
        if (value := getattr(wanted, name)) != getattr(default, name):
            options += [flag, _text(name, value)]
    options += _engine_options(plan.engine_options)
    options += [] if plan.verify else ["--no-verify"]
    return _line("profile", [plan.model], options)


def optimization(plan: Plan, asked: Asked) -> str:
    """The command that makes this version again, from the recipe that stands beside it."""
    out = Path(asked.out)
    options = ["-o", out.name, "--recipe", str(out.with_suffix(".recipe.yaml")), "--name", asked.name]
    options += [] if asked.data_file is None else ["--data", asked.data_file]
    options += ["--measure", ",".join(asked.engines) or "none"]
    options += _given(plan, {field: _CELL[field] for field in _PROFILED} | _SHARED)
    options += [] if asked.time_s == _VERSION_S else ["-t", _number(asked.time_s)]
    return _line("optimize", [plan.model], options)


def _line(name: str, models: Sequence[str], options: Sequence[str]) -> str:
    if any(model.startswith("-") for model in models):
        return shlex.join(["inferlab", name, *options, "--", *models])
    return shlex.join(["inferlab", name, *models, *options])


def _given(plan: Plan, flags: dict[str, str]) -> Iterator[str]:
    """Options with their values, where these are not the default."""
    for field, flag in flags.items():
        if (value := getattr(plan, field)) != getattr(_DEFAULT, field):
            yield from (flag, _text(field, value))


def _own(arm: str, plan: Plan, field: str) -> Iterator[str]:
    """An option of one arm alone."""
    for text in list(_given(plan, {field: _OWN[field]}))[1:]:
        yield from (arm, f"{_OWN[field]}={text}")


def _refuse_several(arm: Plan) -> None:
    for field in ("engines", *_CELL):
        value = getattr(arm, field)
        if isinstance(value, tuple) and len(value) != 1:
            raise _impossible(f"an arm of a comparison has one value of {field}, not {len(value)}")


def _text(field: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float | int):
        return _number(value)
    return ",".join(_part(field, one) for one in value)


def _part(field: str, value: Any) -> str:
    """One value of a list."""
    if value is None:
        if field in ("num_cores", "num_streams"):
            return "max"
        raise _impossible(f"{field} has both its default and values of its own")
    text = _text(field, value)
    if "," in text or text != text.strip():
        raise _impossible(f"'{text}' cannot stand in a list of {field}")
    return text


def _number(value: float) -> str:
    """All digits that tell it from others, and none more."""
    return repr(value).removesuffix(".0")


def _share(value: float) -> str:
    percent = f"{100 * value:.12g}"
    return f"{percent}%" if float(percent) / 100 == value else _number(value)


def _levels(levels: Sequence[float]) -> str:
    from inferlab.records.profile import LEVELS

    return "all" if tuple(levels) == LEVELS else ",".join(map(_number, levels)) or "none"


def _engine_options(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [word for name, value in pairs for word in ("--engine-option", f"{name}={value}")]


def _impossible(why: str) -> BadInput:
    return BadInput(f"This cannot be written as one command: {why}.")
