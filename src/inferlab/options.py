"""The options of a plan, each declared once: the command line, keyword arguments and copied commands read this."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from inferlab.errors import BadInput
from inferlab.kinds import (
    FILE,
    FLAG,
    NUMBER,
    WHOLE,
    WORD,
    File,
    Flag,
    Kind,
    LevelsByName,
    Number,
    Pairs,
    Prices,
    Shapes,
    Share,
    Whole,
    Word,
    check_each,
)
from inferlab.records import Pinning, Plan, Scenario, StreamMode

#: cell: what fixes a cell, which each arm of a comparison may have of its own; server: its rate of requests;
#: inputs: what the cells of a comparison share; measuring: how long and how often; cluster: on which machines.
Group = Literal["cell", "server", "inputs", "measuring", "cluster"]
_DEFAULT = Plan("")


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a plan; its default is the plan's own."""

    #: In Python and in plan files.
    keyword: str
    #: Of the plan.
    field: str
    #: As the command line has them; the first is written where a command is copied.
    flags: tuple[str, ...]
    kind: Kind
    group: Group
    #: For the command line.
    help: str
    #: For Python.
    meaning: str
    #: What stands for its value in the help; and where only one value is taken.
    metavar: str | None = None
    single_metavar: str | None = None
    single_help: str = ""
    #: A plan has several values of it and is the product of them all.
    swept: bool = False

    @property
    def default(self) -> Any:
        """What a plan has where nobody says."""
        return getattr(_DEFAULT, self.field)

    @property
    def parameter(self) -> str:
        """Its name among the parameters of a command."""
        return self.keyword if self.swept else self.field

    @property
    def is_list(self) -> bool:
        """Whether the command line takes several values with commas."""
        return isinstance(self.default, tuple) and not isinstance(self.kind, Pairs)

    def check(self, value: Any) -> Any:
        """What a Python program gave, as the plan has it."""
        if self.swept:
            return check_each(self.kind, self.keyword, value, optional=self.default == (None,))
        if isinstance(self.kind, Pairs | Prices):
            return self.kind.check(self.keyword, value)
        if self.is_list:
            return () if value is None or value == () else check_each(self.kind, self.keyword, value)
        return None if value is None and self.default is None else self.kind.check(self.keyword, value)


#: In the order in which copied commands have them.
PLAN: tuple[Option, ...] = (
    Option(
        *("engine", "engines", ("-e", "--engine"), Word(), "cell"),
        help="See inferlab engines; or FILE.py:CLASS.",
        meaning="An engine: onnxruntime, openvino, torch, deepsparse, … (see `inferlab engines`), or "
        "FILE.py:CLASS.",
        metavar="NAMES",
        single_metavar="NAME",
        swept=True,
    ),
    Option(
        *("scenario", "scenarios", ("-s", "--scenario"), Word(*get_args(Scenario)), "cell"),
        help="sync: one request at a time; async: streams that divide the cores; elastic: streams that share "
        "them; server: requests arrive at a --rate; offline: a large batch.",
        meaning="How requests are issued: sync, async, elastic, server or offline.",
        metavar="NAMES",
        single_metavar="NAME",
        single_help="sync: one request at a time; async: streams that divide the cores; elastic: streams that "
        "share them; offline: a large batch.",
        swept=True,
    ),
    Option(
        *("num_cores", "num_cores", ("-ncores", "--num_cores"), Whole(most=True), "cell"),
        help="Physical cores to run on.  [default: max, which is all]",
        meaning='Physical cores to run on; None and "max" are all.',
        metavar="1,2,max",
        single_metavar="N|max",
        swept=True,
    ),
    Option(
        *("num_streams", "num_streams", ("-nstreams", "--num_streams"), Whole(most=True), "cell"),
        help="Streams, except in sync.  [default: one a core]",
        meaning='Streams, except in sync; None and "max" are one a core.',
        metavar="1,2",
        single_metavar="N|max",
        swept=True,
    ),
    Option(
        *("instances", "instances", ("--instances",), Whole(), "cell"),
        help="Whole copies that divide the cores among them.",
        meaning="Whole copies of the model that divide the cores among them.",
        metavar="1,2",
        single_metavar="N",
        swept=True,
    ),
    Option(
        *("batch_size", "batch_sizes", ("-b", "--batch_size"), Whole(), "cell"),
        help="Items in a batch.  [default: 1, or what the model fixes]",
        meaning="Items in a batch; None is 1, or what the model fixes.",
        metavar="1,8,32",
        single_metavar="N",
        swept=True,
    ),
    Option(
        "sequence_length",
        "sequence_lengths",
        ("--sequence_length", "--sequence_lengths"),
        Whole(1),
        "cell",
        help="Length of sequences that the model leaves open.  [default: 128]",
        meaning="Length of sequences that the model leaves open; None is 128.",
        metavar="32,128",
        single_metavar="N",
        swept=True,
    ),
    Option(
        *("input_shapes", "input_shapes", ("-i", "-shapes", "--input_shapes"), Shapes(), "cell"),
        help='By position "[1,2,3],[4,5,6]" or by name "input_ids=[1,384]".',
        meaning="Shapes of inputs: [[1, 3, 224, 224]] in their order, {'x': [1, 3, 224, 224]}, or text.",
        metavar="SHAPES",
    ),
    Option(
        *("thread_pinning", "thread_pinning", ("-pin", "--thread_pinning"), Word(*get_args(Pinning)), "cell"),
        help="Bind threads to cores, to NUMA nodes, or not.",
        meaning='Bind threads to cores ("core"), to NUMA nodes ("numa"), or not ("none").',
    ),
    Option(
        *("stream_mode", "stream_mode", ("--stream-mode",), Word(*get_args(StreamMode)), "cell"),
        help="Streams in threads or processes with a loaded model each, or on the engine's own streams; "
        "auto takes processes for calls below 2 ms.",
        meaning='Streams in "threads", "processes" or on the engine\'s own ("native"); "auto" chooses.',
    ),
    Option(
        *("rate", "rates", ("--rate",), Number(), "server"),
        help="Requests a second that arrive in the scenario server.",
        meaning="Requests a second that arrive in the scenario server.",
        metavar="50,100",
        swept=True,
    ),
    Option(
        *("input", "input_file", ("--input",), File(), "inputs"),
        help="Real inputs, by the names of the model's inputs.",
        meaning="Real inputs: an .npz file, or a dictionary of arrays by the names of the model's inputs.",
        metavar="FILE.npz",
    ),
    Option(
        *("seed", "seed", ("--seed",), Whole(0), "inputs"),
        help="Of the generated inputs.",
        meaning="Of the generated inputs.",
    ),
    Option(
        *("timeout", "patience_s", ("--timeout",), Number(0, above=True), "inputs"),
        help="Seconds without an answer after which an engine counts as hung; by default 300, more for "
        "long steps.",
        meaning="Seconds without an answer after which an engine counts as hung; None is 300, more for "
        "long steps.",
    ),
    Option(
        *("time", "time_s", ("-t", "--time"), Number(), "measuring"),
        help="Seconds to measure each cell.",
        meaning="Seconds of measuring: of each cell of a benchmark, of each part of a profile, else in all.",
    ),
    Option(
        *("warmup_time", "warmup_s", ("-w", "--warmup_time"), Number(), "measuring"),
        help="Most seconds to warm up each process, or 0.",
        meaning="Seconds of warming up before each process is measured.",
    ),
    Option(
        *("processes", "processes", ("--processes",), Whole(), "measuring"),
        help="Fresh processes that share the time; 1 gives no interval.  "
        "[default: 5, fewer where loading is long]",
        meaning="Fresh processes that share the time; 1 gives no interval; None is 5, fewer where time is short.",
    ),
    Option(
        *("precision", "precision", ("--precision",), Share(), "measuring"),
        help="Go on until the 95 % interval is ±1% (or so) narrow; --time is then the most.",
        meaning="Measure until the half-width of the interval is this share, such as 0.01, or the time is over.",
        metavar="1%",
    ),
    Option(
        *("cluster", "cluster", ("--cluster",), Word(), "cluster"),
        help="Measure on the nodes of a Ray cluster: its address, auto for the one here, local to start one.",
        meaning="The address of a Ray cluster whose nodes measure; auto, or local to start one.",
        metavar="ADDRESS",
    ),
    Option(
        *("on", "on", ("--on",), Word(), "cluster"),
        help="Machine types, by Ray resources or labels.  [default: one node of each distinct CPU]",
        meaning="Machine types of the cluster; by default one node of each distinct CPU.",
        metavar="c7i,c7g",
    ),
    Option(
        *("nodes", "nodes", ("--nodes",), Whole(1), "cluster"),
        help="Machines of each type that measure every cell, for an interval that holds for the type.",
        meaning="Machines of each type.",
    ),
    Option(
        *("wait", "wait_s", ("--wait",), Number(0), "cluster"),
        help="Seconds to wait for nodes that an autoscaler starts.",
        meaning="Seconds to wait for nodes that an autoscaler starts.",
    ),
    Option(
        *("price", "prices", ("--price",), Prices(), "cluster"),
        help="What an hour of each machine type costs; gives the cost per million inferences.",
        meaning="What an hour of each machine type costs, such as {'c7i': 0.0892}.",
        metavar="c7i=0.0892,…",
    ),
    Option(
        *("engine_option", "engine_options", ("--engine-option",), Pairs(), "cell"),
        help="May be repeated.",
        meaning="Options of the engine, such as {'spinning': 0}.",
        metavar="KEY=VALUE",
    ),
    Option(
        *("verify", "verify", ("--no-verify",), Flag(), "inputs"),
        help="Do not check the outputs.",
        meaning="Check the outputs against a reference.",
    ),
)
#: By the keywords of Python and plan files.
KEYWORDS: dict[str, Option] = {option.keyword: option for option in PLAN}
#: By the names of parameters of commands.
PARAMETERS: dict[str, Option] = {option.parameter: option for option in PLAN}


def keywords(*groups: Group) -> list[str]:
    """The keywords of these groups."""
    return [option.keyword for option in PLAN if option.group in groups]


def plan(model: str, given: Mapping[str, Any]) -> Plan:
    """The plan that these keywords describe; what is no keyword of a plan is passed over."""
    fields = {option.field: option.check(given[option.keyword]) for option in PLAN if option.keyword in given}
    return Plan(model, **fields)


#: How a version is made, beside a plan's options; which may be None.
_VERSION: dict[str, Kind] = {
    **dict.fromkeys(("scope", "pattern"), WORD),
    **dict.fromkeys(("minimum", "maximum"), NUMBER),
    **dict.fromkeys(("ends", "per_tensor", "cleanup"), FLAG),
    "keep_sensitive": WHOLE,
    "layers": LevelsByName(),
}
_VERSION_MAYBE: dict[str, Kind] = {
    **dict.fromkeys(("sparsity", "budget"), NUMBER),
    **dict.fromkeys(("int8", "float"), WORD),
    "weights_only": WHOLE,
    "recipe": FILE,
}


def version_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """How a version is to be made by these keywords."""
    return {
        **{name: kind.check(name, given[name]) for name, kind in _VERSION.items()},
        **{name: kind.maybe(name, given[name]) for name, kind in _VERSION_MAYBE.items()},
        **{name: check_each(WORD, name, given[name]) if given[name] != () else ()
           for name in ("include", "exclude")},
    }  # fmt: skip


def model_name(value: Any) -> str:
    """The name of a model, as a user of Python gives it."""
    if isinstance(value, str | os.PathLike) and (name := os.fspath(value)) and isinstance(name, str):
        return name
    raise BadInput(f"A model is a path, a URL or a name such as demo:resnet50, not a {type(value).__name__}.")


def refuse_unknown(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse keywords that a function does not have; the sentence names the nearest."""
    there = list(known)
    for name in given:
        if name in there:
            continue
        near = difflib.get_close_matches(name, there, n=1)
        hint = f"Did you mean '{near[0]}'?" if near else f"It takes {', '.join(there)}."
        raise BadInput(f"{function} has no argument '{name}'. {hint}")
