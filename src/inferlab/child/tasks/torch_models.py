"""Models of PyTorch: made of a configuration, written in INT8, counted by operators: tasks."""

from __future__ import annotations

import os
from typing import Any, Dict, List

from ..engines.base import BadOption, LoadOptions
from ..engines.torch import Torch, folders
from ..protocol import Answer, unpack_arrays

# Batch and sequence length that an INT8 copy is compared with its original at.
_SIZES = (2, 16)


def from_config(arguments: Dict[str, Any], _: List[bytes]) -> Answer:
    """Write the Hugging Face folder `out` with random weights; the same configuration gives the same ones."""
    import torch

    transformers = folders.need_transformers()
    torch.manual_seed(0)
    try:
        config = transformers.AutoConfig.for_model(**arguments["config"])
        module = folders.architecture(transformers, config)._from_config(config, dtype=torch.float32)
        module.save_pretrained(arguments["out"])
    except BadOption:
        raise
    except Exception as error:
        raise BadOption("no model can be made of the configuration: {}".format(error)) from error
    return {}, []


def write_int8(arguments: Dict[str, Any], _: List[bytes]) -> Answer:
    """Write an INT8 copy of a Hugging Face folder into an empty one, `out`, and compare it with the original."""
    import torch

    folder, out = arguments["source"], arguments["out"]
    if folders.is_int8(folder):
        raise BadOption("{} is an INT8 copy already".format(folder))
    original = folders.read_folder(folder, dtype=torch.float32)
    layers = folders.write_int8(original, out)
    folders.write_config(folder, out, inferlab_int8={"format": folders.INT8_FORMAT, "scheme": "dynamic"})
    copy = folders.read_folder(out)
    batch, length = _SIZES
    length = min(length, folders.longest_sequence(original) or length)
    inputs = folders.make_inputs(folders.describe_inputs(original), batch, length)
    with torch.inference_mode():
        expected = folders.tensors(original(**inputs))
        try:
            actual = folders.tensors(copy(**inputs))
        except Exception as error:
            raise BadOption(
                "its INT8 copy does not run ({}: {}): the model reaches into layers that were replaced".format(
                    type(error).__name__, error
                )
            ) from error
    return {"layers": layers, "error": max(_error(actual[name], expected[name]) for name in expected)}, []


def _error(actual: Any, expected: Any) -> float:
    """The RMS of the difference over the RMS of what is expected."""
    difference, scale = (actual - expected).double().square().mean(), expected.double().square().mean()
    return float((difference / scale.clamp_min(1e-30)).sqrt())


def operator_costs(arguments: Dict[str, Any], blocks: List[bytes]) -> Answer:
    """What the operators compute, read and write in one inference of the model, loaded as the engine would."""
    # Compiled and frozen models compute the same, in kernels that nobody can look into.
    hidden = (("mode", "compile"), ("freeze", "1"))
    options = {key: value for key, value in arguments["options"].items() if (key, value) not in hidden}
    threads = os.cpu_count() or 1
    engine = Torch()
    engine.load(
        arguments["model"],
        LoadOptions(arguments["kind"], [], threads, threads, shapes=arguments["shapes"], options=options),
    )
    return {"nodes": engine.walk(unpack_arrays(arguments["arrays"], blocks))}, []
