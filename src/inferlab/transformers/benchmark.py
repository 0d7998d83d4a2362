"""The benchmarks: models × batch sizes × sequence lengths, measured, printed and returned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from inferlab.errors import BadInput, InferlabError
from inferlab.records import Listener, Model, ignore
from inferlab.transformers import inference, results, show, sources, training
from inferlab.transformers.arguments import (
    BenchmarkArguments,
    ExecutorBenchmarkArguments,
    PyTorchBenchmarkArguments,
)
from inferlab.transformers.environment import environment
from inferlab.transformers.results import INTERRUPTED, MB, NOT_AVAILABLE, BenchmarkOutput, Cells, Measured
from inferlab.transformers.sources import Source
from inferlab.warm import kept_warm


@dataclass
class _Found:
    """What is known so far."""

    inference: dict[str, Cells] = field(default_factory=dict)
    training: dict[str, Cells] = field(default_factory=dict)
    sizes: dict[str, float | str] = field(default_factory=dict)


class Benchmark(ABC):
    """What both benchmarks do."""

    def __init__(self, args: BenchmarkArguments, configs: Sequence[Any] | None = None) -> None:
        if configs is not None and len(configs) != len(args.models):
            raise BadInput(f"configs must have one for each of the {len(args.models)} models, not {len(configs)}.")
        self.args = args
        self._configs = list(configs) if configs is not None else [None] * len(args.models)
        self._versions: dict[str, str] = {}
        self._listen: Listener = show.say if args.verbose else ignore

    def run(self) -> BenchmarkOutput:
        """Measure everything, print the tables, write the files that were asked for, and return the results."""
        show.check_files(self.args)
        show.announce(self.args, self._engine)
        measured = _Found()
        with kept_warm(self._kinds, copies=self.args.repeat), self._sources() as opened:
            for source, config in zip(opened, self._configs, strict=True):
                self._measure(source, config, measured)
                if self._interrupted(measured):
                    self._skip(opened, measured)
                    break
        output = self._output(measured)
        show.show(self.args, output, self.environment_info)
        return output

    @property
    def environment_info(self) -> dict[str, str]:
        """Versions, CPU, threads and memory; the versions are those that measured, once something did."""
        return environment(self.args, self._engine, self._versions)

    @property
    @abstractmethod
    def _engine(self) -> str: ...

    @property
    @abstractmethod
    def _kinds(self) -> list[str]:
        """What the engine imports before the first model is measured."""

    @abstractmethod
    def _sources(self) -> Any:
        """A context manager with a Source for every model."""

    @abstractmethod
    def _options(self, source: Source) -> dict[str, str]:
        """The engine's options for a model."""

    @abstractmethod
    def _refusals(self, config: Any, model: Model) -> dict[int, str]:
        """Why sequence lengths are not measured at all."""

    def _measure(self, source: Source, config: Any, stages: _Found) -> None:
        from inferlab.lab import read_model

        args = self.args
        problem, model = source.problem, None
        if not problem:
            try:
                model = read_model(source.path, self._listen, (self._engine,))
            except InferlabError as error:
                problem = str(error)
        stages.sizes[source.name] = NOT_AVAILABLE if model is None else model.size_bytes / MB
        if model is None:
            nothing = self._nothing(dict.fromkeys(args.sequence_lengths, problem))
            if args.inference:
                stages.inference[source.name] = nothing
            if args.training:
                stages.training[source.name] = nothing
            return
        if args.inference:
            refused = self._refusals(config, model)
            lengths = [
                sequence_length for sequence_length in args.sequence_lengths if sequence_length not in refused
            ]
            options = self._options(source)
            measured = inference.measure(args, source.path, self._engine, options, lengths, self._listen)
            stages.inference[source.name] = {**self._nothing(refused), **measured}
            self._remember_versions(measured)
        if args.training and not self._interrupted(stages):
            stages.training[source.name] = training.measure(args, source, model, self._listen)

    @staticmethod
    def _interrupted(stages: _Found) -> bool:
        cells_by_stage = (stages.inference, stages.training)
        return any(
            cell.reason == INTERRUPTED for stage in cells_by_stage for of in stage.values() for cell in of.values()
        )

    def _skip(self, opened: Sequence[Source], stages: _Found) -> None:
        """After Ctrl-C what was measured is kept, and the rest is not begun."""
        nothing = self._nothing(dict.fromkeys(self.args.sequence_lengths, INTERRUPTED))
        for source in opened:
            stages.sizes.setdefault(source.name, NOT_AVAILABLE)
            if self.args.inference:
                stages.inference.setdefault(source.name, nothing)
            if self.args.training:
                stages.training.setdefault(source.name, nothing)

    def _nothing(self, reasons: dict[int, str]) -> Cells:
        """Cells that are not measured, by sequence length."""
        return {
            (size, length): Measured(reason=reason)
            for size in self.args.batch_sizes
            for length, reason in reasons.items()
        }

    def _remember_versions(self, measured: Cells) -> None:
        for cell in measured.values():
            self._versions.update(cell.versions or {})

    def _output(self, stages: _Found) -> BenchmarkOutput:
        args = self.args

        def table(cells: dict[str, Cells], pick: Any, requested: bool = True) -> results.Table:
            return results.table(cells, args.batch_sizes, args.sequence_lengths, pick) if requested else {}

        return BenchmarkOutput(
            time_inference_result=table(stages.inference, results.time_or_not, args.speed),
            memory_inference_result=table(stages.inference, results.memory_or_not, args.memory),
            time_train_result=table(stages.training, results.time_or_not, args.speed),
            memory_train_result=table(stages.training, results.memory_or_not, args.memory),
            inference_summary=table(stages.inference, lambda cell: cell),
            train_summary=table(stages.training, lambda cell: cell),
            model_sizes=stages.sizes,
            missing=(
                *results.missing(stages.inference, "inference", args.memory),
                *results.missing(stages.training, "training", args.memory),
            ),
        )


class PyTorchBenchmark(Benchmark):
    """Measures Hugging Face folders and ids, torch files and `nn.Module` objects on PyTorch.

    With `configs`, a model that is no folder here is made from its configuration, with random weights.
    """

    args: PyTorchBenchmarkArguments

    def __init__(self, args: PyTorchBenchmarkArguments, configs: Sequence[Any] | None = None) -> None:
        super().__init__(_checked(args, PyTorchBenchmarkArguments), configs)

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
        return sources.opened(args.models, self._configs, args.only_pretrain_model, args.training, self._listen)

    def _options(self, source: Source) -> dict[str, str]:
        options = {name: str(value) for name, value in self.args.engine_options.items()}
        if source.kind == "transformers":
            options.update({"mode": "script"} if self.args.torchscript else {})
            options.update({"head": "0"} if self.args.only_pretrain_model else {})
        return options

    def _refusals(self, config: Any, model: Model) -> dict[int, str]:
        return {}


class ExecutorBenchmark(Benchmark):
    """Measures the inference of ONNX files on one of inferlab's engines.

    With `configs`, each model is checked against its configuration: its inputs, its vocabulary, its positions.
    """

    args: ExecutorBenchmarkArguments

    def __init__(self, args: ExecutorBenchmarkArguments, configs: Sequence[Any] | None = None) -> None:
        super().__init__(_checked(args, ExecutorBenchmarkArguments), configs)

    @property
    def _engine(self) -> str:
        return self.args.engine

    @property
    def _kinds(self) -> list[str]:
        return []

    @contextmanager
    def _sources(self) -> Iterator[list[Source]]:
        yield [Source(name, name, "onnx") for name in self.args.models]

    def _options(self, source: Source) -> dict[str, str]:
        return {name: str(value) for name, value in self.args.engine_options.items()}

    def _refusals(self, config: Any, model: Model) -> dict[int, str]:
        unfit = inference.unfit_for(config, model)
        if unfit:
            return dict.fromkeys(self.args.sequence_lengths, unfit)
        return inference.too_long_for(config, self.args.sequence_lengths)


def _checked(args: Any, kind: type) -> Any:
    if not isinstance(args, kind):
        raise BadInput(f"Give a {kind.__name__}, not a {type(args).__name__}.")
    return args
