"""ONNX graphs with past and present, and encoder–decoders: the same tokens in every form and on every engine."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from inferlab.child.engines.base import LoadOptions
from inferlab.child.engines.onnxruntime import OnnxRuntimeGenerator
from inferlab.child.engines.openvino import OpenVinoGenerator
from inferlab.lab import Lab
from inferlab.measure.capacity import max_rate, saturation_rate
from inferlab.measure.generation.stats import generation_findings, summarize_generation
from inferlab.measure.rate_search import CEILING
from inferlab.records import Finding
from inferlab.records.generation import GenerationOutcome, GenerationPlan, GenerationSweep, TokenLimit
from tests.helpers.decoders import SHAPE, decoder_alone, listener, write_wav

ENGINES = {"onnxruntime": OnnxRuntimeGenerator, "openvino": OpenVinoGenerator}
ROWS, PROMPT, CONTEXT, NEW = 2, 7, 9, 5
PLAN = GenerationPlan(
    "",
    prompt_tokens=(PROMPT,),
    new_tokens=(NEW,),
    batch_sizes=(ROWS,),
    num_cores=(1,),
    time_s=0.01,
    processes=1,
)


def tokens(length: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, SHAPE.vocabulary, (ROWS, length), np.int64)


def loaded(engine: str, path: Path, **options: str) -> Any:
    found: Any = ENGINES[engine]()
    shapes = {"tokens": [ROWS, 64]}
    found.load(str(path), LoadOptions("onnx", [], 1, 1, 1, "single_stream", "none", ROWS, shapes, options))
    return found


def generated(engine: Any, context: Any) -> list[list[int]]:
    """Twice behind the same context: what the first left must not be seen by the second."""
    engine.begin(context)
    found = []
    for _ in range(2):
        engine.rewind(context.shape[1])
        chosen = [engine.prefill(tokens(PROMPT, 1))]
        for _ in range(NEW - 1):
            chosen.append(engine.step(chosen[-1]))
        found.append(np.stack(chosen, axis=1).tolist())
    assert found[0] == found[1]
    first: list[list[int]] = found[0]
    return first


@functools.cache
def expected(depth: int) -> list[list[int]]:
    """By the graph that takes no cache, each token computed with all before it."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = decoder_alone("pair", Path(folder))
        session = onnxruntime.InferenceSession(str(path / "decoder_model.onnx"))
        ids = np.concatenate([tokens(CONTEXT, 2)[:, :depth], tokens(PROMPT, 1)], axis=1)
        for _ in range(NEW):
            chosen = session.run(["logits"], {"input_ids": ids})[0][:, -1].argmax(-1)
            ids = np.concatenate([ids, chosen[:, None]], axis=1)
    found: list[list[int]] = ids[:, -NEW:].tolist()
    return found


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("form", ["merged", "pair", "alone", "told"])
def test_every_form_of_a_decoder_gives_the_tokens_of_the_graph_without_a_cache(
    tmp_path: Path, form: str, engine: str
) -> None:
    found = loaded(engine, decoder_alone(form, tmp_path))
    for depth in (0, CONTEXT):
        assert generated(found, tokens(CONTEXT, 2)[:, :depth]) == expected(depth)
        assert found.cache_bytes() == ROWS * (depth + PROMPT + NEW - 1) * 2 * SHAPE.layers * SHAPE.hidden * 4
    assert found.logits().shape == (ROWS, SHAPE.vocabulary)
    # Its second graph takes one token at a time, also of a prompt behind a context.
    assert found._settings.get("prompt_behind_cache") == ("token by token" if form == "pair" else None)


def test_without_a_cache_all_tokens_are_computed_again(tmp_path: Path) -> None:
    found = loaded("onnxruntime", decoder_alone("alone", tmp_path), cache="0")
    assert generated(found, tokens(CONTEXT, 2)) == expected(CONTEXT)
    assert found.cache_bytes() is None


def of(sweep: GenerationSweep, engine: str) -> GenerationOutcome:
    return next(outcome for outcome in sweep.outcomes if outcome.cell.engine == engine)


def test_a_graph_without_torch_weights_is_held_to_the_plain_graph_and_the_same_engine_is_told(
    tmp_path: Path,
) -> None:
    plan = replace(PLAN, model=str(decoder_alone("merged", tmp_path)), engines=tuple(ENGINES), depths=(CONTEXT,))
    sweep = Lab().generate(plan)
    label = f"onnxruntime {onnxruntime.__version__}, plain graph without a cache (no torch weights of it)"
    for engine, told in (("onnxruntime", f"{label}; the same engine"), ("openvino", label)):
        (run,) = of(sweep, engine).runs
        assert run.agreement.reference == told
        (finding,) = [
            each for each in generation_findings(sweep.model, of(sweep, engine)) if "reference" in each.code
        ]
        assert finding == Finding("same-graph-reference", {"reference": told})
        assert (run.agreement.status, run.agreement.agreeing, run.agreement.positions) == ("match", 128, 128)
        assert run.cache.formula_bytes == run.cache.engine_bytes == 2 * SHAPE.layers * SHAPE.hidden * 4
        assert (run.cache.dtype, run.settings["cache"]) == ("f32", "past and present")
        assert all(sequence.encoder_ns is None for each in run.repetitions for sequence in each.sequences)


def test_an_encoder_decoder_gives_the_same_tokens_on_torch_onnxruntime_and_openvino() -> None:
    pytest.importorskip("transformers")
    sweep = Lab().generate(replace(PLAN, model="demo:bart_tiny", engines=("torch", *ENGINES)))
    assert sweep.model.torch_weights
    found = []
    for outcome in sweep.outcomes:
        (run,) = outcome.runs
        assert (run.agreement.status, run.agreement.agreeing, run.agreement.prefix) == ("match", 128, 32)
        assert run.agreement.reference.startswith("torch ") and not run.agreement.same_graph
        assert run.agreement.reference.endswith("; the same engine") == (outcome.cell.engine == "torch")
        assert run.cache.formula_bytes == run.cache.engine_bytes == 1024.0
        assert run.cache.measured_bytes is None
        sequences = run.repetitions[0].sequences
        assert all(0 < (sequence.encoder_ns or 0) < sequence.token_ns[0] for sequence in sequences)
        assert all(sequence.prompt_tokens == PROMPT and sequence.audio_s is None for sequence in sequences)
        found.append([sequence.token_ids for sequence in sequences])
    assert found[0] == found[1] == found[2]
    assert len(set(found[0][0])) > 1


def test_an_encoder_that_hears_gets_the_sound_and_its_tokens_are_told_as_text(tmp_path: Path) -> None:
    clip = write_wav(tmp_path / "clip.wav", 1.5, rate=8000, channels=2)
    folder = listener(tmp_path / "model")
    plan = replace(PLAN, prompt_tokens=(128,), model=str(folder), engines=("onnxruntime",), audio=str(clip))
    (outcome,) = Lab().generate(plan).outcomes
    assert (outcome.cell.prompt_tokens, outcome.cell.audio_s) == (0, 1.5)
    (run,) = outcome.runs
    assert run.agreement.status == "match"
    first, second = run.repetitions[0].sequences
    assert first.token_ids == second.token_ids
    assert (first.audio_s, first.prompt_tokens) == (1.5, 0)
    assert run.repeated_ttft_ns is None
    ids = first.token_ids[: first.end_position]
    assert run.transcript == "".join(chr(32 + token) for token in ids).strip()


def test_requests_with_a_sound_are_served_one_by_one_with_the_tokens_of_a_lone_one(tmp_path: Path) -> None:
    clip = write_wav(tmp_path / "clip.wav", 1.5, rate=8000, channels=2)
    plan = replace(
        PLAN,
        prompt_tokens=(128,),
        model=str(listener(tmp_path / "model")),
        engines=("onnxruntime",),
        audio=str(clip),
        batch_sizes=(None,),
    )
    (lone,) = Lab().generate(plan).outcomes
    (outcome,) = Lab().generate(replace(plan, scenario="server", rates=(40.0,), time_s=0.5)).outcomes
    (run,) = outcome.runs
    (repetition,) = run.repetitions
    assert (run.agreement.status, run.settings["serving"]) == ("match", "one at a time")
    assert (outcome.cell.batch_size, run.transcript) == (1, lone.runs[0].transcript)
    assert len(repetition.sequences) == run.arrivals
    spans = []
    for sequence in repetition.sequences:
        assert sequence.token_ids == lone.runs[0].repetitions[0].sequences[0].token_ids
        assert (sequence.audio_s, sequence.prompt_tokens) == (1.5, 0)
        assert 0 <= sequence.submitted_ns < (sequence.encoder_ns or 0) < sequence.token_ns[0]
        arrived = sequence.scheduled_ns or 0
        spans.append((arrived + sequence.submitted_ns, arrived + sequence.token_ns[-1]))
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    summary = summarize_generation(outcome.runs)
    assert summary is not None and summary.encoder_ms is not None and summary.real_time_factor is not None
    # The wait in the queue is no time of the encoder.
    longest = max((each.encoder_ns or 0) - each.submitted_ns for each in repetition.sequences)
    assert summary.encoder_ms.value <= longest / 1e6


def test_encoder_decoders_have_a_capacity() -> None:
    slo = (TokenLimit("e2e", 60.0, "e2e<60s"),)
    plan = replace(PLAN, model="demo:bart_tiny", engines=("onnxruntime",), batch_sizes=(None,), slo=slo)
    capacity = Lab().generation_capacity(replace(plan, time_s=6.0), 0.5)
    assert (capacity.serving, capacity.agreement.status) == ("one at a time", "match")
    # No request takes a minute: how fast the machine is decides the rate, up to what it serves at most.
    assert 0 < max_rate(capacity).value <= CEILING * saturation_rate(capacity.processes)
    assert 0 < capacity.lone.limit_share < 1


def test_files_in_the_format_of_onnx_runtime_are_run_by_it_alone(tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(str(decoder_alone("alone", tmp_path / "plain")), options)
    assert generated(loaded("onnxruntime", tmp_path / "model.ort"), tokens(0, 0)) == expected(0)


@pytest.mark.parametrize("family", ["T5", "Whisper", "Moonshine"])
def test_torch_generates_what_transformers_own_loop_generates(tmp_path: Path, family: str) -> None:
    transformers = pytest.importorskip("transformers")
    import torch

    from inferlab.child.engines.torch.generation import TorchGenerator

    small: dict[str, dict[str, Any]] = {
        "T5": {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 3},
        "Whisper": {
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "max_source_positions": 50,
            "decoder_start_token_id": 3,
            "begin_suppress_tokens": None,
        },
        "Moonshine": {
            "hidden_size": 32,
            "intermediate_size": 64,
            "encoder_num_hidden_layers": 2,
            "decoder_num_hidden_layers": 2,
            "encoder_num_attention_heads": 4,
            "decoder_num_attention_heads": 4,
            "decoder_start_token_id": 3,
        },
    }
    names = {"vocab_size": 90, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = getattr(transformers, f"{family}Config")(**{**small[family], **names})
    torch.manual_seed(0)
    module = getattr(transformers, f"{family}ForConditionalGeneration")(config).eval()
    # Random weights are so small that every token is followed by itself.
    for parameter in module.parameters():
        parameter.data *= 4
    module.save_pretrained(tmp_path)
    generator = np.random.default_rng(0)
    inputs: dict[str, Callable[[], Any]] = {
        "T5": lambda: generator.integers(3, 90, (1, 7), np.int64),
        "Whisper": lambda: generator.standard_normal((1, 80, 100), dtype=np.float32),
        "Moonshine": lambda: generator.standard_normal((1, 16000), dtype=np.float32),
    }
    given = inputs[family]()
    module.generation_config.eos_token_id = None
    # Whisper's own is for long recordings.
    generate = transformers.GenerationMixin.generate
    with torch.inference_mode():
        answer = generate(
            module, **{module.main_input_name: torch.from_numpy(given)}, do_sample=False, max_new_tokens=NEW
        )
    engine = TorchGenerator()
    shapes = {"tokens": [1, 64]}
    engine.load(
        str(tmp_path), LoadOptions("transformers", [], 1, 1, 1, "single_stream", "none", 1, shapes, {}, [3])
    )
    engine.begin(np.zeros((1, 0), np.int64))
    chosen = [engine.prefill(given)]
    for _ in range(NEW - 1):
        chosen.append(engine.step(chosen[-1]))
    assert np.stack(chosen, axis=1)[0].tolist() == answer[0].tolist()[-NEW:]
    assert engine.encoded_ns() is not None
