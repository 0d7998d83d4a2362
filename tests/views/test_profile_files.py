"""Profiles as files: read again as they were, or refused with a sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inferlab.errors import BadInput
from inferlab.records import Finding, OutputCheck
from inferlab.store.formats import PROFILES, content_of, record_of
from inferlab.views import results
from inferlab.views.results import render
from tests.helpers.profiles import a_performance_profile, a_profile
from tests.helpers.stored import a_document

PROFILE = a_profile()


def test_what_is_written_is_read_again() -> None:
    assert PROFILES.from_content(json.loads(render(PROFILE, ".json")), "p.json") == PROFILE


def change(*path: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    def changed(content: Any) -> None:
        *way, last = path
        for step in way:
            content = content[step]
        content[last] = to

    return changed


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda content: content.pop("model"), "damaged: a Profile lacks its model"),
        (lambda content: content["performance"]["layers"][3].pop("ms"), "damaged: a Layer lacks its ms"),
        (
            change("format", to="inferlab-profile/9"),
            "is not a profile that this version reads (inferlab-profile/9)",
        ),
        (change("performance", "ms_per_batch", to=0), "a time, a batch size or a ceiling is not more than 0"),
        (change("performance", "processes_ms", to=[]), "a time, a batch size or a ceiling is not more than 0"),
        (
            change("performance", "layers", 0, "pruned", to={"most": 1.0}),
            "could not convert string to float: 'most'",
        ),
        (change("performance", "pruned", to={"9": 1.0}), "9 is not a sparsity level"),
        (change("loss", "method", to="by heart"), "its losses are of an unknown kind, by heart in relative power"),
    ],
)
def test_a_damaged_profile_is_refused(
    damage: Callable[[dict[str, Any]], Any], sentence: str, tmp_path: Path
) -> None:
    content = content_of(PROFILE)
    damage(content)
    file = tmp_path / "p.json"
    file.write_text(json.dumps(content))
    with pytest.raises(BadInput) as caught:
        PROFILES.load(str(file))
    assert sentence in str(caught.value)
    with pytest.raises(BadInput) as caught:
        record_of(a_document("profile", content))
    assert sentence in str(caught.value) or "does not read: inferlab-profile/9" in str(caught.value)


@pytest.mark.parametrize("content", ["[1, 2]", "no JSON", ""])
def test_what_is_no_profile_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(content)
    with pytest.raises(BadInput, match="Make one with: inferlab profile MODEL -x"):
        PROFILES.load(str(file))


def test_an_output_check_by_a_metric_of_another_version_is_shown() -> None:
    check = replace(OutputCheck("match", 0.5, "max", 1e-3, "a reference", ""), metric="median")  # type: ignore[arg-type]
    profile = replace(PROFILE, performance=a_performance_profile(output_check=check))
    assert "Output check: match (error, median 0.5, tolerance 0.001, against a reference)" in results.lines(
        profile
    )


def test_an_infinite_error_and_findings_of_another_version_are_told_after_a_file_too() -> None:
    wrong = OutputCheck("mismatch", math.inf, "max", 1e-3, "a reference", "y")
    found = (
        Finding("output-mismatch", {"error": math.inf, "output": "y"}),
        Finding("of-tomorrow", {"share": 0.25}),
    )
    profile = replace(PROFILE, performance=a_performance_profile(output_check=wrong, findings=found))
    again = PROFILES.from_content(json.loads(render(profile, ".json")), "p.json")
    lines = results.lines(again)
    assert "Output check: WRONG (output 'y': largest error inf, tolerance 0.001, against a reference)" in lines
    assert "Note: this version has no text for of-tomorrow: share 0.25." in lines
    assert any(line.startswith("Note: the outputs are WRONG (error inf in 'y')") for line in lines)


def test_layers_that_were_left_out_are_counted() -> None:
    assert PROFILE.loss is not None
    left_out = {f"layer{number}": "no time" for number in range(7)}
    lines = results.lines(replace(PROFILE, loss=replace(PROFILE.loss, left_out=left_out)))
    assert "Note: layer4 was left out: no time." in lines and "Note: 2 more layers left out." in lines
