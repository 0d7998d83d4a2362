"""Cards opened for showing: their numbers without the samples, and their charts, made off the event loop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from inferlab.errors import BadInput
from inferlab.records import Comparison, Estimate, Outcome, Status
from inferlab.views.charts import cards as charts
from inferlab.views.charts import pairs
from inferlab.views.charts.points import Point
from inferlab.workspace.cards import Card, Numbers, checked, numbers
from inferlab.workspace.workspace import Workspace

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Place = tuple[int, int]
#: A figure as the browser takes it.
Drawing = dict[str, Any]
_T = TypeVar("_T")
# Opened cards keep all samples, of 16 bytes each; these many stay in memory for the next chart.
_MOST_SAMPLES = 8_000_000
# Beside a speed-up and three more numbers.
_TALL = 350


@dataclass(frozen=True, slots=True)
class CellFace:
    """What a card shows of one cell."""

    status: Status
    failure: str
    numbers: Numbers | None
    point: Point


@dataclass(frozen=True, slots=True)
class Face:
    """A card without its samples: small enough to be kept by every tab that shows it."""

    card: Card
    instruction_set: str
    #: For each arm.
    cells: tuple[Mapping[Place, CellFace], ...]

    def cell(self, arm: int, place: Place) -> CellFace | None:
        """What is known at a core count and batch size; an arm may lack some of the others'."""
        return self.cells[arm].get(place)

    def first(self) -> Place:
        """What is shown first: a cell that has numbers, if there is one."""
        places = list(self.cells[0])
        done = [one for one in places if self.cells[0][one].numbers is not None]
        return (done or places)[0]

    def points(self, arm: int, num_cores: int | None = None, batch_size: int | None = None) -> list[Point]:
        """The cells of an arm at a core count or at a batch size."""
        return [
            one.point
            for place, one in self.cells[arm].items()
            if num_cores in (None, place[0]) and batch_size in (None, place[1])
        ]


@dataclass(frozen=True, slots=True)
class _Opened:
    card: Card
    face: Face
    samples: int


class Shelf:
    """Opens cards for all tabs of a server, one after the other in a thread, and keeps the last ones."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._pool = ThreadPoolExecutor(1, "cards")
        self._opened: OrderedDict[tuple[object, ...], _Opened] = OrderedDict()

    async def face(self, entry_id: str, mark: tuple[object, ...]) -> Face:
        """All numbers of a card; `mark` changes when there is more of it."""
        return (await self._off_loop(lambda: self._open(entry_id, mark))).face

    async def iterations(self, entry_id: str, mark: tuple[object, ...], arm: int, place: Place) -> Drawing | None:
        """Every batch of a cell, before those of the arm that it is compared with; None where there is none."""
        return await self._off_loop(lambda: _iterations(self._open(entry_id, mark).card, arm, place))

    async def core_scaling(self, face: Face, arm: int, batch_size: int) -> Drawing | None:
        """How the time an item falls with more cores."""
        return await self._off_loop(lambda: _drawn(lambda: charts.core_scaling(_lines(face, arm), batch_size)))

    async def batch_scaling(self, face: Face, arm: int, num_cores: int) -> Drawing | None:
        """How the time an item changes with the batch size."""
        return await self._off_loop(lambda: _drawn(lambda: charts.batch_scaling(_lines(face, arm), num_cores)))

    async def ratios(self, told: Comparison) -> Drawing | None:
        """The ratio of every pair of a comparison."""
        return await self._off_loop(lambda: _drawn(lambda: pairs.ratios(pairs.of_comparison(told))))

    async def _off_loop(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def _open(self, entry_id: str, mark: tuple[object, ...]) -> _Opened:
        key = (entry_id, mark)
        found = self._opened.pop(key, None)
        if found is None:
            card = self._workspace.card(entry_id)
            found = _Opened(card, face_of(card), _samples(card))
        self._opened[key] = found
        while len(self._opened) > 1 and sum(one.samples for one in self._opened.values()) > _MOST_SAMPLES:
            self._opened.popitem(last=False)
        return found


def face_of(card: Card) -> Face:
    """What is shown of a card."""
    cells = tuple(
        {(one.cell.num_cores, one.cell.batch_size): _cell(one) for one in arm.outcomes} for arm in card.arms
    )
    light = tuple(replace(arm, outcomes=tuple(replace(one, runs=()) for one in arm.outcomes)) for arm in card.arms)
    return Face(replace(card, arms=light), card.instruction_set, cells)


def _cell(outcome: Outcome) -> CellFace:
    found = numbers(outcome)
    failure = outcome.failure.message if outcome.failure else ""
    return CellFace(outcome.status, failure, found, _point(outcome, found))


def _point(outcome: Outcome, found: Numbers | None) -> Point:
    cell = outcome.cell
    median, rate = (found.ms_per_batch, found.items_per_second) if found else (_NOTHING, _NOTHING)
    return Point(
        model="",
        engine=cell.engine,
        scenario=cell.scenario,
        num_cores=cell.num_cores,
        num_streams=cell.num_streams,
        batch_size=cell.batch_size,
        sequence_length=cell.sequence_length,
        median_ms=median.value if found else None,
        median_ms_low=median.low,
        median_ms_high=median.high,
        items_per_sec=rate.value if found else None,
        items_per_sec_low=rate.low,
        items_per_sec_high=rate.high,
        status=outcome.status,
        output_check=checked(outcome).status if outcome.runs else "",
    )


_NOTHING = Estimate(0.0, None, None, 0.0, "student")


def _samples(card: Card) -> int:
    runs = (run for arm in card.arms for one in arm.outcomes for run in one.runs)
    return sum(len(stream) for run in runs for window in run.windows for stream in window.streams)


def _iterations(card: Card, arm: int, place: Place) -> Drawing | None:
    rival, own = 1 if arm == 0 else 0, card.arms[arm].at(*place)
    if own is None or not own.runs:
        return None
    shown = [
        (card.arms[index].label, outcome)
        for index in (arm, rival)
        if index < len(card.arms) and (outcome := card.arms[index].at(*place)) is not None
    ]
    return _drawn(lambda: charts.iterations(shown), _TALL if len(shown) > 1 else charts.HEIGHT)


def _lines(face: Face, arm: int) -> Sequence[tuple[str, list[Point]]]:
    """All arms, the chosen one first: it is the one in colour."""
    order = [arm, *(index for index in range(len(face.cells)) if index != arm)]
    return [(face.card.arms[index].label, face.points(index)) for index in order]


def _drawn(make: Callable[[], Figure], height: int | None = None) -> Drawing | None:
    try:
        figure = make()
    except BadInput:
        # Nothing was measured: the card says why in place of the chart.
        return None
    if height is not None:
        figure.update_layout(height=height)
    return {**figure.to_plotly_json(), "config": {"displayModeBar": False, "displaylogo": False}}
