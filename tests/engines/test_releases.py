"""A real release of an engine, older than the one beside inferlab."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferlab import Lab, Plan
from inferlab.engines import environments
from tests.helpers.onnx_files import save_linear


def test_an_old_release_that_needs_numpy_1_runs_beside_ours(
    tmp_path: Path, kept_cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERLAB_CACHE", kept_cache)
    environments.install("onnxruntime==1.17.3")
    model = save_linear(tmp_path / "linear.onnx", 1)
    plan = Plan(
        str(model),
        ("onnxruntime==1.17.3", "onnxruntime"),
        ("sync",),
        num_cores=(1,),
        time_s=0.2,
        warmup_s=0.05,
        processes=1,
    )
    old, ours = Lab().benchmark(plan).outcomes
    assert (old.cell.engine, old.runs[0].versions["onnxruntime"]) == ("onnxruntime==1.17.3", "1.17.3")
    assert [outcome.runs[0].check.status for outcome in (old, ours)] == ["match", "match"]
    assert ours.runs[0].versions["onnxruntime"] != "1.17.3"
