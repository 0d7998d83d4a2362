"""An engine that answers prompts from a cache is found, also where the prompts that were measured come again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from inferlab.lab import Lab
from inferlab.measure.generation.stats import generation_findings
from inferlab.records import Finding
from inferlab.records.generation import GenerationPlan, TokenLimit
from inferlab.views.text import finding

CACHED = ("prefix_cache", "1")
#: It sleeps, so that a busy machine does not matter.
SLOW = ("latency_us", "2000")


@pytest.fixture
def plan(tmp_path: Path) -> GenerationPlan:
    """One prompt of 16 tokens, which comes again and again."""
    file = tmp_path / "prompts.jsonl"
    file.write_text(json.dumps({"token_ids": list(range(16))}))
    return GenerationPlan(
        *("demo:llama_tiny", ("fake",)),
        new_tokens=(4,),
        num_cores=(1,),
        engine_options=(SLOW,),
        time_s=0.2,
        processes=1,
        verify=False,
        prompts_file=str(file),
    )


def cached(findings: tuple[Finding, ...]) -> list[Finding]:
    return [one for one in findings if one.code == "prefix-cached"]


def test_prompts_that_come_again_are_not_what_a_cached_one_is_compared_with(plan: GenerationPlan) -> None:
    sweep = Lab().generate(replace(plan, engine_options=(SLOW, CACHED)))
    (outcome,) = sweep.outcomes
    (run,) = outcome.runs
    # The process had computed the only prompt before it was measured.
    assert all(sequence.token_ns[0] < 16e6 for each in run.repetitions for sequence in each.sequences)
    assert run.unseen_ttft_ns is not None and run.unseen_ttft_ns >= 32e6
    assert run.repeated_ttft_ns is not None and run.repeated_ttft_ns < 16e6
    (found,) = cached(generation_findings(sweep.model, outcome))
    assert found.data == {"share": run.repeated_ttft_ns / run.unseen_ttft_ns, "own_prompts": True}
    assert "Times of your own prompts that came more than once are not those of computing them" in finding(found)
    (computed,) = Lab().generate(plan).outcomes
    assert cached(generation_findings(sweep.model, computed)) == []


def test_an_arm_of_a_comparison_that_caches_prefixes_is_named(plan: GenerationPlan) -> None:
    b = replace(plan, engine_options=(SLOW, CACHED))
    of_a, of_b = Lab().compare_generations(plan, b, "ttft", 1.0).findings
    assert cached(of_a) == []
    (found,) = cached(of_b)
    assert found.data["share"] < 0.5


@pytest.mark.parametrize("options", [(SLOW,), (SLOW, CACHED)])
def test_a_capacity_of_an_engine_that_caches_prefixes_says_so(
    plan: GenerationPlan, options: tuple[tuple[str, str], ...]
) -> None:
    served = replace(
        plan,
        scenario="server",
        slo=(TokenLimit("ttft", 2.0, "ttft<2s"),),
        engine_options=options,
        time_s=2.0,
        processes=None,
    )
    found = Lab().generation_capacity(served, 0.8)
    assert len(cached(found.findings)) == (CACHED in options)
