"""What was measured as a command line that a shell takes; what is as by default is left out."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferlab.errors import BadInput
from inferlab.measure.exploration import label
from inferlab.options import Option, of_command
from inferlab.options.optimization import profile_words
from inferlab.options.plan import COMPARISON, PLAN
from inferlab.records import Plan
from inferlab.records.recommendation import Candidate, Deployment

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
        per_arm = PLAN.get(option.keyword, option).per_arm
        words += _of_arms(option, getattr(a, option.field), getattr(b, option.field), per_arm)
    own = _given("compare", (ONLY_GENERATION["metric"], metric))
    return _line("compare", models, [*words, *own, *_of_comparison(time_s, margin, fresh)])


def generation_capacity(plan: GenerationPlan, attainment: float) -> str:
    """The command that searches the highest rate of requests."""
    from inferlab.options.generation import GENERATION

    words = _option_words(plan, _of_generation("time", "scenario", "rate"))
    own = _given("capacity", (GENERATION["time"], plan.time_s), (GENERATION["attainment"], attainment))
    return _line("capacity", [plan.model], [*words, *own])


def generation_recommendation(plan: GenerationPlan, time_s: float) -> str:
    """The command that searches the best configuration."""
    from inferlab.options.generation import GENERATION

    words = _option_words(plan, _of_generation("time", "scenario", "rate", "processes"))
    return _line("recommend", [plan.model], [*words, *_given("recommend", (GENERATION["time"], time_s))])


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
        else:
            words += _of_arms(option, ours, theirs, option.per_arm)
    return _line("compare", models, [*words, *_of_comparison(time_s, margin, fresh)])


def _of_arms(option: Option, ours: Any, theirs: Any, per_arm: bool) -> list[str]:
    """An option that both arms have alike, or each of its own."""
    if ours == theirs:
        return _words(option, ours)
    if not per_arm:
        raise _impossible(f"both arms have one {option.field}, but here are two")
    arms = (("--a", ours), ("--b", theirs))
    # Every second word is a value, behind its flag.
    texts = [(arm, text) for arm, value in arms for text in _words(option, value)[1::2]]
    return [word for arm, text in texts for word in (arm, f"{option.keyword}={text}")]


def _of_comparison(time_s: float, margin: float, fresh: bool) -> list[str]:
    words = _given("compare", (COMPARISON["time"], time_s), (COMPARISON["margin"], margin))
    return [*words, *(COMPARISON["fresh"].flags if fresh else ())]


def _given(command: str, *values: tuple[Option, Any]) -> list[str]:
    """Options whose value is not the command's default."""
    return [
        word
        for option, value in values
        if value != option.default_of(command)
        for word in (option.flags[0], option.written(value))
    ]


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


def estimated(plan: Plan, name: str, budget: float | None = None, data_file: str | None = None) -> str:
    """The command that makes what a profile estimates, which is saved under this name."""
    words = ["-o", "optimized.onnx", "--profile", name, "--as-estimated"]
    words += [] if budget is None else ["--budget", f"{budget:g}"]
    words += [] if data_file is None else ["--data", data_file]
    options = [option for option in of_command(PLAN, "optimize").values() if option.keyword != "time"]
    return _line("optimize", [plan.model], [*words, *_option_words(plan, options)])


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


_ONE = '''
def main():
    """One batch, to show that it runs."""
    infer = stream(load(CPUS))
    print([output.shape for output in infer(example())])
'''

_MANY = '''
def serve({what}, requests, replies):
    """One stream; None ends it."""
    infer = stream({model})
    for number, inputs in iter(requests.get, None):
        replies.put((number, infer(inputs)))


def main():
    """One batch for each stream, to show that it runs."""
{make}
    for one in streams:
        one.start()
    for number in range(len(streams)):
        requests.put((number, example()))
    for _ in streams:
        number, outputs = replies.get()
        print(number, [output.shape for output in outputs])
    for _ in streams:
        requests.put(None)
    for one in streams:
        one.join()
'''

_PROCESSES = """    context = multiprocessing.get_context("spawn")
    requests, replies = context.Queue(), context.Queue()
    streams = [context.Process(target=serve, args=(cpus, requests, replies)) for cpus in CPUS]"""
_THREADS = """    requests, replies = queue.Queue(), queue.Queue()
    streams = [threading.Thread(target=serve, args=(cpus, requests, replies)) for cpus in CPUS]"""
_NATIVE = """    requests, replies = queue.Queue(), queue.Queue()
    model = load(CPUS)
    streams = [threading.Thread(target=serve, args=(model, requests, replies)) for _ in range({count})]"""

#: The standard library's part beside the engine's own.
_IMPORTS = {
    "single": (),
    "processes": ("import multiprocessing",),
    "threads": ("import queue", "import threading"),
    "native": ("import queue", "import threading"),
}
_HOW = {
    "single": "one request at a time",
    "processes": "a process, a loaded model and CPUs of its own for each stream",
    "threads": "a thread, a loaded model and CPUs of its own for each stream",
    "native": "one loaded model that serves all streams",
}


def program(candidate: Candidate, deployment: Deployment) -> str:
    """Python that loads the model as it was measured and runs one batch on every stream."""
    if not deployment.engine_code:
        return _settings_only(candidate, deployment)
    imports, _, rest = deployment.engine_code.partition("\n\n")
    lines = sorted({*imports.splitlines(), *_IMPORTS[deployment.mode]})
    parts = [
        f'"""{label(candidate)}: {_HOW[deployment.mode]}."""\n\n' + "\n".join(lines) + "\n",
        rest.replace("\n\n\n", _constants(deployment), 1),
        _example(deployment),
        _ONE if deployment.mode == "single" else _streams(deployment),
        '\nif __name__ == "__main__":\n    main()\n',
    ]
    return "\n".join(parts)


def _constants(deployment: Deployment) -> str:
    fixed = deployment.fixed_batch
    note = (
        f"\n# The model fixes its batch size to {fixed}: this must be a copy for the batch size above."
        if fixed is not None
        else ""
    )
    return f"\n{note}\nMODEL = {deployment.model_path!r}\nCPUS = {_cpus(deployment)}\n\n\n"


def _cpus(deployment: Deployment) -> list[int] | list[list[int]]:
    """One list for the only loaded model, else one for each."""
    groups = [list(group) for child in deployment.children for group in child]
    return groups[0] if deployment.mode in ("single", "native") else groups


def _example(deployment: Deployment) -> str:
    lines = [
        f'        {name!r}: numpy.zeros({list(shape)}, "{dtype}"),' for name, dtype, shape in deployment.inputs
    ]
    return "\n".join(
        ["", "def example():", '    """A batch of zeros."""', "    return {", *lines, "    }", ""],
    )


def _streams(deployment: Deployment) -> str:
    count = sum(map(len, deployment.children))
    make = {"processes": _PROCESSES, "threads": _THREADS, "native": _NATIVE.format(count=count)}[deployment.mode]
    native = deployment.mode == "native"
    return _MANY.format(what="model" if native else "cpus", model="model" if native else "load(cpus)", make=make)


def _settings_only(candidate: Candidate, deployment: Deployment) -> str:
    """What is known of the settings where the engine does not say how it is set."""
    lines = [
        f"# {label(candidate)}: {_HOW[deployment.mode]}.",
        f"# Engine '{candidate.engine}' has no method deployment that writes the code, so set by hand:",
        f"MODEL = {deployment.model_path!r}",
        f"CPUS = {_cpus(deployment)}",
        f"THREADS = {max(1, candidate.num_cores // candidate.num_streams)}  # of one inference",
        f"STREAMS = {candidate.num_streams}",
        f"BATCH_SIZE = {candidate.batch_size}",
    ]
    return "\n".join(lines) + "\n"
