"""Generation: cells of a plan, what follows from runs, and how tokens are compared; exact numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inferlab import machine
from inferlab.errors import BadInput
from inferlab.measure.generation.cells import generation_cells, needed_bytes
from inferlab.measure.generation.prompts import random_tokens
from inferlab.measure.generation.reference import (
    GenerationJob,
    Reference,
    Score,
    agreement_of,
    compare_tokens,
    dequantized,
    kl_divergence,
    reference_for,
)
from inferlab.measure.generation.stats import generation_findings, summarize_generation, worst_agreement
from inferlab.model.generative import read_generative
from inferlab.records import Finding, ignore
from inferlab.records.generation import (
    Agreement,
    GenerationCell,
    GenerationOutcome,
    GenerationPlan,
    GenerativeModel,
)
from tests.helpers.generations import run, sequence

PLAN = GenerationPlan("demo:llama_tiny", engines=("fake",), num_cores=(1,))


@pytest.fixture(scope="module")
def model() -> GenerativeModel:
    return read_generative("demo:llama_tiny")


@pytest.fixture(scope="module")
def cell(model: GenerativeModel) -> GenerationCell:
    (found,) = generation_cells(replace(PLAN, prompt_tokens=(10,), new_tokens=(3,)), model)
    return found


def test_a_plan_is_the_product_of_its_lists_each_cell_once(model: GenerativeModel) -> None:
    plan = replace(PLAN, engines=("fake", "fake"), prompt_tokens=(8, 16), depths=(0, 32), batch_sizes=(1, 2))
    cells = generation_cells(plan, model)
    assert [(one.prompt_tokens, one.depth, one.batch_size) for one in cells] == [
        (prompt, depth, batch) for prompt in (8, 16) for depth in (0, 32) for batch in (1, 2)
    ]
    assert len({one.id for one in cells}) == 8


def test_what_does_not_fit_into_the_context_or_the_memory_is_refused_before_loading(
    model: GenerativeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInput) as refused:
        generation_cells(replace(PLAN, prompt_tokens=(1000,), new_tokens=(49,), depths=(0, 1000)), model)
    assert str(refused.value) == (
        "A depth of 1000, a prompt of 1000 and 49 new tokens are 2049 tokens; the context of demo:llama_tiny has "
        "2048. Give fewer."
    )
    monkeypatch.setattr(machine, "available_memory_bytes", lambda: 400_000_000)
    with pytest.raises(BadInput) as refused:
        generation_cells(PLAN, model)
    assert str(refused.value) == (
        "demo:llama_tiny on fake would need about 477 MiB of memory for its weights and 192 tokens; 381 MiB are "
        "available. Give fewer tokens or sequences."
    )


def test_torch_needs_memory_for_the_weights_in_32_bits(cell: GenerationCell, model: GenerativeModel) -> None:
    packed = replace(model, size_bytes=1000, parameters=10_000)
    assert needed_bytes(cell, packed) == 1000 + 13 * 256
    assert needed_bytes(replace(cell, engine="torch"), packed) == 40_000 + 13 * 512


@pytest.mark.parametrize(("told", "expected"), [("fp32", 40_000), ("bf16", 20_000), ("auto", 20_500)])
def test_torch_needs_memory_for_the_type_that_it_is_told(
    cell: GenerationCell, model: GenerativeModel, told: str, expected: int
) -> None:
    folder = replace(model, kind="transformers", precision="BF16", size_bytes=20_500, parameters=10_000)
    on_torch = replace(cell, engine="torch", engine_options=(("dtype", told),))
    assert needed_bytes(on_torch, folder) == expected + 13 * 512


def test_a_reference_and_unpacked_weights_that_the_memory_has_no_room_for_are_not_begun(
    cell: GenerationCell, model: GenerativeModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(machine, "available_memory_bytes", lambda: 8_000_000_000)
    large = replace(model, parameters=2_000_000_000, digest="large", path=str(tmp_path / "none.gguf"))
    job = GenerationJob(cell, large, 1.0)
    found = reference_for(job, ignore)
    assert found.checks == ()
    assert found.reason == "the reference would need about 7.92 GiB of memory; 7.45 GiB are available"
    with pytest.raises(BadInput, match=r"unpacked to 32 bits would need about 7\.92 GiB of memory"):
        dequantized(job, ignore).__enter__()
    assert not (tmp_path / "converted").exists()


def test_more_sequences_than_llamacpp_computes_at_once_are_refused_before_loading(model: GenerativeModel) -> None:
    pytest.importorskip("xllamacpp")
    plan = replace(PLAN, engines=("llamacpp",), batch_sizes=(256, 4000), prompt_tokens=(8,), new_tokens=(1,))
    with pytest.raises(BadInput, match=r"Engine 'llamacpp' computes 256 sequences at once at most, not 4000\."):
        generation_cells(plan, model)


def test_prompts_are_new_for_each_repetition_and_the_same_for_every_engine(cell: GenerationCell) -> None:
    first = random_tokens(cell, 256, 2, 0, 0, length=10)
    assert first.shape == (1, 10) and first.min() >= 0 and first.max() < 256
    other_engine = replace(cell, engine="torch", num_cores=2)
    assert np.array_equal(first, random_tokens(other_engine, 256, 2, 0, 0, length=10))
    for changed in (random_tokens(cell, 256, 2, 0, 1, length=10), random_tokens(cell, 256, 2, 1, 0, length=10)):
        assert not np.array_equal(first, changed)


def test_numbers_follow_their_definitions() -> None:
    # Two sequences in a batch: first tokens after 10 ms, then gaps of 2 and 4 ms.
    batch = (sequence(10, 12, 16), sequence(10, 12, 16))
    summary = summarize_generation([run(batch), run(batch)])
    assert summary is not None
    assert summary.ttft_ms.value == pytest.approx(10.0)
    assert summary.prefill_tokens_per_s is not None and summary.prefill_tokens_per_s.value == pytest.approx(
        20 / 0.010
    )
    assert summary.tpot_ms is not None and summary.tpot_ms.value == pytest.approx(3.0)
    assert summary.decode_tokens_per_s is not None and summary.decode_tokens_per_s.value == pytest.approx(
        4 / 0.006
    )
    assert summary.output_tokens_per_s.value == pytest.approx(6 / 0.016)
    assert summary.end_to_end_ms.value == pytest.approx(16.0)
    assert summary.cpu_s_per_token is not None and summary.cpu_s_per_token.value == pytest.approx(0.004 / 4)
    assert summary.itl_percentiles_ms[50.0] == pytest.approx(3.0)
    assert summary.itl_percentiles_ms[99.0] is None  # eight gaps carry none
    assert summary.sequences == 4


def test_one_token_has_no_time_per_output_token_and_one_process_no_interval() -> None:
    summary = summarize_generation([run((sequence(10),))])
    assert summary is not None
    assert (summary.tpot_ms, summary.decode_tokens_per_s, summary.cpu_s_per_token) == (None, None, None)
    assert summary.ttft_ms.ends is None
    assert summarize_generation([]) is None


def test_tokens_are_compared_in_every_sequence_and_close_choices_are_told_apart() -> None:
    expected = {
        "greedy": np.array([5, 6, 7, 8]),
        "drawn": np.array([9, 9, 9, 9]),
        "likely": np.array([5, 2, 3, 4]),
        "margins": np.array([1.0, 0.05, 1.0, 1.0]),
    }
    free = np.array([[5, 6, 7, 8], [5, 6, 1, 8]])
    chosen = np.array([[5, 1, 3, 4], [5, 2, 3, 1]])
    assert compare_tokens(free, {"token_ids": chosen}, expected) == Score(6, 1, 8, 2, 4)
    assert compare_tokens(free[:1], {"token_ids": expected["likely"][None]}, expected) == Score(4, 0, 4, 4, 4)


def test_probabilities_are_compared_by_what_is_likely_and_all_others_together() -> None:
    reference = np.log([[0.5, 0.25], [0.5, 0.5]])
    assert kl_divergence(reference, reference) == pytest.approx(0.0, abs=1e-9)
    # 0.5 ln 2 + 0.25 ln 1 + 0.25 ln 0.5 at the first position, nothing at the second, in each of two sequences.
    engine = np.log([[[0.25, 0.25], [0.5, 0.5]]] * 2)
    assert kl_divergence(reference, engine) == pytest.approx(0.25 * math.log(2) / 2)
    assert kl_divergence(reference, np.full((1, 2, 2), np.nan)) is None
    scores = [Score(4, 0, 4, 4, 4, 0.25), Score(4, 0, 4, 4, 4, 0.75)]
    assert agreement_of(Reference("torch", ({}, {})), scores).kl_divergence == 0.5
    untold = [scores[0], Score(4, 0, 4, 4, 4)]
    assert agreement_of(Reference("torch", ({}, {})), untold).kl_divergence is None


def test_less_than_nine_tenths_of_the_tokens_are_wrong() -> None:
    reference = Reference("torch", ({}, {}))
    good = agreement_of(reference, [Score(28, 1, 32, 20, 32), Score(29, 0, 32, 32, 32)])
    assert good == Agreement("match", "torch", 57, 1, 64, 20, 32)
    assert good.top1 == 57 / 64
    # As OpenVINO does it that misreads a quantised file.
    assert agreement_of(reference, [Score(21, 0, 32, 3, 32)]).status == "mismatch"
    assert agreement_of(Reference("", reason="why"), []) == Agreement("unchecked", detail="why")


def test_wrong_short_and_cached_generations_are_found(cell: GenerationCell, model: GenerativeModel) -> None:
    wrong = Agreement("mismatch", "torch", 21, 2, 32, 3, 32)
    runs = (
        run((sequence(10, 12, 16),), repeated_ms=1.0, agreement=wrong),
        run((sequence(10, 12, finish="stop"),), repeated_ms=2.0),
    )
    assert worst_agreement(runs) == wrong
    assert generation_findings(model, GenerationOutcome(cell, "done", runs)) == (
        Finding("tokens-disagree", {"agreeing": 21, "ties": 2, "positions": 32, "prefix": 3, "prefix_of": 32}),
        Finding("ended-early", {"emitted": 2, "new_tokens": 3, "ended": 1, "sequences": 2}),
        Finding("prefix-cached", {"share": pytest.approx(0.15)}),
    )
    good = (run((sequence(10, 12, 16),)), run((sequence(10, 12, 16),)))
    assert generation_findings(model, GenerationOutcome(cell, "done", good)) == ()


def test_a_prompt_that_came_again_is_compared_with_one_that_nothing_had_seen(
    cell: GenerationCell, model: GenerativeModel
) -> None:
    # All that was measured came from the cache.
    measured = replace(run((sequence(1, 3, 5),), repeated_ms=1.0), unseen_ttft_ns=10_000_000)
    outcome = GenerationOutcome(cell, "done", (measured, measured))
    assert generation_findings(model, outcome) == (Finding("prefix-cached", {"share": 0.1}),)
    own = replace(outcome, cell=replace(cell, prompts_digest="own"))
    assert generation_findings(model, own) == (Finding("prefix-cached", {"share": 0.1, "own_prompts": True}),)


def test_weights_that_torch_unpacks_are_not_silently_ranked_with_others(
    cell: GenerationCell, model: GenerativeModel
) -> None:
    packed = replace(model, precision="Q4_1")
    outcome = GenerationOutcome(replace(cell, engine="torch"), "done", (run((sequence(1, 2),)),) * 2)
    assert generation_findings(packed, outcome) == (
        Finding("dequantized", {"engine": "torch", "precision": "Q4_1", "weights": "fp32"}),
    )
    assert generation_findings(packed, replace(outcome, cell=cell)) == ()
