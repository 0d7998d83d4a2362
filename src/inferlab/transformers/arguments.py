"""What the Benchmark classes take: arguments that Hugging Face users know, checked before anything is loaded."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from inferlab.errors import BadInput

# Hugging Face's words for what is always so here; True asks for something else and is refused.
_NEVER = {
    "cuda": "inferlab measures on the CPU",
    "tpu": "inferlab measures on the CPU",
    "fp16": "a model is measured in the precision that it is saved in",
    "torch_xla_tpu_print_metrics": "inferlab measures on the CPU",
    "trace_memory_line_by_line": "memory is that of the whole process over itself without the model",
}
_FILES = (
    "inference_time_csv_file",
    "inference_memory_csv_file",
    "train_time_csv_file",
    "train_memory_csv_file",
    "env_info_csv_file",
)


def _stamped(name: str) -> Any:
    return field(default_factory=lambda: f"{name}_{round(time.time())}.csv")


@dataclass(frozen=True)
class BenchmarkArguments:
    """What both benchmarks take."""

    #: Folders, files or ids of models; for PyTorch also `nn.Module` objects.
    models: Sequence[Any] = ()
    batch_sizes: Sequence[int] = field(default_factory=lambda: [8])
    sequence_lengths: Sequence[int] = field(default_factory=lambda: [8, 32, 128, 512])
    inference: bool = True
    training: bool = False
    speed: bool = True
    memory: bool = True
    #: Measuring is always in processes of its own, whatever this says.
    multi_process: bool = True
    #: The model without its head, where the model is a Hugging Face folder or module.
    only_pretrain_model: bool = False
    #: Fresh processes for each cell, which share its time.
    repeat: int = 3
    #: Say on stderr what is being done.
    verbose: bool = False
    env_print: bool = False
    #: Write what is printed to `log_filename` too.
    log_print: bool = False
    save_to_csv: bool = False
    inference_time_csv_file: str = _stamped("inference_time")
    inference_memory_csv_file: str = _stamped("inference_memory")
    train_time_csv_file: str = _stamped("train_time")
    train_memory_csv_file: str = _stamped("train_memory")
    env_info_csv_file: str = _stamped("env_info")
    log_filename: str = _stamped("log")
    cuda: bool = False
    tpu: bool = False
    fp16: bool = False
    trace_memory_line_by_line: bool = False
    #: The most seconds that one cell is measured, warm-up included and all its processes together.
    time_s: float = 2.0
    #: Compare the outputs with a reference, before and after timing.
    verify: bool = True
    #: None stands for all cores.
    num_cores: int | None = None
    #: The engine's own options, such as {"mode": "compile"} for torch.
    engine_options: Mapping[str, Any] = field(default_factory=dict)

    def __new__(cls, *args: Any, **arguments: Any) -> Self:
        """Refuse arguments that there are not, in a sentence."""
        names = {spec.name for spec in fields(cls)}
        for name in arguments:
            if name not in names:
                raise BadInput(f"{cls.__name__} has no argument '{name}'.{_hint(name, arguments[name], names)}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if isinstance(self.models, Sequence) and not isinstance(self.models, str):
            paths = [os.fspath(model) if isinstance(model, os.PathLike) else model for model in self.models]
            object.__setattr__(self, "models", paths)
        for name in ("models", "batch_sizes", "sequence_lengths"):
            value = getattr(self, name)
            if isinstance(value, (str, Mapping)) or not isinstance(value, Sequence) or not value:
                raise BadInput(f"{name} must be a list with something in it, not {value!r}.")
        for name in ("batch_sizes", "sequence_lengths"):
            for value in getattr(self, name):
                if not _is_count(value):
                    raise BadInput(f"{name} must be whole numbers of 1 or more, not {value!r}.")
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise BadInput(f"{name} has a number twice. Give each once.")
        _refuse_twins(self.models)
        for name, reason in _NEVER.items():
            if getattr(self, name, False):
                raise BadInput(f"{name}=True is not possible: {reason}. Leave it out.")
        if not (self.inference or self.training):
            raise BadInput("Nothing is to be measured: inference and training are both False.")
        if not (self.speed or self.memory):
            raise BadInput("Nothing is to be measured: speed and memory are both False.")
        if not _is_count(self.repeat):
            raise BadInput(f"repeat must be a whole number of 1 or more, not {self.repeat!r}.")
        if self.num_cores is not None and not _is_count(self.num_cores):
            raise BadInput(
                f"num_cores must be a whole number of 1 or more, or None for all, not {self.num_cores!r}."
            )
        if not isinstance(self.time_s, (int, float)) or not 0 < self.time_s < float("inf"):
            raise BadInput(f"time_s must be more than 0 seconds and finite, not {self.time_s!r}.")

    @property
    def model_names(self) -> list[str]:
        """The models by their names; of an object, its class."""
        return [model if isinstance(model, str) else type(model).__name__ for model in self.models]

    @property
    def do_multi_processing(self) -> bool:
        """Measuring is always in processes of its own."""
        return True

    @property
    def is_gpu(self) -> bool:
        """Everything is measured on the CPU."""
        return False

    @property
    def n_gpu(self) -> int:
        """Everything is measured on the CPU."""
        return 0

    @property
    def device(self) -> str:
        """Everything is measured on the CPU."""
        return "cpu"

    @property
    def device_idx(self) -> int:
        """The CPU is the only device."""
        return 0

    def to_json_string(self) -> str:
        """All arguments as JSON; models by their names."""
        values = {spec.name: getattr(self, spec.name) for spec in fields(self)}
        return json.dumps({**values, "models": self.model_names}, indent=2, default=str)

    def files(self) -> dict[str, str]:
        """The files that a run writes, by the name of their argument."""
        file_arguments = [name for name in _FILES if self.save_to_csv and self._has(name)]
        return {
            name: getattr(self, name) for name in [*file_arguments, *(["log_filename"] if self.log_print else [])]
        }

    def _has(self, name: str) -> bool:
        """Whether a run has what this file is for."""
        return (
            (self.inference or not name.startswith("inference"))
            and (self.training or not name.startswith("train"))
            and (self.speed or "_time_" not in name)
            and (self.memory or "_memory_" not in name)
        )


@dataclass(frozen=True)
class PyTorchBenchmarkArguments(BenchmarkArguments):
    """What to measure on PyTorch."""

    #: Trace the model to TorchScript first.
    torchscript: bool = False
    #: Hugging Face's words for GPUs and TPUs; taken at their defaults, which mean nothing here.
    torch_xla_tpu_print_metrics: bool = False
    fp16_opt_level: str = "O1"

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        super().__post_init__()
        if self.fp16_opt_level != "O1":
            raise BadInput(
                f"fp16_opt_level={self.fp16_opt_level!r} is not possible: a model is measured in the precision "
                "that it is saved in. Leave it out."
            )
        modules = [model for model in self.models if not isinstance(model, str)]
        if self.torchscript and modules:
            raise BadInput(
                f"torchscript=True does not go with the {type(modules[0]).__name__} object, which travels by "
                "torch.export. Save it as a folder or as TorchScript and give its path."
            )
        for name, argument, value in (
            ("mode", "torchscript", self.torchscript),
            ("head", "only_pretrain_model", self.only_pretrain_model),
        ):
            if value and name in self.engine_options:
                raise BadInput(
                    f"{argument}=True and the engine option '{name}' say the same thing. Give one of them."
                )
        if self.torchscript and self.training:
            raise BadInput("torchscript=True does not go with training=True: a traced model is not trained.")


@dataclass(frozen=True)
class ExecutorBenchmarkArguments(BenchmarkArguments):
    """What to measure of ONNX files, on an engine of inferlab's."""

    engine: str = "onnxruntime"

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        super().__post_init__()
        if self.training:
            raise BadInput("ExecutorBenchmark is only used for inference: an ONNX file is not trained.")
        for model in self.models:
            if not isinstance(model, str):
                raise BadInput(f"ExecutorBenchmark takes paths of ONNX files, not a {type(model).__name__}.")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _refuse_twins(models: Sequence[Any]) -> None:
    seen: list[Any] = []
    for model in models:
        if any(model is other or (isinstance(model, str) and model == other) for other in seen):
            raise BadInput(f"models names {model if isinstance(model, str) else type(model).__name__} twice.")
        seen.append(model)


def _hint(name: str, value: Any, names: set[str]) -> str:
    """What was meant, where it shows: Hugging Face once had a `no_…` for everything."""
    import difflib

    if name.removeprefix("no_") in names:
        return f" Write {name.removeprefix('no_')}={not value}."
    near = difflib.get_close_matches(name, names, n=1)
    return f" Did you mean '{near[0]}'?" if near else f" It takes: {', '.join(sorted(names))}."
