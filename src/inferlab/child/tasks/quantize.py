"""Write an INT8 copy of a Hugging Face folder, load it again and compare it with the original."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from ..engines.base import BadOption  # noqa: TID252
from ..engines.torch import folders  # noqa: TID252

_SIZES = (2, 16)


def run(arguments: Dict[str, Any], _: List[bytes]) -> Tuple[Dict[str, Any], List[Any]]:
    """Write the weights and config.json into `out`, which is there and empty."""
    import torch

    from ..engines.torch import int8  # noqa: TID252

    folder, out = arguments["source"], arguments["out"]
    if folders.is_int8(folder):
        raise BadOption("{} is an INT8 copy already".format(folder))
    original = folders.read_folder(folder, dtype=torch.float32)
    layers = int8.write(original, out)
    folders.write_config(folder, out, inferlab_int8={"format": int8.FORMAT, "scheme": "dynamic"})
    copy = folders.read_folder(out)
    batch, length = _SIZES
    length = min(length, folders.longest_sequence(original) or length)
    inputs = folders.make_inputs(folders.describe_inputs(original), batch, length)
    with torch.inference_mode():
        expected = folders.tensors(original(**inputs))
        try:
            found = folders.tensors(copy(**inputs))
        except Exception as error:
            raise BadOption(
                "its INT8 copy does not run ({}: {}): the model reaches into layers that were replaced".format(
                    type(error).__name__, error
                )
            ) from error
    return {"layers": layers, "error": max(_error(found[name], expected[name]) for name in expected)}, []


def _error(found: Any, expected: Any) -> float:
    """The RMS of the difference over the RMS of what is expected."""
    difference, scale = (found - expected).double().square().mean(), expected.double().square().mean()
    return float((difference / scale.clamp_min(1e-30)).sqrt())
