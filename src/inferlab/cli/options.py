"""The options that say what is measured, shared by all commands that measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from inferlab.cli.parameters import Listed, Numbers, Prices, Rates, Words
from inferlab.errors import BadInput
from inferlab.records import Plan

MODELS = """MODEL is a path to an ONNX file or to a folder with one, an OpenVINO IR (.xml), a torch.export program
(.pt2), a TorchScript file, an https:// URL, hf:ORG/NAME[/FILE], zoo:STUB, or a built-in demo:NAME (demo:resnet50,
demo:mobilenet_v2, demo:bert_3layer, …)."""

_SHAPES = 'By position "[1,2,3],[4,5,6]" or by name "input_ids=[1,384]".'
_SCENARIOS = (
    "sync: one request at a time; async: streams that divide the cores; elastic: streams that share them; "
    "server: requests arrive at a --rate; offline: a large batch."
)
_STREAM_MODES = (
    "Streams in threads or processes with a loaded model each, or on the engine's own streams; "
    "auto takes processes for calls below 2 ms."
)
_TIMEOUT = "Seconds without an answer after which an engine counts as hung; by default 300, more for long steps."
_POSITIVE = click.FloatRange(min=0, min_open=True)

#: Help of -x.
EXPORT = "Write the result to a file: .json, .csv, .md, or .html for a report that opens offline."


def _choice(*names: str, choices: str, help: str) -> Callable[[Any], Any]:
    """An option that is one of a few words, the first of them by default."""
    words = choices.split()
    return click.option(*names, type=click.Choice(words), default=words[0], show_default=True, help=help)


#: Those that take lists: a plan is the product of them all.
LISTS: dict[str, Listed] = {
    "batch_size": Numbers(),
    "sequence_length": Numbers(),
    "num_cores": Numbers(most=True),
    "scenario": Words("async", "sync", "elastic", "server", "offline"),
    "rate": Rates(),
    "num_streams": Numbers(most=True),
    "instances": Numbers(),
    "engine": Words(),
}


def _listed(name: str, *flags: str, metavar: str, help: str, default: str | None = None) -> Callable[[Any], Any]:
    """An option that takes a list."""
    return click.option(
        *flags,
        name,
        type=LISTS[name],
        metavar=metavar,
        help=help,
        default=default,
        show_default=default is not None,
    )


_OPTIONS: dict[str, Callable[[Any], Any]] = {
    "batch_size": _listed(
        *("batch_size", "-b", "--batch_size"),
        metavar="1,8,32",
        help="Items in a batch.  [default: 1, or what the model fixes]",
    ),
    "input_shapes": click.option("-i", "-shapes", "--input_shapes", metavar="SHAPES", help=_SHAPES),
    "sequence_length": _listed(
        *("sequence_length", "--sequence_length", "--sequence_lengths"),
        metavar="32,128",
        help="Length of sequences that the model leaves open.  [default: 128]",
    ),
    "input_file": click.option(
        "--input", "input_file", metavar="FILE.npz", help="Real inputs, by the names of the model's inputs."
    ),
    "num_cores": _listed(
        *("num_cores", "-ncores", "--num_cores"),
        metavar="1,2,max",
        help="Physical cores to run on.  [default: max, which is all]",
    ),
    "scenario": _listed(*("scenario", "-s", "--scenario"), metavar="NAMES", default="async", help=_SCENARIOS),
    "rate": _listed(
        *("rate", "--rate"), metavar="50,100", help="Requests a second that arrive in the scenario server."
    ),
    "num_streams": _listed(
        *("num_streams", "-nstreams", "--num_streams"),
        metavar="1,2",
        help="Streams, except in sync.  [default: one a core]",
    ),
    "instances": _listed(
        *("instances", "--instances"),
        metavar="1,2",
        default="1",
        help="Whole copies that divide the cores among them.",
    ),
    "thread_pinning": _choice(
        "-pin", "--thread_pinning", choices="core numa none", help="Bind threads to cores, to NUMA nodes, or not."
    ),
    "stream_mode": _choice("--stream-mode", choices="auto threads processes native", help=_STREAM_MODES),
    "engine": _listed(
        *("engine", "-e", "--engine"),
        metavar="NAMES",
        default="onnxruntime",
        help="See inferlab engines; or FILE.py:CLASS.",
    ),
    "engine_options": click.option(
        "--engine-option", "engine_options", multiple=True, metavar="KEY=VALUE", help="May be repeated."
    ),
    "seed": click.option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the generated inputs."
    ),
    "verify": click.option(
        "--no-verify", "verify", is_flag=True, flag_value=False, default=True, help="Do not check the outputs."
    ),
    "patience_s": click.option("--timeout", "patience_s", type=_POSITIVE, default=None, help=_TIMEOUT),
}

#: What stands for the value of each option where a command takes no list, and help that speaks of no list.
_SINGLE = {
    "batch_size": "N",
    "sequence_length": "N",
    "num_cores": "N|max",
    "scenario": "NAME",
    "num_streams": "N|max",
    "instances": "N",
    "engine": "NAME",
}
_SINGLE_HELP = {
    "scenario": "sync: one request at a time; async: streams that divide the cores; elastic: streams that share "
    "them; offline: a large batch."
}

#: The plan's field for each of the lists that is called otherwise there.
_FIELDS = {
    "batch_size": "batch_sizes",
    "sequence_length": "sequence_lengths",
    "scenario": "scenarios",
    "rate": "rates",
    "engine": "engines",
}


_CLUSTER = "Measure on the nodes of a Ray cluster: its address, auto for the one here, local to start one."
_ON = "Machine types, by Ray resources or labels.  [default: one node of each distinct CPU]"
_PRICE = "What an hour of each machine type costs; gives the cost per million inferences."
_WAIT = "Seconds to wait for nodes that an autoscaler starts."


def cluster_options(command: Any) -> Any:
    """Give a command the options that name a cluster and its machines."""
    options = (
        click.option("--cluster", metavar="ADDRESS", help=_CLUSTER),
        click.option("--on", type=Words(), default=(), metavar="c7i,c7g", help=_ON),
        click.option("--price", "prices", type=Prices(), default=(), metavar="c7i=0.0892,…", help=_PRICE),
        click.option("--wait", "wait_s", type=click.FloatRange(min=0), default=0.0, help=_WAIT),
    )
    for option in reversed(options):
        command = option(command)
    return command


def cell_options(without: tuple[str, ...] = (), single: bool = False) -> Callable[[Any], Any]:
    """Give a command the options that fix a cell, except those that it has in a way of its own.

    With `single` it measures one cell: no option is shown to take a list, and none to be the scenario server.
    """

    def add(command: Any) -> Any:
        for name in reversed([name for name in _OPTIONS if name not in without]):
            command = _OPTIONS[name](command)
            if single and name in _SINGLE:
                option = command.__click_params__[-1]
                option.metavar = _SINGLE[name]
                option.help = _SINGLE_HELP.get(name, option.help)
        return command

    return add


def plan(given: Mapping[str, Any]) -> Plan:
    """The plan that these options describe."""
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if name == "engine_options":
            fields[name] = engine_options(value)
        elif name in LISTS:
            fields[_FIELDS.get(name, name)] = (None,) if value is None else value
        else:
            fields[name] = value
    return Plan(**fields)


def engine_options(pairs: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """KEY=VALUE options, in an order that does not depend on how they were given."""
    given = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise BadInput(f"The engine option '{pair}' is not of the form KEY=VALUE.")
        given[key] = value
    return tuple(sorted(given.items()))
