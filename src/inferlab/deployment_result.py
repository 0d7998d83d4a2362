"""What the Python API hands out of a recommendation, a capacity and a look at the machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from inferlab import views
from inferlab.measure.capacity import max_rate
from inferlab.records import Capacity, Recommendation
from inferlab.results import checked_path
from inferlab.units import escape_controls
from inferlab.views import doctor as render_doctor
from inferlab.views import files, results, tables

if TYPE_CHECKING:
    from inferlab.machine.facts import Fact
    from inferlab.results import StrPath

R = TypeVar("R", Recommendation, Capacity)


class _Answer(Generic[R]):
    """An answer that is shown as blocks and written in every format."""

    def __init__(self, record: R) -> None:
        #: All that is known, as frozen records.
        self.record: R = record

    def __str__(self) -> str:
        return escape_controls(self.table())

    def table(self) -> str:
        """What the command line prints."""
        return "\n".join(tables.text(results.view_of(self.record).blocks()))

    def to_dict(self) -> dict[str, Any]:
        """All that is known, as JSON values."""
        found: dict[str, Any] = json.loads(self.to_json())
        return found

    def to_json(self) -> str:
        """The same text that the command line writes with -x."""
        return results.render(self.record, ".json")

    def save(self, path: StrPath) -> None:
        """Write it to a file: .json, .csv, .md, or .html for a report that opens offline."""
        views.write(self.record, checked_path(path, files.ENDINGS))

    def _repr_html_(self) -> str:
        return tables.notebook(results.view_of(self.record).blocks())


class RecommendationResult(_Answer[Recommendation]):
    """The best configuration of a model on this machine, and the evidence for it."""

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


class CapacityResult(_Answer[Capacity]):
    """The highest rate of requests at which a model keeps a latency objective."""

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


class DoctorResult:
    """Whether this machine is fit for measuring."""

    def __init__(self, facts: tuple[Fact, ...]) -> None:
        #: What is known of the machine: a code, a state (good, warn, unknown, info) and numbers each.
        self.facts = facts

    def __str__(self) -> str:
        return escape_controls(self.table())

    def table(self) -> str:
        """What the command line prints."""
        return "\n".join(render_doctor.lines(self.facts, None, lambda _, word: word))

    def to_dict(self) -> dict[str, Any]:
        """All that is known, as JSON values."""
        found: dict[str, Any] = json.loads(self.to_json())
        return found

    def to_json(self) -> str:
        """The same text that the command line writes with -x."""
        return render_doctor.to_json(self.facts)

    def save(self, path: StrPath) -> None:
        """Write it to a .json file."""
        files.write(checked_path(path, (".json",)), self.to_json())

    def _repr_html_(self) -> str:
        return tables.notebook(render_doctor.blocks(self.facts))

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
