"""What the Python API hands out of a recommendation, a capacity and a look at the machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from inferlab.escaping import escape_controls
from inferlab.measure.capacity import max_rate
from inferlab.results import checked_path
from inferlab.views import capacity as render_capacity
from inferlab.views import doctor as render_doctor
from inferlab.views import files, html
from inferlab.views import recommend as render_recommend

if TYPE_CHECKING:
    from inferlab.machine_state import Fact
    from inferlab.records import Capacity, Recommendation
    from inferlab.results import StrPath


class _Told:
    """An answer that is told as lines and as JSON."""

    def __init__(self, lines: Callable[[], Sequence[str]], to_json: Callable[[], str]) -> None:
        self._lines, self._to_json = lines, to_json

    def __str__(self) -> str:
        return escape_controls(self.table())

    def table(self) -> str:
        """What the command line prints."""
        return "\n".join(self._lines())

    def to_dict(self) -> dict[str, Any]:
        """All that is known, as JSON values."""
        found: dict[str, Any] = json.loads(self.to_json())
        return found

    def to_json(self) -> str:
        """The same text that the command line writes with -x."""
        return self._to_json()

    def save(self, path: StrPath) -> None:
        """Write it to a .json file."""
        files.write(checked_path(path, (".json",)), self.to_json())

    def _repr_html_(self) -> str:
        pairs, notes = html.split(list(self._lines()))
        return html.lines(pairs, notes, ())


class RecommendationResult(_Told):
    """The best configuration of a model on this machine, and the evidence for it."""

    def __init__(self, record: Recommendation) -> None:
        #: All that is known, as frozen records.
        self.record = record
        super().__init__(lambda: render_recommend.lines(record), lambda: render_recommend.to_json(record))

    def __repr__(self) -> str:
        return f"<RecommendationResult of {self.record.model.source}: {self.recommended}>"

    @property
    def recommended(self) -> dict[str, Any] | None:
        """The options to take (engine, cores, streams, batch size); None where nothing keeps the objective."""
        found: dict[str, Any] | None = self.to_dict()["recommended"]
        return found

    @property
    def code(self) -> str:
        """A program that runs the model so; empty where nothing is recommended."""
        return self.to_dict()["code"] or ""

    def rows(self) -> list[dict[str, Any]]:
        """One row a configuration that was tried, the recommended one first."""
        found: list[dict[str, Any]] = self.to_dict()["candidates"]
        return found


class CapacityResult(_Told):
    """The highest rate of requests at which a model keeps a latency objective."""

    def __init__(self, record: Capacity) -> None:
        #: All that is known, as frozen records.
        self.record = record
        super().__init__(lambda: render_capacity.lines(record), lambda: render_capacity.to_json(record))

    def __repr__(self) -> str:
        objective = self.record.objective.text
        return f"<CapacityResult of {self.record.model.source}: {self.max_rate:.4g} requests/s with {objective}>"

    @property
    def max_rate(self) -> float:
        """Requests a second; 0 where the objective is out of reach."""
        return max_rate(self.record).value

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its 95 % interval; None where too few processes were measured for one."""
        return max_rate(self.record).ends

    def rows(self) -> list[dict[str, Any]]:
        """One row a rate that was tried: the curve of latency over load."""
        found: list[dict[str, Any]] = self.to_dict()["curve"]
        return found


class DoctorResult(_Told):
    """Whether this machine is fit for measuring."""

    def __init__(self, facts: tuple[Fact, ...]) -> None:
        #: What is known of the machine: a code, a state (good, warn, unknown, info) and numbers each.
        self.facts = facts
        super().__init__(
            lambda: render_doctor.lines(facts, None, lambda _, word: word), lambda: render_doctor.to_json(facts)
        )

    def __repr__(self) -> str:
        return f"<DoctorResult: {self.verdict}>"

    @property
    def fit(self) -> bool:
        """Whether nothing that could be read disturbs measurements here."""
        return not any(one.state == "warn" for one in self.facts)

    @property
    def verdict(self) -> str:
        """All facts in one line."""
        return render_doctor.verdict(self.facts)

    def rows(self) -> list[dict[str, Any]]:
        """One row a fact, with its sentence."""
        found: list[dict[str, Any]] = self.to_dict()["facts"]
        return found
