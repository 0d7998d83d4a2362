"""What the Python API hands out: records with the views that people ask for."""

from __future__ import annotations

import itertools
import operator
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from inferlab import views
from inferlab.errors import BadInput
from inferlab.measure.capacity import max_rate
from inferlab.measure.check import worst
from inferlab.measure.findings import arm_findings, find_all
from inferlab.measure.generation.stats import generation_findings
from inferlab.measure.stats import summarize
from inferlab.records import (
    Benchmark,
    Capacity,
    Comparison,
    ComparisonSweep,
    Finding,
    Outcome,
    Recommendation,
    Status,
    Summary,
    Verdict,
)
from inferlab.records.capacity import GenerationCapacity
from inferlab.records.comparison import GenerationComparison
from inferlab.records.generation import GenerationSweep
from inferlab.records.recommendation import GenerationRecommendation
from inferlab.store.entries import PRECEDENCE
from inferlab.units import decimal, escape_controls
from inferlab.views import benchmark as view
from inferlab.views import benchmark_file, results, tables, text
from inferlab.views import doctor as render_doctor
from inferlab.views.charts import comparisons, sweeps
from inferlab.views.charts import frame as chart_frame
from inferlab.views.charts.points import from_row, points_of, points_of_capacity

if TYPE_CHECKING:
    import os

    from plotly.graph_objects import Figure

    from inferlab.records import Fact

    StrPath = str | os.PathLike[str]

R = TypeVar("R", bound=results.Result)
_TABLES = (".json", ".csv", ".md")
S = TypeVar("S", Benchmark, GenerationSweep)
C = TypeVar("C", Comparison, GenerationComparison)
K = TypeVar("K", Capacity, GenerationCapacity)
D = TypeVar("D", Recommendation, GenerationRecommendation)


class RecordResult(Generic[R]):
    """A record that is shown as blocks and written in every format."""

    def __init__(self, record: R) -> None:
        #: All that is known, as frozen records.
        self.record: R = record

    def __str__(self) -> str:
        return escape_controls(self.table())

    @property
    def id(self) -> str:
        """Its name in the store; empty where it was not saved."""
        return getattr(self.record, "id", "")

    def table(self) -> str:
        """What the command line prints."""
        return "\n".join(results.lines(self.record))

    def to_dict(self) -> dict[str, Any]:
        """All that is known, as JSON values."""
        return results.content_of(self.record)

    def to_json(self) -> str:
        """The same text that the command line writes with -x."""
        return results.render(self.record, ".json")

    def save(self, path: StrPath) -> None:
        """Write it to a file: .json has all of it, .csv the table, .md what is printed, .html a report."""
        views.write(self.record, checked_path(path, results.ENDINGS))

    def _blocks(self) -> list[tables.Block]:
        """What a notebook shows."""
        return results.view_of(self.record).blocks()

    def _repr_html_(self) -> str:
        return tables.notebook(self._blocks())


class _Charted(RecordResult[R]):
    """A result that has a chart, which stands in its HTML file."""

    @abstractmethod
    def plot(self) -> Figure:
        """A Plotly figure."""

    def save(self, path: StrPath) -> None:
        """Write it to a file: .json, .csv or .md have the numbers, .html and .png the chart."""
        target = checked_path(path, (*_TABLES, *chart_frame.ENDINGS))
        if target.suffix.lower() in _TABLES:
            views.write(self.record, target)
        else:
            chart_frame.save(self.plot(), target)


class _Sweep(RecordResult[S]):
    """What became of every cell of a plan."""

    def __len__(self) -> int:
        return len(self.record.outcomes)

    @property
    def status(self) -> Status:
        """What became of the whole: failed, cancelled or pending where a cell is, else done."""
        return min((outcome.status for outcome in self.record.outcomes), key=PRECEDENCE.index)

    @property
    def failures(self) -> tuple[str, ...]:
        """Why cells failed; empty where none did."""
        return tuple(outcome.failure.message for outcome in self.record.outcomes if outcome.failure)


class BenchmarkResult(_Charted[Benchmark], _Sweep[Benchmark]):
    """What was measured: one cell or many; each cell on its own is `result[0]`, `result[1]`, …"""

    def __getitem__(self, index: int) -> BenchmarkResult:
        return BenchmarkResult(replace(self.record, outcomes=(self.record.outcomes[operator.index(index)],)))

    def __iter__(self) -> Iterator[BenchmarkResult]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        if len(self) != 1:
            return f"<BenchmarkResult of {self.record.model.source}: {len(self)} cells, {self.status}>"
        (outcome,) = self.record.outcomes
        return f"<BenchmarkResult of {self.record.model.source}: {text.cell_label(outcome.cell)}, {self.status}>"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a reader of the numbers must know, of all cells, as data."""
        return tuple(one for outcome in self.record.outcomes for one in find_all(outcome))

    @property
    def outputs_match(self) -> bool | None:
        """Whether all outputs are right; None where that is not known of one."""
        found = {_outputs(outcome) for outcome in self.record.outcomes}
        return False if False in found else None if None in found else True

    @property
    def best(self) -> BenchmarkResult | None:
        """The cell of the lowest time per item, of those that were measured to their end and are not wrong.

        That is the median latency per item in sync and server, and 1 over the throughput in the other scenarios.
        """
        found = view.ranked(self.record.outcomes)
        return self[found[0][0] - 1] if found else None

    @cached_property
    def summary(self) -> Summary | None:
        """All numbers of the only cell; None where nothing was measured."""
        if len(self) != 1:
            raise BadInput(
                f"This result has {len(self)} cells, so it has no single number. Take one of them (result[0] or "
                "result.best), or all (result.rows() or result.to_frame())."
            )
        (outcome,) = self.record.outcomes
        return summarize(outcome.cell, outcome.runs)

    @property
    def median_ms(self) -> float | None:
        """The median latency of the only cell, in milliseconds a batch."""
        return None if self.summary is None else self.summary.median_ms.value

    @property
    def median_ms_interval(self) -> tuple[float, float] | None:
        """Its 95 % interval; None where one process was measured."""
        return None if self.summary is None else self.summary.median_ms.ends

    @property
    def items_per_sec(self) -> float | None:
        """The throughput of the only cell."""
        return None if self.summary is None else self.summary.items_per_sec.value

    @property
    def items_per_sec_interval(self) -> tuple[float, float] | None:
        """Its 95 % interval; None where one process was measured."""
        return None if self.summary is None else self.summary.items_per_sec.ends

    def table(self, *baseline: str) -> str:
        """What the command line prints; speed-ups refer to the first cell, or to that with all of OPTION=VALUE."""
        view.check_baseline([outcome.cell for outcome in self.record.outcomes], baseline)
        return "\n".join(results.lines(self.record, view.find_baseline(self.record, baseline)))

    def rows(self) -> list[dict[str, Any]]:
        """One flat row a cell, as in a CSV file."""
        return benchmark_file.rows(self.record)

    def to_frame(self) -> Any:
        """The same rows as a pandas DataFrame."""
        return data_frame(self.rows(), list(benchmark_file.FIELDS))

    def plot(self, x: str | None = None, y: str | None = None) -> Figure:
        """A Plotly figure: what scales along an axis, the cells side by side, or one cell over time."""
        points = [from_row(row, self.id) for row in self.rows()]
        return sweeps.chart(points, self.record.outcomes, x, y)

    def _blocks(self) -> list[tables.Block]:
        return view.blocks(self.record)


class _Compared(_Charted[C]):
    """A verdict of B against A."""

    def __repr__(self) -> str:
        a, b = self.record.labels
        return f"<{type(self).__name__}: {b} takes {decimal(self.ratio)} of the time of {a}, {self.verdict}>"

    @property
    def verdict(self) -> Verdict:
        """Of B against A: faster, slower, same or inconclusive."""
        return self.record.verdict

    @property
    def ratio(self) -> float:
        """B's time over A's: per item, or for the metric that is compared."""
        return self.record.ratio.value

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the ratio; None where too few processes were measured for one."""
        return self.record.ratio.ends

    def rows(self) -> list[dict[str, Any]]:
        """One row a pair of fresh processes, or a process of each where saved results were compared."""
        ratios = comparisons.of_comparison(self.record)
        pairs = enumerate(itertools.zip_longest(*ratios.times_ms, ratios.log_ratios), 1)
        return [{"pair": number, "a_ms": a, "b_ms": b, "log_ratio": ratio} for number, (a, b, ratio) in pairs]

    def to_frame(self) -> Any:
        """The same rows as a pandas DataFrame."""
        return data_frame(self.rows(), ["pair", "a_ms", "b_ms", "log_ratio"])

    def plot(self) -> Figure:
        """A Plotly figure: the ratio of every pair, its interval and the margin."""
        return comparisons.ratios(comparisons.of_comparison(self.record))


class ComparisonResult(_Compared[Comparison]):
    """Whether B is faster than A, and how sure that is."""

    @property
    def outputs_match(self) -> bool | None:
        """Whether both arms compute the same; None where their outputs could not be compared."""
        return self.record.outputs_match

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a reader of the numbers must know, of A and then of B, as data."""
        return tuple(one for arm in arm_findings(self.record) for one in arm)


class ComparisonSweepResult(RecordResult[ComparisonSweep], Sequence[ComparisonResult]):
    """The comparisons of all cells that two sweeps have in common; their intervals hold for all together."""

    def __repr__(self) -> str:
        verdicts = ", ".join(one.verdict for one in self)
        return f"<ComparisonSweepResult: {len(self)} cells, {verdicts}>"

    def __len__(self) -> int:
        return len(self.record.results)

    @overload
    def __getitem__(self, index: int) -> ComparisonResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[ComparisonResult]: ...

    def __getitem__(self, index: int | slice) -> ComparisonResult | list[ComparisonResult]:
        if isinstance(index, slice):
            return [ComparisonResult(one) for one in self.record.results[index]]
        return ComparisonResult(self.record.results[index])

    def rows(self) -> list[dict[str, Any]]:
        """One row a cell."""
        return [
            {
                "cell": result.place,
                "ratio": result.ratio.value,
                "low": result.ratio.low,
                "high": result.ratio.high,
                "verdict": result.verdict,
            }
            for result in self.record.results
        ]

    def to_frame(self) -> Any:
        """The same rows as a pandas DataFrame."""
        return data_frame(self.rows(), ["cell", "ratio", "low", "high", "verdict"])


class GenerationResult(_Sweep[GenerationSweep]):
    """How fast a language model generated tokens: one cell or many."""

    def __repr__(self) -> str:
        return f"<GenerationResult of {self.record.model.source}: {len(self)} cells, {self.status}>"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a reader of the numbers must know, of all cells, as data."""
        return tuple(
            generation_finding
            for outcome in self.record.outcomes
            for generation_finding in generation_findings(self.record.model, outcome)
        )

    def rows(self) -> list[dict[str, Any]]:
        """One object a cell, as in a JSON file."""
        found: list[dict[str, Any]] = self.to_dict()["results"]
        return found

    def plot(self, x: str | None = None, y: str | None = None) -> Figure:
        """A Plotly figure: TPOT by depth, TTFT by prompt length, latency over throughput, or the tokens of a cell.

        Without axes it is the first of these that varies; `x` and `y` are as of `inferlab plot`.
        """
        return sweeps.generation_chart(points_of(self.record), self.record.outcomes, x, y)


class GenerationComparisonResult(_Compared[GenerationComparison]):
    """Whether B generates faster than A, how sure that is, and whether their tokens are the same."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a reader of the numbers must know, of A and then of B, as data."""
        return tuple(one for arm in self.record.findings for one in arm)


class _OfCapacity(RecordResult[K]):
    """A highest rate of requests."""

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


class _Recommended(RecordResult[D]):
    """The options to take."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.record.model.source}: {self.recommended}>"

    @property
    def recommended(self) -> dict[str, Any] | None:
        """The options (engine, cores, streams, batch size); None where nothing meets the objective."""
        found: dict[str, Any] | None = self.to_dict()["recommended"]
        return found


class GenerationCapacityResult(_Charted[GenerationCapacity], _OfCapacity[GenerationCapacity]):
    """The highest rate of requests of which enough meet an objective."""

    def __repr__(self) -> str:
        slo = ",".join(limit.text for limit in self.record.slo)
        source = self.record.model.source
        return f"<GenerationCapacityResult of {source}: {self.max_rate:.4g} requests/s with {slo}>"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a reader of the numbers must know, as data."""
        return self.record.findings

    def plot(self) -> Figure:
        """A Plotly figure: the time to the first token over the rate of requests."""
        return sweeps.generation_chart(points_of_capacity(self.record), (), "rate", "ttft_ms")


class GenerationRecommendationResult(_Recommended[GenerationRecommendation]):
    """The engine, cores and batch size that generate most tokens per second, and the evidence for them."""

    def rows(self) -> list[dict[str, Any]]:
        """One row a configuration that was tried."""
        found: list[dict[str, Any]] = self.to_dict()["results"]
        return found

    def plot(self, x: str | None = None, y: str | None = None) -> Figure:
        """A Plotly figure of all configurations that were tried, as of a generation."""
        return GenerationResult(self.record.sweep).plot(x, y)


class RecommendationResult(_Recommended[Recommendation]):
    """The best configuration of a model on this machine, and the evidence for it."""

    @property
    def code(self) -> str:
        """A program that runs the model so; empty where nothing is recommended."""
        return self.to_dict()["code"] or ""

    def rows(self) -> list[dict[str, Any]]:
        """One row a configuration that was tried, the recommended one first."""
        found: list[dict[str, Any]] = self.to_dict()["candidates"]
        return found


class CapacityResult(_OfCapacity[Capacity]):
    """The highest rate of requests at which a model meets a latency objective."""

    def __repr__(self) -> str:
        objective = self.record.objective.text
        return f"<CapacityResult of {self.record.model.source}: {self.max_rate:.4g} requests/s with {objective}>"


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
        return render_doctor.content(self.facts)

    def to_json(self) -> str:
        """The same text that the command line writes with -x."""
        return results.dumps(self.to_dict())

    def save(self, path: StrPath) -> None:
        """Write it to a file: .json has all of it, .csv the facts, .md and .html what is printed."""
        target = checked_path(path, results.ENDINGS)
        results.write(target, render_doctor.render(self.facts, target.suffix.lower()))

    def _repr_html_(self) -> str:
        return tables.notebook(render_doctor.blocks(self.facts))

    def __repr__(self) -> str:
        return f"<DoctorResult: {self.verdict}>"

    @property
    def fit(self) -> bool:
        """Whether nothing that could be read disturbs measurements here."""
        return not any(fact.state == "warn" for fact in self.facts)

    @property
    def verdict(self) -> str:
        """All facts in one line."""
        return render_doctor.verdict(self.facts)

    def rows(self) -> list[dict[str, Any]]:
        """One row a fact, with its sentence."""
        found: list[dict[str, Any]] = self.to_dict()["facts"]
        return found


def _outputs(outcome: Outcome) -> bool | None:
    if not outcome.runs:
        return None
    return {"match": True, "mismatch": False}.get(worst([run.check for run in outcome.runs]).status)


def data_frame(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> Any:
    """Rows as a pandas DataFrame."""
    try:
        import pandas
    except ImportError:
        raise BadInput("to_frame() needs pandas. Install it: pip install pandas; or take .rows().") from None
    return pandas.DataFrame(rows, columns=columns)


def checked_path(path: StrPath, endings: Sequence[str]) -> Path:
    """Where a result is to be saved, if it ends in one of these and can be written."""
    target = Path(path)
    if target.suffix.lower() not in endings:
        known = " or ".join(filter(None, (", ".join(endings[:-1]), endings[-1])))
        raise BadInput(f"A result is saved as {known}, by the ending of its name, which {path} does not have.")
    results.check_writable(target)
    return target
