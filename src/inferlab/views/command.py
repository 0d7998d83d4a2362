"""What was measured as a command line that a shell takes; what is as by default is left out."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.kinds import NUMBER, Flag, Pairs, Share
from inferlab.options import KEYWORDS, PLAN, Option
from inferlab.records import Plan

if TYPE_CHECKING:
    from inferlab.optimizing.options import VersionOptions
    from inferlab.profiling.options import ProfileOptions

# A profile has a scenario of its own, and no streams.
_NOT_PROFILED = ("instances", "stream_mode")
_PROFILED = [
    option
    for option in PLAN
    if option.group in ("cell", "inputs") and option.keyword not in ("scenario", "num_streams", *_NOT_PROFILED)
]
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
    return _line("benchmark", [plan.model], _given(plan, PLAN))


def comparison(a: Plan, b: Plan, time_s: float, margin: float) -> str:
    """The command that compares B with A, plans of one cell each."""
    models = [a.model] if a.model == b.model else [a.model, b.model]
    shared, own = [], []
    for option in PLAN:
        if option.group == "cell":
            _refuse_several(option, a)
            _refuse_several(option, b)
        elif option.group == "inputs" and getattr(a, option.field) != getattr(b, option.field):
            raise _impossible(f"both arms have one {option.field}, but here are two")
        if option.group not in ("cell", "inputs"):
            continue
        if isinstance(option.kind, Pairs):
            common = tuple(pair for pair in a.engine_options if pair in b.engine_options)
            shared += _words(option, common)
            for flag, plan in (("--a", a), ("--b", b)):
                for name, value in plan.engine_options:
                    own += [] if (name, value) in common else [flag, f"engine-option={name}={value}"]
        elif option.keyword == "engine":
            engines = tuple(dict.fromkeys((*a.engines, *b.engines)))
            shared += [] if engines == option.default else _words(option, engines)
        elif getattr(a, option.field) == getattr(b, option.field):
            shared += _given(a, [option])
        else:
            shared += [*_own("--a", a, option), *_own("--b", b, option)]
    shared += own
    shared += [] if time_s == _COMPARISON_S else ["-t", NUMBER.text(time_s)]
    shared += [] if margin == _MARGIN else ["--margin", Share().text(margin)]
    return _line("compare", models, shared)


def profile(plan: Plan, wanted: ProfileOptions) -> str:
    """The command that makes this profile."""
    from inferlab.profiling.options import ProfileOptions

    for keyword in _NOT_PROFILED:
        if getattr(plan, KEYWORDS[keyword].field) != KEYWORDS[keyword].default:
            raise _impossible(f"a profile has no {keyword}")
    default = ProfileOptions()
    options = [flag for name, flag in _SWITCHES.items() if getattr(wanted, name) != getattr(default, name)]
    engine, *rest = _PROFILED
    last = [option for option in rest if isinstance(option.kind, Pairs | Flag)]
    options += _given(plan, [engine, *(option for option in rest if option not in last)])
    options += [] if wanted.levels is None else ["--levels", _levels(wanted.levels)]
    for name, flag in _PROFILE_VALUES.items():
        if (value := getattr(wanted, name)) != getattr(default, name):
            options += [flag, value if isinstance(value, str) else NUMBER.text(value)]
    options += _given(plan, last)
    return _line("profile", [plan.model], options)


def optimization(plan: Plan, asked: VersionOptions) -> str:
    """The command that makes this version again, from the recipe that stands beside it."""
    out = Path(asked.out)
    options = ["-o", out.name, "--recipe", str(out.with_suffix(".recipe.yaml")), "--name", asked.name]
    options += [] if asked.data_file is None else ["--data", asked.data_file]
    options += ["--measure", ",".join(asked.engines) or "none"]
    options += _given(
        plan, [option for option in _PROFILED if option.keyword not in ("engine", "engine_option", "verify")]
    )
    options += [] if asked.time_s == _VERSION_S else ["-t", NUMBER.text(asked.time_s)]
    return _line("optimize", [plan.model], options)


def _line(name: str, models: Sequence[str], options: Sequence[str]) -> str:
    if any(model.startswith("-") for model in models):
        return shlex.join(["inferlab", name, *options, "--", *models])
    return shlex.join(["inferlab", name, *models, *options])


def _given(plan: Plan, options: Iterable[Option]) -> list[str]:
    """Options with their values, where these are not the default."""
    values = [(option, getattr(plan, option.field)) for option in options]
    return [word for option, value in values if value != option.default for word in _words(option, value)]


def _words(option: Option, value: Any) -> list[str]:
    """An option as the words of a command line."""
    flag = option.flags[0]
    if isinstance(option.kind, Flag):
        return [flag]
    if isinstance(option.kind, Pairs):
        return [word for name, setting in value for word in (flag, f"{name}={setting}")]
    if option.is_list:
        return [flag, ",".join(_part(option, one) for one in value)]
    return [flag, option.kind.text(value)]


def _part(option: Option, value: Any) -> str:
    """One value of a list."""
    text = option.kind.text(value)
    if value is None and text != "max":
        raise _impossible(f"{option.field} has both its default and values of its own")
    if "," in text or text != text.strip():
        raise _impossible(f"'{text}' cannot stand in a list of {option.field}")
    return text


def _own(arm: str, plan: Plan, option: Option) -> list[str]:
    """An option of one arm alone."""
    return [word for text in _given(plan, [option])[1:] for word in (arm, f"{option.keyword}={text}")]


def _refuse_several(option: Option, arm: Plan) -> None:
    value = getattr(arm, option.field)
    if option.swept and len(value) != 1:
        raise _impossible(f"an arm of a comparison has one value of {option.field}, not {len(value)}")


def _levels(levels: Sequence[float]) -> str:
    from inferlab.records.profile import LEVELS

    return "all" if tuple(levels) == LEVELS else ",".join(map(NUMBER.text, levels)) or "none"


def _impossible(why: str) -> BadInput:
    return BadInput(f"This cannot be written as one command: {why}.")
