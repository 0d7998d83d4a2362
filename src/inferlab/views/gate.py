"""What a gate tells a pipeline: Markdown for a pull request, and JUnit XML."""

from __future__ import annotations

import statistics
import xml.etree.ElementTree as ET
from collections.abc import Collection

from inferlab.records.comparison import Comparison, ComparisonSweep
from inferlab.units import decimal, one_line, share
from inferlab.views import results, tables
from inferlab.views.comparison import said
from inferlab.views.intervals import between_at, rounded

_HEADS = ("Cell", "Baseline (ms per item)", "Candidate (ms per item)", "Time", "Interval", "Verdict")
_SIGNS = {"slower": "❌", "faster": "✅", "same": "✅", "inconclusive": "❔"}


def summary(sweep: ComparisonSweep, model: str) -> str:
    """A table of verdicts, with all that was found behind a fold."""
    rows = [list(_HEADS)]
    for result in sweep.results:
        a, b = (decimal(statistics.median(times)) for times in result.times_ms)
        ends = result.ratio.ends
        interval = between_at(ends, result.ratio.level) if ends else "none"
        ratio = rounded(result.ratio.value, ends)
        rows.append([_cell(result), a, b, f"× {ratio}", interval, f"{_SIGNS[result.verdict]} {result.verdict}"])
    margin = (
        f"within {share(sweep.results[0].margin)} both are the same" if sweep.results else "nothing was measured"
    )
    failures = [
        f"- {_place(failure.num_cores, failure.batch_size)}: {failure.message}" for failure in sweep.failures
    ]
    table = tables.markdown_rows(rows, left=(0, len(_HEADS) - 1))
    detail = results.render(sweep, ".md").replace("## ", "### ", 1)
    lines = [
        f"## inferlab: {one_line(model)}",
        "",
        *table,
        "",
        f"Below × 1 the candidate takes less time; {margin}.",
        *failures,
        "",
        "<details><summary>How it was measured, and what disturbed it</summary>",
        "",
        detail,
        "</details>",
    ]
    return "\n".join(lines) + "\n"


def junit(sweep: ComparisonSweep, model: str, fails: Collection[str]) -> str:
    """One test a comparison: failed where its verdict is among `fails`; what was not measured is an error."""
    suite = ET.Element("testsuite", name=f"inferlab: {model}")
    failed = 0
    for result in sweep.results:
        case = ET.SubElement(suite, "testcase", name=_cell(result), classname=model, time=f"{result.seconds:.1f}")
        told = f"B is {result.verdict} ({said(result)}). A: {result.labels[0]}. B: {result.labels[1]}."
        if result.verdict in fails:
            failed += 1
            ET.SubElement(case, "failure", message=told)
        else:
            ET.SubElement(case, "system-out").text = told
    for failure in sweep.failures:
        place = _place(failure.num_cores, failure.batch_size)
        case = ET.SubElement(suite, "testcase", name=place, classname=model)
        ET.SubElement(case, "error", message=failure.message)
    suite.attrib |= {
        "tests": str(len(suite)),
        "failures": str(failed),
        "errors": str(len(sweep.failures)),
        "time": f"{sum(result.seconds for result in sweep.results):.1f}",
    }
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _cell(one: Comparison) -> str:
    if one.cells is None:
        return one.place or "the only cell"
    before, cell = one.cells
    engine = cell.engine if before.engine == cell.engine else f"{before.engine} → {cell.engine}"
    return f"{engine}, {cell.scenario}, {_place(cell.num_cores, cell.batch_size)}"


def _place(num_cores: int | None, batch_size: int | None) -> str:
    return f"cores {num_cores or 'all'}, batch {batch_size or 'as in the model'}"
