"""Measure the training step of one model, in fresh processes that do nothing else."""

from __future__ import annotations

import itertools
from statistics import median
from typing import Any

from inferlab.errors import BadInput, EngineFailed
from inferlab.records import Event, Listener, Model
from inferlab.transformers.arguments import BenchmarkArguments
from inferlab.transformers.results import INTERRUPTED, Cells, Measured, memory_of
from inferlab.transformers.sources import Source

_WARMUP_SHARE = 0.25
_PATIENCE_S = 600.0
_KINDS = ("transformers", "torch-export")


def measure(args: BenchmarkArguments, source: Source, model: Model, listener: Listener) -> Cells:
    """Every cell of a model; what cannot be trained has its reason instead of a time."""
    cells = list(itertools.product(args.batch_sizes, args.sequence_lengths))
    refusal = _refusal(source, model)
    if refusal:
        return dict.fromkeys(cells, Measured(reason=refusal))
    measured: Cells = dict.fromkeys(cells, Measured(reason=INTERRUPTED))
    try:
        for size, length in cells:
            measured[size, length] = _measure(args, source, size, length, listener)
    except KeyboardInterrupt:
        return measured
    return measured


def _refusal(source: Source, model: Model) -> str:
    if model.precision == "INT8":
        return "Training on an INT8 model is refused: it is only for inference. Train the model it was made from."
    if source.kind not in _KINDS or not (source.kind == "transformers" or source.training_path):
        return (
            "Training needs a Hugging Face folder, an id or an nn.Module: a file that was saved for inference "
            "cannot be trained."
        )
    return ""


def _measure(args: BenchmarkArguments, source: Source, size: int, length: int, listener: Listener) -> Measured:
    from inferlab.measure.cell import measuring_alone

    try:
        with measuring_alone(f"training of {source.name}", listener):
            listener(Event("training", {"model": source.name, "batch_size": size, "sequence_length": length}))
            return _joined([_process(args, source, size, length) for _ in range(args.repeat)])
    except (BadInput, EngineFailed) as error:
        return Measured(reason=str(error))


def _process(args: BenchmarkArguments, source: Source, size: int, length: int) -> dict[str, Any]:
    """What one fresh process measured."""
    from inferlab import machine
    from inferlab.model.reading import need_torch
    from inferlab.worker import run_task

    cores = args.num_cores or machine.usable_cores()
    share_s = args.time_s / args.repeat
    arguments = {
        "source": source.training_path or source.path,
        "kind": source.kind,
        "head": not args.only_pretrain_model,
        "batch_size": size,
        "sequence_length": length,
        "threads": cores,
        "seconds": share_s * (1 - _WARMUP_SHARE),
        "warmup_s": share_s * _WARMUP_SHARE,
    }
    cpus = machine.choose_cpus(cores, "core")
    return run_task(need_torch(), "train", arguments, patience_s=_PATIENCE_S, cpus=cpus)


def _joined(processes: list[dict[str, Any]]) -> Measured:
    from inferlab.measure.intervals import student

    times_s = [median(process["durations_ns"]) / 1e9 for process in processes]
    time = student(times_s)
    return Measured(
        time_s=time.value,
        low_s=time.low,
        high_s=time.high,
        process_times_s=tuple(times_s),
        iterations=sum(len(process["durations_ns"]) for process in processes),
        memory=memory_of(
            [
                (process["baseline_memory_bytes"], process["peak_memory_bytes"], process["steady_memory_bytes"])
                for process in processes
            ]
        ),
        losses=(processes[0]["first_loss"], processes[0]["last_loss"]),
        settings={"loss": processes[0]["loss"]},
    )
