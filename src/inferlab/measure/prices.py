"""What inferences cost on a machine that is paid by the hour."""

from __future__ import annotations

from inferlab.records import Benchmark, Cell, Estimate

_MILLION, _HOUR_S = 1e6, 3600.0


def price_of(benchmark: Benchmark, cell: Cell) -> float | None:
    """What an hour of the cell's machine costs, where the user said so."""
    return None if cell.machine_type is None else dict(benchmark.plan.prices).get(cell.machine_type)


def cost_per_million(items_per_sec: Estimate, price_per_hour: float) -> Estimate:
    """What a million items cost at this throughput; the faster, the cheaper, so the ends change places."""
    ends = items_per_sec.ends
    low, high = (None, None) if ends is None else (_cost(ends[1], price_per_hour), _cost(ends[0], price_per_hour))
    value = _cost(items_per_sec.value, price_per_hour)
    return Estimate(value, low, high, items_per_sec.level, items_per_sec.method)


def _cost(items_per_sec: float, price_per_hour: float) -> float:
    return price_per_hour * _MILLION / (items_per_sec * _HOUR_S)
