"""What is told of a search for the first bad release."""

from __future__ import annotations

from inferlab.records import Estimate
from inferlab.records.series import Bisection, BisectionStep
from inferlab.views import tables
from inferlab.views.trend import bisection_blocks


def test_a_release_that_may_be_on_either_side_and_one_that_could_not_be_tried_are_named() -> None:
    worse, doubtful = Estimate(1.2, 1.1, 1.3, 0.98, "moderated"), Estimate(1.11, 1.0, 1.2, 0.98, "moderated")
    found = Bisection(
        "model.onnx",
        "onnxruntime",
        "memory",
        0.03,
        ("1.0", "1.1", "1.2", "1.3"),
        (
            BisectionStep("1.3", "bad", worse),
            BisectionStep("1.1", "skipped", None, "it cannot run the model"),
            BisectionStep("1.2", "bad", doubtful, sure=False),
        ),
        "1.0",
        "1.2",
        ("1.1",),
    )
    assert tables.text(bisection_blocks(found))[:5] == [
        "First bad release: onnxruntime==1.2 (it takes 1.11 of the peak memory of 1.0, 98% interval 1.00 to 1.20)",
        "Last good release: onnxruntime==1.0",
        "Compared: 2 releases with onnxruntime==1.0, of 3 after it; margin 3 %",
        "Note: it is not sure which side 1.2 belongs to, so that the change may lie in a release nearby. Give "
        "more time with -t.",
        "Note: these could not be compared, and any of them may be the first: 1.1.",
    ]
