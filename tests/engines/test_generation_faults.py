"""Faults that others' numbers are known for, planted in llama.cpp as it runs here: each of them is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from inferlab.lab import Lab
from inferlab.measure.generation.stats import generation_findings
from inferlab.records import Finding
from inferlab.records.generation import GenerationOutcome, GenerationPlan
from tests.helpers.real_models import one

pytest.importorskip("xllamacpp")

ENGINES = '''
import os
import tempfile

import numpy

from inferlab_child.engines.llamacpp import LlamaCpp


class PrefixCached(LlamaCpp):
    """Keeps what the last prompt left, and computes only its last token if it comes again."""

    last = None

    def rewind(self, depth):
        self.depth = depth
        return True

    def prefill(self, prompts):
        known = self.last is not None and numpy.array_equal(self.last, prompts)
        super().rewind(self.depth + prompts.shape[1] - 1 if known else self.depth)
        self.last = prompts.copy()
        return super().prefill(prompts[:, -1:] if known else prompts)


class EndsEarly(LlamaCpp):
    """Ends each sequence after three tokens."""

    def prefill(self, prompts):
        self.emitted = 1
        return super().prefill(prompts)

    def step(self, tokens):
        self.emitted += 1
        chosen = super().step(numpy.abs(tokens))
        return chosen if self.emitted <= 3 else numpy.full_like(chosen, -1)


class Misread(LlamaCpp):
    """Rounds the offsets of a quantisation: here, all weights to multiples of a quarter."""

    def load(self, model, options):
        content = numpy.fromfile(model, numpy.uint8)
        weights = content[-WEIGHT_BYTES:].view(numpy.float32)
        weights[:] = numpy.round(weights * 4) / 4
        copy = os.path.join(tempfile.mkdtemp(), "misread.gguf")
        content.tofile(copy)
        return super().load(copy, options)


class CopiesFirst(LlamaCpp):
    """Says of every sequence of a batch what it chose for the first."""

    def prefill(self, prompts):
        return numpy.repeat(super().prefill(prompts)[:1], len(prompts))

    def step(self, tokens):
        return numpy.repeat(super().step(tokens)[:1], len(tokens))


class CountsMore(LlamaCpp):
    """Computes the first sequence of a batch alone, and hands over its token for all."""

    def decode(self, tokens):
        return super().decode(tokens[:1])
'''
WEIGHT_BYTES = 427264
PLAN = GenerationPlan(
    "demo:llama_tiny", prompt_tokens=(12,), new_tokens=(8,), num_cores=(1,), time_s=0.01, processes=1
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("engines") / "faulty.py"
    path.write_text(ENGINES.replace("WEIGHT_BYTES", str(WEIGHT_BYTES)))
    return path


def measured(plan: GenerationPlan) -> tuple[GenerationOutcome, dict[str, Finding]]:
    sweep = Lab().generate(plan)
    (outcome,) = sweep.outcomes
    return outcome, {finding.code: finding for finding in generation_findings(sweep.model, outcome)}


def test_a_repeated_prompt_with_prefix_caching_on_is_found(file: Path) -> None:
    plan = replace(PLAN, engines=(f"{file}:PrefixCached",), model="demo:llama", prompt_tokens=(512,), verify=False)
    outcome, findings = measured(plan)
    assert outcome.failure is None
    assert findings["prefix-cached"].data["share"] < 0.5


def test_the_same_engine_without_prefix_caching_is_not_suspected() -> None:
    plan = replace(PLAN, engines=("llamacpp",), model="demo:llama", prompt_tokens=(512,), verify=False)
    assert "prefix-cached" not in measured(plan)[1]


def test_a_sequence_that_ends_early_is_found_and_counted_as_long_as_it_is(file: Path) -> None:
    outcome, findings = measured(replace(PLAN, engines=(f"{file}:EndsEarly",), verify=False))
    sequences = [
        sequence for run in outcome.runs for repetition in run.repetitions for sequence in repetition.sequences
    ]
    assert {len(sequence.token_ids) for sequence in sequences} == {3}
    count = len(sequences)
    assert findings["ended-early"] == Finding(
        "ended-early", {"emitted": 3, "new_tokens": 8, "ended": count, "sequences": count}
    )


def test_weights_that_are_misread_are_found(file: Path) -> None:
    pytest.importorskip("transformers")
    outcome, findings = measured(replace(PLAN, engines=(f"{file}:Misread",)))
    agreement = outcome.runs[0].agreement
    assert (agreement.status, agreement.positions) == ("mismatch", 64)
    assert findings["tokens-disagree"].data["agreeing"] == agreement.agreeing < 0.9 * 64


def test_a_batch_whose_sequences_are_copies_of_the_first_is_found(file: Path) -> None:
    pytest.importorskip("transformers")
    outcome, findings = measured(replace(PLAN, engines=(f"{file}:CopiesFirst",), batch_sizes=(2,)))
    agreement = outcome.runs[0].agreement
    # The half that was computed is right.
    assert (agreement.status, agreement.positions) == ("mismatch", 128)
    assert 64 <= findings["tokens-disagree"].data["agreeing"] < 0.9 * 128


def test_a_batch_of_which_only_one_sequence_is_computed_is_refused(file: Path) -> None:
    plan = replace(PLAN, engines=(f"{file}:CountsMore",), batch_sizes=(2,), verify=False)
    outcome, _ = measured(plan)
    assert outcome.failure is not None and outcome.failure.message.endswith(
        "generated tokens of shape [1, 8] where [2, 8] were asked for."
    )


def test_a_dispatcher_that_sleeps_while_requests_wait_is_found() -> None:
    plan = replace(
        PLAN,
        engines=("fake",),
        scenario="server",
        rates=(50.0,),
        time_s=1.0,
        verify=False,
        engine_options=(("latency_us", "10"), ("holds_lock_ms", "40")),
    )
    outcome, findings = measured(plan)
    assert outcome.failure is None
    assert findings["late-dispatch"].data["share"] > 0.05


def test_openvino_that_misreads_a_quantised_file_is_found_and_llamacpp_is_not() -> None:
    pytest.importorskip("openvino_genai")
    pytest.importorskip("transformers")
    plan = replace(PLAN, model=str(one("smollm2", ".gguf")), engines=("llamacpp", "openvino-genai"))
    sweep = Lab().generate(plan)
    agreements = {outcome.cell.engine: outcome.runs[0].agreement for outcome in sweep.outcomes}
    assert agreements["llamacpp"].status == "match"
    assert agreements["openvino-genai"].status == "mismatch"
    cache = next(outcome.runs[0].cache for outcome in sweep.outcomes if outcome.cell.engine == "llamacpp")
    assert cache.formula_bytes == 30 * 3 * 64 * 2 * 2
    assert cache.engine_bytes == pytest.approx(cache.formula_bytes, rel=0.1)
    assert cache.measured_bytes == pytest.approx(cache.formula_bytes, rel=0.1)
