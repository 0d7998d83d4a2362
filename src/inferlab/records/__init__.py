"""The nouns of inferlab: frozen, plain, importing nothing of ours. Profiles and recipes lie in their modules.

What only some commands need is imported when it is asked for: `history` is quicker by a tenth.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from inferlab.records.benchmark import *  # noqa: F403  all of its nouns, which are listed nowhere else

if TYPE_CHECKING:
    from inferlab.records.capacity import *  # noqa: F403
    from inferlab.records.comparison import *  # noqa: F403
    from inferlab.records.recommendation import *  # noqa: F403

_LATE = ("capacity", "comparison", "recommendation")


def __getattr__(name: str) -> Any:
    if name[0].isupper():
        for module in map(import_module, (f"{__name__}.{late}" for late in _LATE)):
            if hasattr(module, name):
                globals()[name] = getattr(module, name)
                return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
