"""What the operators of a PyTorch model compute, read and write in one inference."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Tuple

from ..engines.base import LoadOptions  # noqa: TID252
from ..engines.torch import Torch  # noqa: TID252
from ..protocol import unpack_arrays  # noqa: TID252


def run(arguments: Dict[str, Any], blocks: List[bytes]) -> Tuple[Dict[str, Any], List[Any]]:
    """Load the model as the engine would, run it once, and tell of every operator."""
    # Compiled and frozen models compute the same, in kernels that nobody can look into.
    hidden = (("mode", "compile"), ("freeze", "1"))
    options = {key: value for key, value in arguments["options"].items() if (key, value) not in hidden}
    threads = os.cpu_count() or 1
    load = LoadOptions(
        kind=arguments["kind"],
        cpus=[],
        threads=threads,
        cores=threads,
        streams=1,
        scheduler="single_stream",
        pinning="none",
        batch_size=1,
        shapes=arguments["shapes"],
        options=options,
    )
    engine = Torch()
    engine.load(arguments["model"], load)
    return {"nodes": engine.walk(unpack_arrays(arguments["arrays"], blocks))}, []
