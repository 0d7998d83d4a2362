"""The options of a plan: what is measured, on what, how long, and where."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypedDict, TypeVar, get_args

from inferlab.errors import BadInput
from inferlab.options import File, Flag, Number, Option, Share, Whole, Word, declared, field_values, refusal
from inferlab.options.kinds import Pairs, Prices, Shapes
from inferlab.records import Cell, Pinning, Plan, Scenario, StreamMode

if TYPE_CHECKING:
    from inferlab.records.generation import GenerationCell

T = TypeVar("T")
StrPath: TypeAlias = str | os.PathLike[str]
#: One value, or a list whose values are all measured.
Some: TypeAlias = T | Sequence[T]
#: A number, or all that there are: None and "max" mean the same.
Count: TypeAlias = int | Literal["max"] | None
#: Text as on the command line, lists in the order of the inputs, or by their names.
ShapesLike: TypeAlias = str | Sequence[int] | Sequence[Sequence[int]] | Mapping[str, Sequence[int]]

_STREAMS = ("benchmark", "compare", "capacity")
_LABEL = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_LONGEST_LABEL = 200
_IN_ALL = "Total seconds, including loading."


class PlanKeywords(TypedDict, total=False):
    """The keywords, in the order in which copied commands have them."""

    engine: Annotated[
        Some[str],
        Option(
            ("-e", "--engine"),
            Word(),
            "Where and how to run",
            "onnxruntime, openvino, torch, mnn, deepsparse, … (see inferlab engines), a release such as "
            "onnxruntime==1.22.1, or FILE.py:CLASS.",
            field="engines",
            help_of={
                "compare": "One engine, or two separated by a comma: A's and B's.",
                "bisect": "The engine, without a version: onnxruntime, openvino, torch, mnn or a plug-in's.",
            },
            search="all that are ready and run the model",
            metavar="NAMES",
            swept=True,
            per_arm=True,
        ),
    ]
    scenario: Annotated[
        Some[str],
        Option(
            ("-s", "--scenario"),
            Word(*get_args(Scenario)),
            "Where and how to run",
            "sync: one request at a time; async: streams that divide the cores; elastic: streams that share "
            "them; server: requests arrive at a rate; offline: a large batch.",
            field="scenarios",
            metavar="NAMES",
            swept=True,
            commands=("benchmark", "compare", "bisect"),
            defaults={"bisect": ("sync",)},
            per_arm=True,
        ),
    ]
    num_cores: Annotated[
        Some[Count],
        Option(
            ("-ncores", "--num_cores"),
            Whole(1, most=True),
            "Where and how to run",
            "Physical cores to run on.",
            label="number of cores",
            unset="max, which is all",
            search="1, 2, 4, … and all",
            metavar="1,2,max",
            swept=True,
            per_arm=True,
        ),
    ]
    num_streams: Annotated[
        Some[Count],
        Option(
            ("-nstreams", "--num_streams"),
            Whole(1, most=True),
            "Where and how to run",
            "Number of streams; sync has one.",
            label="number of streams",
            unset="one per core",
            search="all that divide the cores",
            metavar="1,2",
            swept=True,
            commands=(*_STREAMS, "recommend"),
            per_arm=True,
        ),
    ]
    instances: Annotated[
        Some[int],
        Option(
            ("--instances",),
            Whole(1),
            "Where and how to run",
            "Whole copies that divide the cores among them.",
            label="number of instances",
            metavar="1,2",
            swept=True,
            commands=_STREAMS,
            per_arm=True,
        ),
    ]
    batch_size: Annotated[
        Some[int | None],
        Option(
            ("-b", "--batch_size"),
            Whole(1),
            "Model and inputs",
            "Items per batch.",
            field="batch_sizes",
            unset="1, or what the model fixes",
            search="1,2,4,8,16, or what the model fixes",
            metavar="1,8,32",
            swept=True,
            per_arm=True,
        ),
    ]
    sequence_length: Annotated[
        Some[int | None],
        Option(
            ("--sequence_length", "--sequence_lengths"),
            Whole(1),
            "Model and inputs",
            "Length of sequences that the model leaves open.",
            field="sequence_lengths",
            unset="128",
            metavar="32,128",
            swept=True,
            per_arm=True,
        ),
    ]
    input_shapes: Annotated[
        ShapesLike | None,
        Option(
            ("-i", "-shapes", "--input_shapes"),
            Shapes(),
            "Model and inputs",
            'Shapes of inputs, by position "[1,2,3],[4,5,6]" or by name "input_ids=[1,384]".',
            unset="those of the model, open sizes guessed",
            per_arm=True,
        ),
    ]
    thread_pinning: Annotated[
        str,
        Option(
            ("-pin", "--thread_pinning"),
            Word(*get_args(Pinning)),
            "Where and how to run",
            "Bind threads to cores, to NUMA nodes, or not.",
            per_arm=True,
        ),
    ]
    cpu_list: Annotated[
        Sequence[int],
        Option(
            ("--cpu-list",),
            Whole(),
            "Where and how to run",
            "The CPUs to run on, by number, in place of those that are chosen; streams divide them in this order.",
            label="CPU list",
            unset="the first CPU of each core",
            metavar="0,2-3",
            many="commas",
            per_arm=True,
            column="CPUs",
        ),
    ]
    stream_mode: Annotated[
        str,
        Option(
            ("--stream-mode",),
            Word(*get_args(StreamMode)),
            "Where and how to run",
            "Streams in threads or processes with a loaded model each, or on the engine's own streams; "
            "auto takes processes for calls below 2 ms.",
            commands=_STREAMS,
            per_arm=True,
        ),
    ]
    rate: Annotated[
        Some[float | None],
        Option(
            ("--rate",),
            Number(0, above=True, unit="requests per second"),
            "Where and how to run",
            "Requests per second that arrive in the scenario server.",
            field="rates",
            metavar="50,100",
            swept=True,
            commands=("benchmark", "compare"),
        ),
    ]
    input: Annotated[
        StrPath | Mapping[str, Any] | None,
        Option(
            ("--input",),
            File(),
            "Model and inputs",
            "Real inputs, by the names of the model's inputs.",
            field="input_file",
            unset="random ones",
            metavar="FILE.npz",
            remote=False,
        ),
    ]
    seed: Annotated[int, Option(("--seed",), Whole(0), "Model and inputs", "Seed of the generated inputs.")]
    time: Annotated[
        float,
        Option(
            ("-t", "--time"),
            Number(0, above=True, unit="seconds"),
            "Measuring",
            "Seconds to measure each cell.",
            field="time_s",
            label="measuring time",
            help_of={
                **dict.fromkeys(("compare", "capacity", "recommend"), _IN_ALL),
                "profile": "Seconds of measuring for each part, at most.",
                "bisect": "Seconds for each comparison, including loading.",
                "optimize": "Seconds of measuring for each comparison and each profile; with loading up to three "
                "times as long.",
            },
            defaults={"compare": 60.0, "capacity": 60.0, "recommend": 120.0, "bisect": 30.0},
        ),
    ]
    warmup_time: Annotated[
        float,
        Option(
            ("-w", "--warmup_time"),
            Number(0, unit="seconds"),
            "Measuring",
            "Longest warm-up of each process in seconds; 0 for none.",
            field="warmup_s",
            label="warm-up time",
            commands=("benchmark",),
        ),
    ]
    processes: Annotated[
        int | None,
        Option(
            ("--processes",),
            Whole(1),
            "Measuring",
            "Fresh processes that share the time; 1 gives no interval.",
            label="number of processes",
            unset="5, fewer where loading is long or time is short",
            commands=("benchmark", "capacity"),
        ),
    ]
    precision: Annotated[
        float | None,
        Option(
            ("--precision",),
            Share(),
            "Measuring",
            "Measure until the 95 % interval is this narrow, such as ±1%; the time is then an upper limit.",
            metavar="1%",
            commands=("benchmark",),
        ),
    ]
    timeout: Annotated[
        float | None,
        Option(
            ("--timeout",),
            Number(0, above=True),
            "Measuring",
            "Seconds without an answer after which an engine counts as hung.",
            field="patience_s",
            unset="300, more for long steps",
            remote=False,
        ),
    ]
    cluster: Annotated[
        str | None,
        Option(
            ("--cluster",),
            Word(),
            "Cluster",
            "Measure on the nodes of a Ray cluster: its address, auto for the one here, local to start one.",
            metavar="ADDRESS",
            commands=("benchmark", "recommend"),
            remote=False,
        ),
    ]
    on: Annotated[
        Some[str],
        Option(
            ("--on",),
            Word(),
            "Cluster",
            "Machine types, by Ray resources or labels.",
            unset="one node of each distinct CPU",
            metavar="c7i,c7g",
            many="commas",
            commands=("benchmark", "recommend"),
            remote=False,
        ),
    ]
    nodes: Annotated[
        int,
        Option(
            ("--nodes",),
            Whole(1),
            "Cluster",
            "Machines of each type that measure every cell, for an interval that holds for the type.",
            label="number of machines of each type",
            commands=("benchmark",),
            remote=False,
        ),
    ]
    wait: Annotated[
        float,
        Option(
            ("--wait",),
            Number(0, unit="seconds"),
            "Cluster",
            "Seconds to wait for nodes that an autoscaler starts.",
            field="wait_s",
            label="wait for machines",
            commands=("benchmark", "recommend"),
            remote=False,
        ),
    ]
    price: Annotated[
        Mapping[str, float] | None,
        Option(
            ("--price",),
            Prices(),
            "Cluster",
            "What an hour of each machine type costs; gives the cost per million inferences.",
            field="prices",
            metavar="c7i=0.0892,…",
            many="commas",
            commands=("benchmark", "recommend"),
            remote=False,
        ),
    ]
    engine_option: Annotated[
        Mapping[str, Any] | None,
        Option(
            ("--engine-option",),
            Pairs(),
            "Where and how to run",
            "An option of the engine, such as spinning=0. May be repeated.",
            field="engine_options",
            many="repeated",
            commands=("benchmark", "compare", "capacity", "profile", "optimize", "bisect"),
            per_arm=True,
            remote=False,
        ),
    ]
    verify: Annotated[
        bool,
        Option(
            ("--no-verify",),
            Flag(),
            "Measuring",
            "Check the outputs against a reference.",
            commands=("benchmark", "compare", "capacity", "recommend", "profile"),
        ),
    ]


class Labels(Pairs):
    """What an entry is marked with: NAME=VALUE, a dictionary in Python."""

    metavar = "NAME=VALUE"
    dictionary = "a dictionary of texts such as {'branch': 'main'}"

    def read(self, part: str) -> Sequence[tuple[str, str]]:
        """A name and its value."""
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"The label '{part}' is not of the form NAME=VALUE, such as branch=main.")
        try:
            return [self.limited("", (name.strip(), value.strip()))]
        except BadInput as error:
            raise ValueError(str(error)) from None

    def check_value(self, name: str, key: str, values: Mapping[str, Any]) -> str:
        """A short text."""
        if not isinstance(values[key], str):
            raise refusal(name, self.dictionary, values)
        return str(self.limited(name, (key, values[key]))[1])

    def limited(self, name: str, value: Any) -> Any:
        """A name of letters, digits and _ . -, with a text of one line that is not too long."""
        key, text = value
        if not _LABEL.fullmatch(key):
            raise BadInput(f"A label's name has up to 40 letters, digits and _ . -, unlike {key!r:.60}.")
        if not text or len(text) > _LONGEST_LABEL or not text.isprintable():
            raise BadInput(f"The label {key} is one line of 1 to {_LONGEST_LABEL} characters, not {text!r:.60}.")
        return value


class BenchmarkKeywords(PlanKeywords, total=False):
    """The keywords of a benchmark: those of its plan, and what its entry is marked with."""

    label: Annotated[
        Mapping[str, str] | None,
        Option(
            ("--label",),
            Labels(),
            "Output",
            "Mark the entry, as in branch=main: series and gates find it so. May be repeated.",
            help_of={"generate": "Mark the entry, as in branch=main: history finds it so. May be repeated."},
            field="labels",
            label="labels",
            unset="commit and branch, of git or the CI's variables",
            many="repeated",
            default=(),
        ),
    ]


class ComparisonKeywords(PlanKeywords, total=False):
    """The keywords of a comparison; those of its plans among them."""

    margin: Annotated[
        float,
        Option(
            ("--margin",),
            Share(),
            "Measuring",
            "Differences up to this share do not matter.",
            default=0.01,
        ),
    ]
    fresh: Annotated[
        bool,
        Option(
            ("--fresh",),
            Flag(),
            "Measuring",
            "Start every process from nothing, instead of forking it from one that has imported the engine.",
            default=False,
        ),
    ]


#: By keyword.
PLAN: dict[str, Option] = declared(PlanKeywords, Plan(""))
#: Of every command that measures: no part of what is measured.
LABELS: dict[str, Option] = declared(BenchmarkKeywords, None, PLAN, ("benchmark", "generate"))
#: Of every command that lists what was measured.
LABELLED: dict[str, Option] = {
    "label": replace(
        LABELS["label"],
        commands=("history", "trend"),
        help="Only what is marked so, as in branch=main. May be repeated.",
        unset="",
    )
}
BENCHMARK: dict[str, Option] = {**PLAN, **LABELS}
COMPARISON: dict[str, Option] = {**PLAN, **declared(ComparisonKeywords, None, PLAN, ("compare",))}
#: Those that fix a cell, which each arm of a comparison may have of its own.
PER_ARM: dict[str, Option] = {keyword: option for keyword, option in PLAN.items() if option.per_arm}


#: Those that views show as they are declared.
COLUMNS: dict[str, Option] = {keyword: option for keyword, option in PER_ARM.items() if option.column}


def cell_texts(cell: "Cell | GenerationCell") -> dict[str, str | None]:
    """The values of a cell that views show as they are declared, as the command line takes them."""
    values = {keyword: getattr(cell, keyword) for keyword in COLUMNS}
    return {
        keyword: None if value == COLUMNS[keyword].default else COLUMNS[keyword].written(value)
        for keyword, value in values.items()
    }


def make_plan(model: str, values: Mapping[str, Any], timed: bool = True) -> Plan:
    """The plan with these values by keyword; what is no option of a plan is passed over.

    Where the time is that of the whole (not `timed`), the plan has none of its own.
    """
    return Plan(
        model, **field_values({name: PLAN[name] for name in PLAN if timed or name != "time"}, Plan, values)
    )
