"""What was measured as a command line that a shell takes; what is as by default is left out."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.options.option import Option, of_command
from inferlab.options.plan import COMPARISON, PLAN
from inferlab.options.profile import profile_words
from inferlab.records import Plan

if TYPE_CHECKING:
    from inferlab.records.generation import GenerationPlan
    from inferlab.records.optimization import VersionOptions
    from inferlab.records.profile import ProfileOptions


def benchmark(plan: Plan) -> str:
    """The command that measures this plan."""
    return _line("benchmark", [plan.model], _option_words(plan, PLAN.values()))


def generation(plan: GenerationPlan) -> str:
    """The command that measures this generation."""
    from inferlab.options.generation import GENERATION

    # Some say what is done with the plan, which is not in it.
    options = [option for option in GENERATION.values() if hasattr(plan, option.field)]
    return _line("generate", [plan.model], _option_words(plan, options))


def generation_comparison(
    a: GenerationPlan, b: GenerationPlan, metric: str, time_s: float, margin: float, fresh: bool = False
) -> str:
    """The command that compares how fast B generates with how fast A does, plans of one cell each."""
    from inferlab.options.generation import ONLY_GENERATION

    models = list(dict.fromkeys((a.model, b.model)))
    words = _words(PLAN["engine"], tuple(dict.fromkeys((*a.engines, *b.engines))))
    for option in _of_generation("engine", "time", "scenario", "rate", "slo", "processes"):
        ours, theirs = getattr(a, option.field), getattr(b, option.field)
        if ours == theirs:
            words += _words(option, ours)
        elif PLAN.get(option.keyword, option).per_arm:
            for arm, values in (("--a", ours), ("--b", theirs)):
                texts = [text for text in _words(option, values) if not text.startswith("-")]
                words += [word for text in texts for word in (arm, f"{option.keyword}={text}")]
        else:
            raise _impossible(f"both arms have one {option.field}, but here are two")
    options = {**COMPARISON, **ONLY_GENERATION}
    for keyword, value in (("metric", metric), ("time", time_s), ("margin", margin)):
        option = options[keyword]
        words += [] if value == option.default_of("compare") else [option.flags[0], option.written(value)]
    words += list(COMPARISON["fresh"].flags) if fresh else []
    return _line("compare", models, words)


def generation_capacity(plan: GenerationPlan, attainment: float) -> str:
    """The command that searches the highest rate of requests."""
    from inferlab.options.generation import GENERATION

    words = _option_words(plan, _of_generation("time", "scenario", "rate"))
    for option, value in ((GENERATION["time"], plan.time_s), (GENERATION["attainment"], attainment)):
        words += [] if value == option.default_of("capacity") else [option.flags[0], option.written(value)]
    return _line("capacity", [plan.model], words)


def generation_recommendation(plan: GenerationPlan, time_s: float) -> str:
    """The command that searches the best configuration."""
    from inferlab.options.generation import GENERATION

    time = GENERATION["time"]
    words = _option_words(plan, _of_generation("time", "scenario", "rate", "processes"))
    words += [] if time_s == time.default_of("recommend") else [time.flags[0], time.written(time_s)]
    return _line("recommend", [plan.model], words)


def _of_generation(*without: str) -> list[Option]:
    """The options of a generation's plan but for these."""
    from inferlab.options.generation import GENERATION
    from inferlab.records.generation import GenerationPlan

    fields = GenerationPlan.__dataclass_fields__
    return [option for option in GENERATION.values() if option.keyword not in without and option.field in fields]


def comparison(a: Plan, b: Plan, time_s: float, margin: float, fresh: bool = False) -> str:
    """The command that compares B with A, plans of one cell each."""
    models = [a.model] if a.model == b.model else [a.model, b.model]
    words = []
    for option in of_command(PLAN, "compare").values():
        ours, theirs = getattr(a, option.field), getattr(b, option.field)
        if option.keyword == "time":
            continue
        if option.swept and {len(ours), len(theirs)} != {1}:
            raise _impossible(f"an arm of a comparison has one value of {option.field}, not {len(ours)}")
        if option.keyword == "engine":
            words += _words(option, tuple(dict.fromkeys((*ours, *theirs))))
        elif option.many == "repeated":
            common = tuple(value for value in ours if value in theirs)
            words += _words(option, common)
            for arm, values in (("--a", ours), ("--b", theirs)):
                own = [option.kind.text(value) for value in values if value not in common]
                words += [word for text in own for word in (arm, f"{option.flags[0].lstrip('-')}={text}")]
        elif ours == theirs:
            words += _words(option, ours)
        elif option.per_arm:
            for arm, value in (("--a", ours), ("--b", theirs)):
                words += [word for text in _words(option, value)[1:] for word in (arm, f"{option.keyword}={text}")]
        else:
            raise _impossible(f"both arms have one {option.field}, but here are two")
    for keyword, value in (("time", time_s), ("margin", margin)):
        option = COMPARISON[keyword]
        words += [] if value == option.default_of("compare") else [option.flags[0], option.written(value)]
    words += list(COMPARISON["fresh"].flags) if fresh else []
    return _line("compare", models, words)


def profile(plan: Plan, options_of_profile: ProfileOptions) -> str:
    """The command that makes this profile."""
    profiled = of_command(PLAN, "profile")
    for option in PLAN.values():
        # Its scenario is always sync, and its time that of the profile.
        unknown = option.per_arm and option.keyword not in (*profiled, "scenario", "num_streams")
        if unknown and getattr(plan, option.field) != option.default:
            raise _impossible(f"a profile has no {option.keyword}")
    options = [option for option in profiled.values() if option.keyword != "time"]
    return _line("profile", [plan.model], [*profile_words(options_of_profile), *_option_words(plan, options)])


def optimization(plan: Plan, options_of_version: VersionOptions) -> str:
    """The command that makes this version again, from the recipe that stands beside it."""
    out = Path(options_of_version.out)
    words = ["-o", out.name, "--recipe", str(out.with_suffix(".recipe.yaml")), "--name", options_of_version.name]
    words += [] if options_of_version.data_file is None else ["--data", options_of_version.data_file]
    words += ["--measure", ",".join(options_of_version.engines) or "none"]
    options = [
        option for option in of_command(PLAN, "optimize").values() if option.keyword not in ("engine", "time")
    ]
    words += [*_option_words(plan, options), *PLAN["time"].words(options_of_version.time_s)]
    return _line("optimize", [plan.model], words)


def _line(name: str, models: Sequence[str], options: Sequence[str]) -> str:
    if any(model.startswith("-") for model in models):
        return shlex.join(["inferlab", name, *options, "--", *models])
    return shlex.join(["inferlab", name, *models, *options])


def _option_words(plan: Plan | GenerationPlan, options: Iterable[Option]) -> list[str]:
    """Options with their values, where these are not the default."""
    return [word for option in options for word in _words(option, getattr(plan, option.field))]


def _words(option: Option, value: Any) -> list[str]:
    try:
        return option.words(value)
    except ValueError as error:
        raise _impossible(str(error)) from None


def _impossible(why: str) -> BadInput:
    return BadInput(f"This cannot be written as one command: {why}.")
