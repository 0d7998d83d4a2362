"""Make a Hugging Face folder with random weights out of a configuration."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from ..engines.base import BadOption  # noqa: TID252
from ..engines.torch import folders  # noqa: TID252


def run(arguments: Dict[str, Any], _: List[bytes]) -> Tuple[Dict[str, Any], List[Any]]:
    """Write the folder `out`; the same configuration gives the same weights."""
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
