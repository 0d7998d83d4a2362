"""Load a changed copy of a model and run it beside the model itself."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from .. import protocol  # noqa: TID252
from ..engines.base import BadOption  # noqa: TID252
from .evaluate import outputs

# Outputs that are smaller than this everywhere are as good as zero: the largest of them is no measure.
_SMALL = 1e-3


def run(arguments: Dict[str, Any], blocks: List[bytes]) -> Tuple[Dict[str, Any], List[Any]]:
    """The largest difference of an output of `copy` from that of `model`, over the output's largest magnitude.

    Outputs that are not numbers, or of another shape, where the model's are sound are an error. The difference is
    None where the model itself does not run on such inputs.
    """
    import numpy

    inputs, _ = protocol.unpack_sets(arguments, blocks)
    try:
        dense = outputs(arguments["model"], inputs[:1])[0]
    except Exception:
        return {"difference": None}, []
    try:
        found = outputs(arguments["copy"], inputs[:1])[0]
    except Exception as error:
        raise BadOption("the copy does not run: {}".format(error)) from error
    difference = 0.0
    for name, expected in dense.items():
        if expected.dtype.kind != "f" or not numpy.isfinite(expected).all() or not expected.size:
            continue
        if found[name].shape != expected.shape or not numpy.isfinite(found[name]).all():
            raise BadOption("the copy gives outputs that are not numbers, or of another shape")
        scale = max(float(numpy.abs(expected).max()), _SMALL)
        difference = max(difference, float(numpy.abs(found[name].astype("f8") - expected).max()) / scale)
    return {"difference": difference}, []
