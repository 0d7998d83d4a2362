"""llama.cpp and PyTorch generate the same tokens from the same weights; what they tell of their caches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inferlab.engines import registry
from inferlab.lab import Lab
from inferlab.model import reading
from inferlab.model.generative_files import write_gguf
from inferlab.records.generation import GenerationOutcome, GenerationPlan, GenerationSweep

pytest.importorskip("xllamacpp")
pytest.importorskip("transformers")
pytest.importorskip("gguf")

PLAN = GenerationPlan(
    "demo:llama_tiny",
    engines=("llamacpp", "torch"),
    prompt_tokens=(12,),
    new_tokens=(5,),
    depths=(40,),
    batch_sizes=(2,),
    num_cores=(1,),
    time_s=0.01,
    processes=1,
)


@pytest.fixture(scope="module")
def sweep() -> GenerationSweep:
    return Lab().generate(PLAN)


def of(sweep: GenerationSweep, engine: str) -> GenerationOutcome:
    return next(outcome for outcome in sweep.outcomes if outcome.cell.engine == engine)


@pytest.mark.parametrize("engine", ["llamacpp", "torch"])
def test_every_token_agrees_with_the_reference_in_all_sequences_of_a_batch(
    sweep: GenerationSweep, engine: str
) -> None:
    outcome = of(sweep, engine)
    assert outcome.failure is None and outcome.status == "done"
    (run,) = outcome.runs
    # Two checks of 32 positions in two sequences.
    assert (run.agreement.status, run.agreement.agreeing, run.agreement.positions) == ("match", 128, 128)
    assert (run.agreement.prefix, run.agreement.prefix_of) == (32, 32)
    # The same weights; llama.cpp's cache has 16 bits.
    assert run.agreement.kl_divergence == pytest.approx(0.0, abs=1e-4)


def test_both_engines_get_the_same_prompts_and_generate_the_same_tokens_behind_a_context(
    sweep: GenerationSweep,
) -> None:
    first, second = (
        [sequence for each in of(sweep, engine).runs[0].repetitions[:1] for sequence in each.sequences]
        for engine in ("llamacpp", "torch")
    )
    assert len(first) == 2
    for one, other in zip(first, second, strict=True):
        assert (one.prompt_digest, one.prompt_tokens, one.cached_tokens) == (other.prompt_digest, 12, 40)
        assert one.token_ids == other.token_ids and len(one.token_ids) == 5
        assert one.finish_reason == "length"
        assert all(b > a > 0 for a, b in zip(one.token_ns, one.token_ns[1:], strict=False))
    # Other prompts, other digests.
    assert first[0].prompt_digest != first[1].prompt_digest


def test_the_cache_is_told_by_formula_and_by_the_engine(sweep: GenerationSweep) -> None:
    torch, llamacpp = of(sweep, "torch").runs[0], of(sweep, "llamacpp").runs[0]
    assert (torch.cache.formula_bytes, torch.cache.engine_bytes, torch.cache.dtype) == (512.0, 512.0, "f32")
    assert (llamacpp.cache.formula_bytes, llamacpp.cache.dtype) == (256.0, "f16")
    # llama.cpp tells what it would save, with some bytes beside each token.
    assert llamacpp.cache.engine_bytes is not None and 256 <= llamacpp.cache.engine_bytes < 280
    assert llamacpp.settings["num_threads"] == torch.settings["intra_op_num_threads"] == 1
    assert llamacpp.versions["xllamacpp"] and torch.versions["transformers"]


def test_an_architecture_that_no_engine_knows_is_refused_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "odd.gguf"
    metadata: dict[str, str | int | float] = {
        "general.architecture": "oddity",
        "oddity.block_count": 1,
        "oddity.embedding_length": 4,
        "oddity.attention.head_count": 1,
        "oddity.context_length": 64,
        "oddity.vocab_size": 8,
    }
    with file.open("wb") as out:
        write_gguf(out, metadata, {"token_embd.weight": np.ones((8, 4), np.float32)})
    plan = replace(PLAN, model=str(file), depths=(0,), batch_sizes=(1,), verify=False)
    messages = {outcome.cell.engine: outcome.failure for outcome in Lab().generate(plan).outcomes}
    assert {name: message and message.code for name, message in messages.items()} == {
        "llamacpp": "refused",
        "torch": "refused",
    }
    assert messages["llamacpp"] is not None and messages["llamacpp"].message == (
        "Engine 'llamacpp': it does not know the architecture 'oddity' of this model."
    )
    assert messages["torch"] is not None and messages["torch"].message == (
        "Engine 'torch': transformers does not read this GGUF file: GGUF model with architecture oddity is not "
        "supported yet."
    )


def test_a_model_without_its_weights_is_refused_by_llamacpp(tmp_path: Path) -> None:
    file = tmp_path / "few.gguf"
    metadata: dict[str, str | int | float] = {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.embedding_length": 4,
        "llama.attention.head_count": 1,
        "llama.context_length": 64,
        "llama.vocab_size": 8,
        "tokenizer.ggml.model": "no_vocab",
    }
    with file.open("wb") as out:
        write_gguf(out, metadata, {"token_embd.weight": np.ones((8, 4), np.float32)})
    plan = replace(PLAN, model=str(file), engines=("llamacpp",), depths=(0,), batch_sizes=(1,), verify=False)
    (outcome,) = Lab().generate(plan).outcomes
    assert outcome.failure is not None and outcome.failure.code == "refused"
    assert outcome.failure.message.startswith("Engine 'llamacpp': it cannot load few.gguf: ")


def test_the_engine_is_listed_as_one_that_generates() -> None:
    info = registry.describe("llamacpp")
    assert (info.state, info.kinds, info.capabilities) == (
        "ready",
        ("gguf",),
        ("continuous_batching", "generation"),
    )
    assert reading.GENERATIVE_DEMOS.keys() == {"llama", "llama_tiny", "bart", "bart_tiny"}


def test_the_growth_of_the_cache_is_measured_after_requests_too() -> None:
    plan = replace(PLAN, engines=("llamacpp",), depths=(0,), scenario="server", rates=(100.0,))
    plan = replace(plan, time_s=0.2, verify=False)
    (outcome,) = Lab().generate(plan).outcomes
    assert outcome.failure is None
    (run,) = outcome.runs
    # Beside keys and values llama.cpp holds the position and the sequences of each token, 52 bytes.
    assert run.cache.measured_bytes is not None and 256 <= run.cache.measured_bytes < 256 + 64
