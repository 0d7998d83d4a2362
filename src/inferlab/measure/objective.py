"""A latency objective, such as p99<20ms: read from text, judged on response times."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inferlab.errors import BadInput
from inferlab.measure import stats

_FORM = re.compile(
    r"(?P<statistic>mean|median|p(?P<percent>\d+(\.\d+)?))(<=?|≤)(?P<number>\d+(\.\d+)?|\.\d+)(?P<unit>us|µs|μs|ms|s)"
)
_UNITS_S = {"us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0}
_EXAMPLES = (
    "Write it as p99<20ms, median<3ms or mean<2ms, with us, ms or s, and quote it: the shell reads a bare <."
)
# Fewer requests do not show how a queue behaves, whatever their number says of a percentile.
_FEWEST = 100


@dataclass(frozen=True, slots=True)
class Objective:
    """A statistic of the response times and the limit that it must keep."""

    #: mean, median, or a percentile such as p99 or p99.9.
    statistic: str
    limit_s: float
    text: str

    @property
    def samples_needed(self) -> int:
        """The fewest requests that carry the statistic."""
        p = percent(self.statistic)
        return _FEWEST if p is None else max(_FEWEST, stats.samples_needed(p))

    def value_s(self, times_s: NDArray[np.float64]) -> float:
        """The statistic of these times, however few they are."""
        p = percent(self.statistic)
        return float(np.mean(times_s) if p is None else np.percentile(times_s, p))

    def keeps(self, times_s: NDArray[np.float64]) -> bool:
        """Whether these times keep the limit."""
        return self.value_s(times_s) <= self.limit_s


def percent(statistic: str) -> float | None:
    """Which percentile a statistic is; None for the mean."""
    return {"mean": None, "median": 50.0}[statistic] if statistic[0] == "m" else float(statistic[1:])


def carried(times_s: NDArray[np.float64], statistic: str) -> float | None:
    """The statistic, or None where these times are too few to carry it or it is not finite."""
    if not len(times_s):
        return None
    p = percent(statistic)
    if p is None:
        mean = float(np.mean(times_s))
        return mean if math.isfinite(mean) else None
    return stats.percentile(times_s, p)


def parse(text: str) -> Objective:
    """Read an objective; spaces and capitals do not matter."""
    plain = "".join(text.split()).lower()
    found = _FORM.fullmatch(plain)
    if not found:
        raise BadInput(f"The objective '{text}' cannot be read. {_EXAMPLES}")
    share, limit_s = found["percent"], float(found["number"]) * _UNITS_S[found["unit"]]
    if share is not None and not 50 <= float(share) < 100:
        raise BadInput(
            f"The objective '{text}' names a percentile that is none to serve by: take one from p50 to below p100."
        )
    if limit_s == 0:
        raise BadInput(f"The objective '{text}' has a limit of 0, which no request keeps. {_EXAMPLES}")
    statistic = found["statistic"] if share is None else f"p{float(share):.10g}"
    return Objective("median" if statistic == "p50" else statistic, limit_s, plain)
