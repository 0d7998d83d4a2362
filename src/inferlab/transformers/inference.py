"""Measure the inference of one model: one plan of the lab for all its batch sizes and sequence lengths."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from inferlab.errors import BadInput, InferlabError
from inferlab.records import Listener, Model, Plan
from inferlab.transformers.arguments import BenchmarkArguments
from inferlab.transformers.results import Cells, Measured, from_outcome

# Of a cell's time; the rest is measured.
_WARMUP_SHARE = 0.25


def measure(
    args: BenchmarkArguments,
    path: str,
    engine: str,
    options: dict[str, str],
    lengths: Sequence[int],
    listener: Listener,
) -> Cells:
    """Every cell of a model; what cannot be measured has its reason instead of a time."""
    if not lengths:
        return {}
    plan = Plan(
        model=path,
        engines=(engine,),
        scenarios=("sync",),
        num_cores=(args.num_cores,),
        engine_options=tuple(sorted(options.items())),
        time_s=args.time_s * (1 - _WARMUP_SHARE),
        warmup_s=args.time_s * _WARMUP_SHARE / args.repeat,
        processes=args.repeat,
        verify=args.verify,
    )
    return _measure(plan, args.batch_sizes, lengths, listener)


def _measure(plan: Plan, sizes: Sequence[int], lengths: Sequence[int], listener: Listener) -> Cells:
    from inferlab.lab import Lab

    plan = replace(plan, batch_sizes=tuple(sizes), sequence_lengths=tuple(lengths))
    cells = list(itertools.product(sizes, lengths))
    measured: Cells = {}
    try:
        for outcome in Lab().benchmark(plan, listener).outcomes:
            measured[outcome.cell.batch_size, outcome.cell.sequence_length or 0] = from_outcome(outcome)
    except BadInput as error:
        if len(cells) == 1:
            return {cells[0]: Measured(reason=str(error))}
        # Sizes that the model does not take end the whole plan, so each cell gets a plan of its own.
        for size, length in cells:
            measured.update(_measure(plan, (size,), (length,), listener))
    except InferlabError as error:
        return dict.fromkeys(cells, Measured(reason=str(error)))
    return measured


def unfit_for(config: Any, model: Model) -> str:
    """Why a configuration is not that of an ONNX model; empty where nothing speaks against it."""
    vocabulary = getattr(config, "vocab_size", None)
    if vocabulary is None:
        return ""
    ids = next((spec for spec in model.inputs if spec.name == "input_ids"), None)
    kind = type(config).__name__
    if ids is None:
        names = ", ".join(spec.name for spec in model.inputs)
        return f"Its {kind} is that of a text model, but the model has no input 'input_ids', only {names}."
    if ids.below is not None and ids.below != vocabulary:
        rows = f"but the model's table has {ids.below} rows"
        return f"Its {kind} is another model's: vocab_size is {vocabulary}, {rows}."
    return ""


def too_long_for(config: Any, lengths: Sequence[int]) -> dict[int, str]:
    """The sequence lengths that do not fit into a model's table of positions, each with a sentence."""
    most = getattr(config, "max_position_embeddings", None)
    if not isinstance(most, int):
        return {}
    return {
        length: f"A sequence of {length} does not fit: max_position_embeddings of the configuration is {most}."
        for length in lengths
        if length > most > 0
    }
