"""The options of a generation: those that it shares with a plan, and its own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypedDict

from inferlab.options.kinds import Whole
from inferlab.options.option import Option, declared
from inferlab.options.plan import PLAN, Count, Some
from inferlab.records.generation import GenerationPlan

_COMMAND = ("generate",)


class GenerationKeywords(TypedDict, total=False):
    """The keywords of a generation; those without a declaration are a plan's."""

    engine: Some[str]
    prompt: Annotated[
        Some[int],
        Option(
            ("--prompt",),
            Whole(1),
            "Model and inputs",
            "Tokens of the prompt; the ids are random, new for each repetition and the same for every engine.",
            field="prompt_tokens",
            label="prompt length",
            metavar="32,512",
            swept=True,
        ),
    ]
    new: Annotated[
        Some[int],
        Option(
            ("--new",),
            Whole(1),
            "Model and inputs",
            "Tokens to generate, greedily; the end-of-sequence token does not end it.",
            field="new_tokens",
            label="number of new tokens",
            metavar="32,128",
            swept=True,
        ),
    ]
    depth: Annotated[
        Some[int],
        Option(
            ("--depth",),
            Whole(0),
            "Model and inputs",
            "Tokens that the cache holds before the prompt.",
            field="depths",
            metavar="0,2048",
            swept=True,
        ),
    ]
    batch_size: Some[int]
    num_cores: Some[Count]
    thread_pinning: str
    cpu_list: Sequence[int]
    seed: int
    time: float
    processes: int | None
    timeout: float | None
    engine_option: Mapping[str, Any] | None
    verify: bool


# What is said of shared options here.
_HELP = {
    "engine": "llamacpp, torch (see inferlab engines), or FILE.py:CLASS.",
    "batch_size": "Sequences that are generated together.",
    "seed": "Seed of the token ids.",
    "verify": "Check the tokens against FP32 torch on the same weights.",
}
_UNSET = {"engine": "llamacpp for a GGUF file, torch for a folder", "batch_size": ""}


def _shared(keyword: str) -> Option:
    option = PLAN[keyword]
    return replace(
        option,
        commands=_COMMAND,
        help=_HELP.get(keyword, option.help),
        unset=_UNSET.get(keyword, option.unset),
        default=getattr(GenerationPlan(""), option.field),
        metavar="1,4" if keyword == "batch_size" else option.metavar,
    )


_OWN = declared(GenerationKeywords, GenerationPlan(""), PLAN, _COMMAND)
#: By keyword, in the order of the keywords.
GENERATION: dict[str, Option] = {
    keyword: _OWN.get(keyword) or _shared(keyword) for keyword in GenerationKeywords.__annotations__
}


def make_generation_plan(model: str, values: Mapping[str, Any]) -> GenerationPlan:
    """The plan with these values by keyword."""
    return GenerationPlan(model, **{GENERATION[name].field: value for name, value in values.items()})


def validate_generation_values(plan: GenerationPlan) -> None:
    """Refuse a plan with a value that is beyond the limits of its option."""
    for option in GENERATION.values():
        option.validate(getattr(plan, option.field))
