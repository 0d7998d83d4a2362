"""The options of a generation: those that it shares with a plan, and its own."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypedDict, cast, get_args

from inferlab.errors import BadInput
from inferlab.options import File, Kind, Option, Share, Whole, Word, declared, field_values, refusal
from inferlab.options.plan import (
    COMPARISON,
    PLAN,
    ComparisonKeywords,
    Count,
    PlanKeywords,
    Some,
    StrPath,
)
from inferlab.records.comparison import ComparedMetric
from inferlab.records.generation import GenerationPlan, GenerationScenario, TokenLimit, TokenMetric

_COMMAND = ("generate",)
# Those that measure models that generate.
_ALL = (*_COMMAND, "compare", "capacity", "recommend")
_LIMIT = re.compile(r"(?P<metric>ttft|tpot|e2e)(<=?|≤)(?P<number>\d+(\.\d+)?|\.\d+)(?P<unit>us|µs|μs|ms|s)")
_UNITS_S = {"us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0}
_EXAMPLE = "Write it as ttft<500ms,tpot<50ms (also e2e), with us, ms or s, and quote it: the shell reads a bare <."


class TokenLimits(Kind):
    """An objective of generation: limits of what each request may take."""

    name = "limits"
    metavar = '"ttft<500ms,tpot<50ms"'
    whole = True

    def read(self, part: str) -> Sequence[TokenLimit]:
        """One limit; spaces and capitals do not matter."""
        plain = "".join(part.split()).lower()
        match = _LIMIT.fullmatch(plain)
        if not match:
            raise ValueError(f"The objective '{part}' cannot be read. {_EXAMPLE}")
        limit_s = float(match["number"]) * _UNITS_S[match["unit"]]
        if not 0 < limit_s < math.inf:
            raise ValueError(f"The objective '{part}' has a limit of 0, which no request can meet. {_EXAMPLE}")
        return [TokenLimit(cast("TokenMetric", match["metric"]), limit_s, plain)]

    def collect(self, values: Sequence[Any]) -> tuple[TokenLimit, ...]:
        """One limit of each metric at most."""
        metrics = [value.metric for value in values]
        for metric in metrics:
            if metrics.count(metric) > 1:
                raise ValueError(f"The objective has two limits of {metric}. Give one.")
        return tuple(values)

    def check(self, name: str, value: Any) -> tuple[TokenLimit, ...]:
        """Text as the command line takes it, or none."""
        if value is None:
            return ()
        if isinstance(value, tuple) and all(isinstance(limit, TokenLimit) for limit in value):
            return self.collect(value)
        if not isinstance(value, str):
            raise refusal(name, "text such as 'ttft<500ms,tpot<50ms'", value)
        try:
            return parse_limits(value)
        except ValueError as error:
            raise BadInput(str(error)) from None

    def text(self, value: Any) -> str:
        """As it was written."""
        return str(value.text)


def parse_limits(text: str) -> tuple[TokenLimit, ...]:
    """An objective of generation; a ValueError says what is wrong with it."""
    kind = TokenLimits()
    return kind.collect([limit for part in text.split(",") for limit in kind.read(part)])


def names_tokens(slo: str) -> bool:
    """Whether an objective is one of generation: it speaks of tokens."""
    return any(metric in slo.lower() for metric in get_args(TokenMetric))


class TokenKeywords(TypedDict, total=False):
    """What a model that generates gets, in every command that measures one."""

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
    prompts: Annotated[
        StrPath | None,
        Option(
            ("--prompts",),
            File(),
            "Model and inputs",
            'Prompts of your own: one JSON object per line with "prompt", a text, or "token_ids".',
            field="prompts_file",
            unset="random token ids",
            metavar="FILE.jsonl",
            remote=False,
        ),
    ]
    audio: Annotated[
        StrPath | None,
        Option(
            ("--audio",),
            File(),
            "Model and inputs",
            "The sound that an encoder hears: a WAV file, 16-bit PCM.",
            metavar="FILE.wav",
            remote=False,
        ),
    ]


class AttainmentKeywords(TypedDict, total=False):
    """What a search for the highest rate of requests has."""

    attainment: Annotated[
        float,
        Option(
            ("--attainment",),
            Share(),
            "Measuring",
            "The share of the requests that must meet the objective, where the highest rate is searched.",
            commands=("generate", "capacity"),
            default=0.9,
        ),
    ]


class GenerationKeywords(TokenKeywords, AttainmentKeywords, total=False):
    """The keywords of a generation; those without a declaration are a plan's."""

    engine: Some[str]
    scenario: Annotated[
        str,
        Option(
            ("-s", "--scenario"),
            Word(*get_args(GenerationScenario)),
            "Where and how to run",
            "sync: one batch after the other; server: requests arrive at a rate, whether or not the last is done.",
        ),
    ]
    rate: Some[float | None]
    slo: Annotated[
        str | None,
        Option(
            ("--slo",),
            TokenLimits(),
            "Where and how to run",
            "What a request must meet to count as good; without --rate the highest rate is searched at which "
            "enough requests do.",
            label="objective",
            many="commas",
        ),
    ]
    batch_size: Some[int | None]
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
    "engine": "llamacpp, openvino-genai, onnxruntime-genai, torch, onnxruntime, openvino, the address of a server "
    "such as http://127.0.0.1:8000, or FILE.py:CLASS.",
    "batch_size": "Sequences that are generated together; with -s server at most so many.",
    "seed": "Seed of the token ids.",
    "verify": "Check the tokens against FP32 torch on the same weights.",
}
_UNSET = {
    "engine": "llamacpp for a GGUF file, torch for a folder, onnxruntime for ONNX, its own for a GenAI folder",
    "batch_size": "1; with -s server 8 where the engine batches",
}


def _shared(keyword: str) -> Option:
    option = PLAN[keyword]
    return replace(
        option,
        commands=_COMMAND,
        help=_HELP.get(keyword, option.help),
        unset=_UNSET.get(keyword, option.unset),
        default=getattr(GenerationPlan(""), option.field),
        # What a search leaves open, its plan leaves to the search.
        search="",
        metavar="1,4" if keyword == "batch_size" else option.metavar,
    )


_OF_TOKENS = declared(TokenKeywords, GenerationPlan(""), commands=_ALL)
_OWN = declared(GenerationKeywords, GenerationPlan(""), (PLAN.keys() - {"scenario"}) | _OF_TOKENS.keys(), _COMMAND)
_OWN = {**_OF_TOKENS, **_OWN}
#: By keyword; copied commands have them in this order.
GENERATION: dict[str, Option] = {
    keyword: _OWN.get(keyword) or _shared(keyword)
    for keyword in dict.fromkeys(("engine", *GenerationKeywords.__annotations__))
}


class MetricKeywords(TypedDict, total=False):
    """What only comparisons of generation have."""

    metric: Annotated[
        str,
        Option(
            ("--metric",),
            Word(*get_args(ComparedMetric)),
            "Measuring",
            "What is compared: the time to the first token, per output token, per prompt token, per decoded "
            "token, or per token of the whole.",
            default="tpot",
        ),
    ]


#: Those that commands for other models have for models that generate, by keyword.
ONLY_GENERATION: dict[str, Option] = {
    keyword: replace(option, group="Models that generate tokens")
    for keyword, option in {**_OWN, **declared(MetricKeywords, None, PLAN, ("compare",))}.items()
    if keyword not in ("scenario", "slo")
}
# What these commands have beside a plan; and of a generation's options, those that mean nothing there.
_BESIDE = {"compare": ("margin", "fresh")}
_WITHOUT = ("scenario", "rate")


class TokenComparisonKeywords(ComparisonKeywords, TokenKeywords, MetricKeywords, total=False):
    """The keywords of a comparison, of models of either kind."""


class TokenCapacityKeywords(PlanKeywords, TokenKeywords, AttainmentKeywords, total=False):
    """The keywords of a search for the highest rate, of models of either kind."""


class TokenSearchKeywords(PlanKeywords, TokenKeywords, total=False):
    """The keywords of a recommendation, of models of either kind."""


def generation_values(command: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """What a command for models of either kind takes for one that generates, by keyword, of what was given.

    Refuses options that only other models have.
    """
    options = {**GENERATION, **ONLY_GENERATION, **{name: COMPARISON[name] for name in _BESIDE.get(command, ())}}
    options = {name: option for name, option in options.items() if name not in _WITHOUT}
    for name in values:
        if name not in options:
            raise BadInput(
                f"The option {name} is not for models that generate tokens. Leave it out; what they have is "
                "listed by: inferlab generate --help"
            )
    return {name: values.get(name, option.default_of(command)) for name, option in options.items()}


def make_generation_plan(model: str, values: Mapping[str, Any]) -> GenerationPlan:
    """The plan with these values by keyword; what is no option of a plan is passed over."""
    return GenerationPlan(model, **field_values(GENERATION, GenerationPlan, values))
