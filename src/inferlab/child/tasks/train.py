"""Time training steps: forward, loss, backward, AdamW."""

from __future__ import annotations

import gc
from typing import Any, Callable, Dict, List, Tuple

from .. import counters
from ..engines.base import BadOption, times_ns
from ..engines.torch import files, folders
from ..protocol import Answer

_LEARNING_RATE = 1e-4
# However long a step takes: two to settle the optimiser's memory and the kernels, three for a median.
_FEWEST_WARM, _FEWEST_STEPS = 2, 3


def run(arguments: Dict[str, Any], _: List[bytes]) -> Answer:
    """Warm up, then time steps on one batch, and say what memory they took and how the loss moved."""
    import torch

    torch.set_num_threads(arguments["threads"])
    folder = arguments["kind"] == "transformers"
    if folder:
        folders.prepare(arguments["source"])
    # The optimiser imports a compiler when the first one is made.
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
    baseline = counters.memory_bytes()["now"]
    open_model = _open_folder if folder else _open_program
    module, inputs, loss_of, label = open_model(arguments)
    weights = [
        parameter for parameter in module.parameters() if parameter.requires_grad and parameter.is_floating_point()
    ]
    if not weights:
        raise BadOption("the model has no weights that could be trained")
    optimiser = torch.optim.AdamW(weights, lr=_LEARNING_RATE)

    loss: Any = None

    def step() -> None:
        nonlocal loss
        optimiser.zero_grad()
        loss = loss_of(module(**inputs))
        loss.backward()
        optimiser.step()

    try:
        step()
        first = float(loss.detach())
        times_ns(step, arguments["warmup_s"], warmup=0, least=_FEWEST_WARM)
        gc.collect()
        durations = times_ns(step, arguments["seconds"], warmup=0, least=_FEWEST_STEPS)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise BadOption("it cannot be trained: {}".format(" ".join(str(error).split())[:400])) from error
    memory = counters.memory_bytes()
    return {
        "durations_ns": durations,
        "loss": label,
        "first_loss": first,
        "last_loss": float(loss.detach()),
        "baseline_memory_bytes": baseline,
        "peak_memory_bytes": memory["peak"],
        "steady_memory_bytes": memory["now"],
    }, []


#: A module, its inputs, what makes a loss of its outputs, and how that is called.
Trainee = Tuple[Any, Dict[str, Any], Callable[[Any], Any], str]


def _open_folder(arguments: Dict[str, Any]) -> Trainee:
    import torch

    folder = arguments["source"]
    if folders.is_int8(folder):
        raise BadOption("an INT8 model cannot be trained; train the model it was made from")
    module = folders.read_folder(folder, arguments["head"], dtype=torch.float32)
    shape = [arguments["batch_size"], arguments["sequence_length"]]
    folders.check_shapes(module, {"input_ids": shape})
    inputs = folders.make_inputs(folders.describe_inputs(module), *shape)
    labels = _labels(module, inputs)
    if labels:
        return module.train(), {**inputs, **labels}, lambda outputs: outputs.loss, "the model's own"
    return module.train(), inputs, _mean_square, _MEAN_SQUARE


def _labels(module: Any, inputs: Dict[str, Any]) -> Dict[str, Any]:
    """Random labels for the heads whose loss is their own business; nothing for the others."""
    import torch

    name, config = type(module).__name__, module.config
    batch = len(next(iter(inputs.values())))
    if name.endswith(("ForMaskedLM", "ForCausalLM", "LMHeadModel")):
        return {"labels": inputs["input_ids"]}
    if name.endswith(("ForSequenceClassification", "ForImageClassification")):
        if config.num_labels == 1:
            return {"labels": torch.rand(batch)}
        return {"labels": torch.randint(0, config.num_labels, (batch,))}
    if name.endswith("ForTokenClassification"):
        return {"labels": torch.randint(0, config.num_labels, inputs["input_ids"].shape)}
    if name.endswith("ForQuestionAnswering"):
        length = inputs["input_ids"].shape[1]
        return {place: torch.randint(0, length, (batch,)) for place in ("start_positions", "end_positions")}
    return {}


def _open_program(arguments: Dict[str, Any]) -> Trainee:
    """A torch.export program of a module in training mode."""
    program = files.read_exported(arguments["source"])
    described = files.describe_exported(program)
    if described["precision"] == "INT8":
        raise BadOption("an INT8 model cannot be trained; train the model it was made from")
    inputs = folders.make_inputs(
        [{**spec, "below": _below(spec)} for spec in described["inputs"]],
        arguments["batch_size"],
        arguments["sequence_length"],
    )
    return program.module(check_guards=False), inputs, _mean_square, _MEAN_SQUARE


def _below(spec: Dict[str, Any]) -> Any:
    return None if "mask" in spec["name"] else spec["below"] or 2


_MEAN_SQUARE = "the mean square of its outputs"


def _mean_square(outputs: Any) -> Any:
    """A loss for what has none: every output pulled to zero."""
    values = [value for value in folders.tensors(outputs).values() if value.requires_grad]
    if not values:
        raise ValueError("none of its outputs depends on its weights")
    return sum(value.float().square().mean() for value in values)
