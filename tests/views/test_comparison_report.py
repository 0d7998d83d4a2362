"""The report of comparisons: every core count and batch size, and what must not be missed."""

from __future__ import annotations

import json
import re
from typing import Any

from inferlab.records import Comparison, ComparisonFailure, ComparisonSweep, Estimate, Spread, SpreadPrior
from inferlab.views.comparison import report, spread_text
from tests.helpers.runs import a_cell
from tests.helpers.sweeps import a_comparison


def at(num_cores: int, **changed: Any) -> Comparison:
    """A comparison at a core count."""
    return a_comparison(
        1.25, 1.5, 1.75, cells=(a_cell(num_cores=num_cores), a_cell(num_cores=num_cores)), **changed
    )


def words(page: str) -> str:
    """What the page says without its scripts and tags."""
    body = page.partition("<body>")[2].partition("<noscript>")[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_every_place_has_its_verdict_and_its_chart() -> None:
    near = Estimate(1.001, 0.995, 1.005, 0.98, "signed-rank")
    page = report("net: a / b", ComparisonSweep((at(1), at(2, verdict="same", ratio=near))))
    assert re.findall(r">(slower|same)<", page.partition("<tbody>")[2]) == ["slower", "same"]
    assert "0.9950 to 1.0050" in words(page)
    assert re.findall(r"<option[^>]*>(.*?)</option>", page) == ["1 core, batch 1", "2 cores, batch 1"]
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert list(data["charts"]["ratios"]) == ["1", "2"]


def test_the_spread_says_what_was_found_and_what_was_expected() -> None:
    assert spread_text(Spread(0.008, 0.03, 16.0, SpreadPrior(0.0125, comparisons=7))) == (
        "pairs differ by 0.8 %, the 16 double turns of a pair by 3 % (standard deviations); "
        "expected of pairs: 1.25 %, from 7 comparisons on this machine"
    )
    assert spread_text(Spread(0.0, 0.03, 7.5, SpreadPrior(0.02))) == (
        "pairs differ no more than their turns explain, the 7.5 double turns of a pair by 3 % "
        "(standard deviations); expected of pairs: 2 %, by default"
    )


def test_other_outputs_and_failures_cannot_be_missed() -> None:
    failure = ComparisonFailure(4, 1, "Engine 'b' died.")
    page = report("net: a / b", ComparisonSweep((at(1, outputs_match=False, output_error=3.5),), (failure,)))
    boxes = re.findall(r'<div class="box wrong".*?</div>', page)
    assert "1 core, batch 1: The outputs of A and B DIFFER (largest error 3.5)" in boxes[0]
    assert "4 cores, batch 1: Failed: Engine &#39;b&#39; died." in boxes[1]
    assert "DIFFER" in page.partition("<tbody>")[2].partition("</tbody>")[0]


def test_where_everything_failed_the_causes_are_told() -> None:
    page = report("<b>net</b>", ComparisonSweep((), (ComparisonFailure(1, 8, "It is not there."),)))
    assert "1 core, batch 8: Failed: It is not there." in words(page)
    assert "<h1>&lt;b&gt;net&lt;/b&gt;</h1>" in page
