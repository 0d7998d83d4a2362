"""The benchmarks: models × batch sizes × sequence lengths, measured, printed and returned."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from typing import Any, get_args

from inferlab.errors import BadInput, EngineFailed, InferlabError
from inferlab.records import Event, Listener, Model, Plan, ignore
from inferlab.transformers import models, report, results
from inferlab.transformers.arguments import (
    BenchmarkArguments,
    ExecutorBenchmarkArguments,
    PyTorchBenchmarkArguments,
)
from inferlab.transformers.models import Source
from inferlab.transformers.report import environment
from inferlab.transformers.results import (
    INTERRUPTED,
    MB,
    NOT_AVAILABLE,
    BenchmarkOutput,
    Cells,
    Measured,
    Stage,
    from_outcome,
    memory_of,
)
from inferlab.warm import kept_warm

# Of a cell's time; the rest is measured.
_WARMUP_SHARE = 0.25


def measure_inference(
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
    return _measure_plan(plan, args.batch_sizes, lengths, listener)


def _measure_plan(plan: Plan, sizes: Sequence[int], lengths: Sequence[int], listener: Listener) -> Cells:
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
            measured.update(_measure_plan(plan, (size,), (length,), listener))
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


_PATIENCE_S = 600.0
_KINDS = ("transformers", "torch-export")


def measure_training(args: BenchmarkArguments, source: Source, model: Model, listener: Listener) -> Cells:
    """Every cell of a model; what cannot be trained has its reason instead of a time."""
    cells = list(itertools.product(args.batch_sizes, args.sequence_lengths))
    refusal = _refusal(source, model)
    if refusal:
        return dict.fromkeys(cells, Measured(reason=refusal))
    measured: Cells = dict.fromkeys(cells, Measured(reason=INTERRUPTED))
    try:
        for size, length in cells:
            measured[size, length] = _measure_cell(args, source, size, length, listener)
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


def _measure_cell(
    args: BenchmarkArguments, source: Source, size: int, length: int, listener: Listener
) -> Measured:
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


class Benchmark(ABC):
    """What both benchmarks do."""

    #: The class of its arguments.
    _takes: type[BenchmarkArguments]

    def __init__(self, args: Any, configs: Sequence[Any] | None = None) -> None:
        if not isinstance(args, self._takes):
            raise BadInput(f"Give a {self._takes.__name__}, not a {type(args).__name__}.")
        if configs is not None and len(configs) != len(args.models):
            raise BadInput(f"configs must have one for each of the {len(args.models)} models, not {len(configs)}.")
        self.args = args
        self._configs = list(configs) if configs is not None else [None] * len(args.models)
        self._versions: dict[str, str] = {}
        self._listen: Listener = report.say if args.verbose else ignore

    def run(self) -> BenchmarkOutput:
        """Measure everything, print the tables, write the files that were asked for, and return the results."""
        args = self.args
        report.check_files(args)
        report.announce(args, self._engine)
        stages: list[Stage] = [stage for stage in get_args(Stage) if getattr(args, stage)]
        cells: dict[Stage, dict[str, Cells]] = {stage: {} for stage in stages}
        sizes: dict[str, float | str] = {}
        with kept_warm(self._kinds, copies=args.repeat), self._sources() as sources:
            interrupted = False
            for source, config in zip(sources, self._configs, strict=True):
                model, problem = (None, INTERRUPTED) if interrupted else self._read(source)
                sizes[source.name] = NOT_AVAILABLE if model is None else model.size_bytes / MB
                for stage in stages:
                    # After Ctrl-C what was measured is kept, and the rest is not begun.
                    if model is None or interrupted:
                        measured = self._not_measured(dict.fromkeys(args.sequence_lengths, problem or INTERRUPTED))
                    elif stage == "inference":
                        measured = self._measure_inference(source, config, model)
                    else:
                        measured = measure_training(args, source, model, self._listen)
                    cells[stage][source.name] = measured
                    interrupted |= any(cell.reason == INTERRUPTED for cell in measured.values())
        output = results.output(args, cells, sizes)
        report.show(args, output, self.environment_info)
        return output

    @property
    def environment_info(self) -> dict[str, str]:
        """Versions, CPU, threads and memory; the versions are those that measured, once something did."""
        return environment(self.args, self._engine, self._versions)

    @property
    @abstractmethod
    def _engine(self) -> str: ...

    @property
    def _kinds(self) -> list[str]:
        """What the engine imports before the first model is measured."""
        return []

    @abstractmethod
    def _sources(self) -> Any:
        """A context manager with a Source for every model."""

    def _options(self, source: Source) -> dict[str, str]:
        """The engine's options for a model."""
        return {name: str(value) for name, value in self.args.engine_options.items()}

    def _refusals(self, config: Any, model: Model) -> dict[int, str]:
        """Why sequence lengths are not measured at all."""
        return {}

    def _read(self, source: Source) -> tuple[Model | None, str]:
        """The model, or why there is none."""
        from inferlab.lab import read_model

        if source.problem:
            return None, source.problem
        try:
            return read_model(source.path, self._listen, (self._engine,)), ""
        except InferlabError as error:
            return None, str(error)

    def _measure_inference(self, source: Source, config: Any, model: Model) -> Cells:
        refused = self._refusals(config, model)
        lengths = [length for length in self.args.sequence_lengths if length not in refused]
        options = self._options(source)
        measured = measure_inference(self.args, source.path, self._engine, options, lengths, self._listen)
        for cell in measured.values():
            self._versions.update(cell.versions or {})
        return {**self._not_measured(refused), **measured}

    def _not_measured(self, reasons: dict[int, str]) -> Cells:
        """Cells that are not measured, by sequence length."""
        return {
            (size, length): Measured(reason=reason)
            for size in self.args.batch_sizes
            for length, reason in reasons.items()
        }


class PyTorchBenchmark(Benchmark):
    """Measures Hugging Face folders and ids, torch files and `nn.Module` objects on PyTorch.

    With `configs`, a model that is no folder here is made from its configuration, with random weights.
    """

    args: PyTorchBenchmarkArguments
    _takes = PyTorchBenchmarkArguments

    @property
    def _engine(self) -> str:
        return "torch"

    @property
    def _kinds(self) -> list[str]:
        kinds = {
            "transformers": any(isinstance(model, str) for model in self.args.models),
            "torch-export": any(not isinstance(model, str) for model in self.args.models),
            "training": self.args.training,
        }
        return [kind for kind, is_wanted in kinds.items() if is_wanted]

    def _sources(self) -> Any:
        args = self.args
        return models.opened(args.models, self._configs, args.only_pretrain_model, args.training, self._listen)

    def _options(self, source: Source) -> dict[str, str]:
        options = super()._options(source)
        if source.kind == "transformers":
            options.update({"mode": "script"} if self.args.torchscript else {})
            options.update({"head": "0"} if self.args.only_pretrain_model else {})
        return options


class ExecutorBenchmark(Benchmark):
    """Measures the inference of ONNX files on one of inferlab's engines.

    With `configs`, each model is checked against its configuration: its inputs, its vocabulary, its positions.
    """

    args: ExecutorBenchmarkArguments
    _takes = ExecutorBenchmarkArguments

    @property
    def _engine(self) -> str:
        return self.args.engine

    @contextmanager
    def _sources(self) -> Iterator[list[Source]]:
        yield [Source(name, name, "onnx") for name in self.args.models]

    def _refusals(self, config: Any, model: Model) -> dict[int, str]:
        unfit = unfit_for(config, model)
        if unfit:
            return dict.fromkeys(self.args.sequence_lengths, unfit)
        return too_long_for(config, self.args.sequence_lengths)
