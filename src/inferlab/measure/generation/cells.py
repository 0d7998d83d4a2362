"""From a generation plan to its cells: in which precision an engine runs the weights, and what fits.

Refused is what the model, its encoder, an engine or the memory has no room for.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput
from inferlab.measure.cells import validate_cores
from inferlab.measure.stats import processes_for
from inferlab.model.generative_files import text_of
from inferlab.options import validate_values
from inferlab.options.generation import GENERATION
from inferlab.records import Finding, engine_name
from inferlab.records.generation import Generation, GenerationCell, GenerationPlan, GenerativeModel, PromptSet
from inferlab.units import size

#: The engine of the reference, which runs the weights of a GGUF file in 32 bits.
REFERENCE = "torch"
# Engines that run folders of their own format, which their child makes of a Hugging Face folder.
_OWN_FORMATS = frozenset({"openvino-genai", "onnxruntime-genai"})
# Bytes of a parameter, with the scales of its block.
_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "int8": 1.1, "int4": 0.6}
_QUANTIZED = frozenset({"int8", "int4"})
_SAME = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}
# Bytes of a number in the cache, where it is not 16 bits.
_CACHE_BYTES = {
    REFERENCE: 4.0,
    "onnxruntime": 4.0,
    "openvino": 4.0,
    "onnxruntime-genai": 4.0,
    "openvino-genai": 1.2,
}

Serving = Literal["continuous batching", "by the server", "one at a time"]

# What runs a kind of model where nobody names an engine.
_USUAL = {
    "gguf": "llamacpp",
    "transformers": REFERENCE,
    "onnx": "onnxruntime",
    "ort": "onnxruntime",
    "onnxruntime-genai": "onnxruntime-genai",
    "openvino-genai": "openvino-genai",
}
# Sequences that a server computes at once where nobody says.
_AT_ONCE: dict[Serving, int] = {"continuous batching": 8, "by the server": 32, "one at a time": 1}
# With fewer requests for each process, fewer processes are measured.
_REQUESTS_A_PROCESS = 20
# Engines that compute so many sequences at once at most (LLAMA_MAX_SEQ).
_MOST_SEQUENCES = {"llamacpp": 256}
# The types that torch runs weights in, where it is told one.
_TORCH_TYPES = frozenset({"fp32", "fp16", "bf16"})
# Beside weights and cache, for buffers and the packages.
_BASE_BYTES = 500_000_000


def validate_generation(plan: GenerationPlan) -> None:
    """Refuse what cannot be measured before anything is loaded."""
    validate_values(GENERATION, plan)
    validate_cores(plan)
    for engine in plan.engines:
        registry.launch_generator(engine)
    served = [rate for rate in plan.rates if rate is not None]
    if plan.scenario == "server" and len(served) != len(plan.rates):
        raise BadInput("The scenario server needs a rate: give --rate, or --slo to search the highest one.")
    if served and plan.scenario != "server":
        raise BadInput("Requests arrive at a rate in the scenario server: give -s server with --rate.")
    if plan.slo and not served:
        raise BadInput("An objective is about requests that arrive: give -s server and --rate with --slo.")
    if plan.audio is not None and plan.prompts_file is not None:
        raise BadInput("--audio is what an encoder hears and --prompts are text: leave one out.")
    if plan.audio is not None and plan.prompt_tokens != GenerationPlan("").prompt_tokens:
        raise BadInput("--prompt is the length of random prompts and --audio is a sound: leave one out.")
    if plan.prompts_file is not None and plan.prompt_tokens != GenerationPlan("").prompt_tokens:
        raise BadInput("--prompt is the length of random prompts and --prompts are your own: leave one out.")


def serving_of(cell: GenerationCell) -> Serving:
    """How an engine serves requests that arrive by themselves."""
    capabilities = registry.abilities(registry.launch_generator(cell.engine)).capabilities
    if "continuous_batching" in capabilities:
        return "continuous batching"
    return "by the server" if "concurrent_requests" in capabilities else "one at a time"


def generation_processes(cell: GenerationCell, ready_s: float) -> int:
    """How many processes share the time; of a server so few that each gets some requests."""
    usual = processes_for(cell, ready_s)
    if cell.rate is None or cell.processes is not None:
        return usual
    return max(1, min(usual, int(cell.time_s * cell.rate / _REQUESTS_A_PROCESS)))


@dataclass(frozen=True, slots=True)
class Clip:
    """Sound as an encoder takes it."""

    #: Of the samples at the encoder's rate.
    digest: str
    duration_s: float
    #: Samples [position], or the bands of a spectrum [band, frame].
    input: NDArray[np.float32]


def generation_cells(
    plan: GenerationPlan, model: GenerativeModel, prompts: PromptSet | None = None, clip: Clip | None = None
) -> list[GenerationCell]:
    """Every cell of a plan once; refuses those that the model, an engine or the memory has no room for."""
    cells: dict[str, GenerationCell] = {}
    usual_cores = len(plan.cpu_list) or machine.usable_cores()
    for engine, prompt, new, depth, batch_size, cores, rate in itertools.product(
        plan.engines or (_USUAL[model.kind],),
        _prompt_lengths(plan, prompts, clip),
        plan.new_tokens,
        plan.depths,
        plan.batch_sizes,
        plan.num_cores,
        plan.rates,
    ):
        cell = GenerationCell(
            model_digest=model.digest,
            engine=engine,
            prompt_tokens=prompt,
            new_tokens=new,
            depth=depth,
            batch_size=batch_size or 1,
            num_cores=cores or usual_cores,
            engine_options=plan.engine_options,
            thread_pinning=plan.thread_pinning,
            cpu_list=plan.cpu_list,
            time_s=plan.time_s,
            processes=plan.processes,
            seed=plan.seed,
            verify=plan.verify,
            rate=rate,
            prompts_digest="" if prompts is None else prompts.digest,
            audio_digest="" if clip is None else clip.digest,
            audio_s=None if clip is None else clip.duration_s,
        )
        if rate is not None and batch_size is None:
            cell = replace(cell, batch_size=_AT_ONCE[serving_of(cell)])
        cells.setdefault(cell.id, cell)
    for cell in cells.values():
        _refuse_misfit(cell, model)
        _refuse_batch(cell, prompts)
    return list(cells.values())


def _prompt_lengths(plan: GenerationPlan, prompts: PromptSet | None, clip: Clip | None) -> tuple[int, ...]:
    """In tokens; sound has none."""
    if clip is not None:
        return (0,)
    return plan.prompt_tokens if prompts is None else (prompts.longest_tokens,)


def _refuse_misfit(cell: GenerationCell, model: GenerativeModel) -> None:
    tokens = cell.depth + cell.prompt_tokens + cell.new_tokens
    refuse_long(cell, model)
    abilities = registry.abilities(registry.launch_generator(cell.engine))
    if "generation" not in abilities.capabilities:
        raise BadInput(
            f"Engine '{cell.engine}' does not generate tokens. Those that do: {', '.join(registry.generators())}."
        )
    if model.kind not in abilities.kinds and not runs_torch_weights(cell, model):
        raise BadInput(
            f"Engine '{cell.engine}' does not run models of kind {model.kind}; it runs "
            f"{', '.join(sorted(abilities.kinds))}. See: inferlab engines"
        )
    refuse_encoder(cell, model, abilities.capabilities)
    if model.kind == engine_name(cell.engine) and "weights" in dict(cell.engine_options):
        raise BadInput(
            f"{model.source} is a folder of {model.kind} already, with weights in {model.precision}. "
            "Leave the engine option weights out."
        )
    short = memory_shortage(needed_bytes(cell, model), f" for its weights and {tokens * cell.batch_size} tokens")
    if short:
        raise BadInput(f"{model.source} on {cell.engine} {short}. Give fewer tokens or sequences.")


def memory_shortage(needed: float, what: str = "") -> str:
    """What is said where the memory has no room for so many bytes; empty where it has, or nothing tells."""
    needed, available = needed + _BASE_BYTES, machine.available_memory_bytes()
    if available is None or needed <= available:
        return ""
    return f"would need about {size(needed)} of memory{what}; {size(available)} are available"


def _refuse_batch(cell: GenerationCell, prompts: PromptSet | None) -> None:
    if cell.batch_size == 1:
        return
    most = _MOST_SEQUENCES.get(engine_name(cell.engine))
    if most is not None and cell.batch_size > most:
        raise BadInput(f"Engine '{cell.engine}' computes {most} sequences at once at most, not {cell.batch_size}.")
    if cell.rate is not None and serving_of(cell) == "one at a time":
        raise BadInput(
            f"Engine '{cell.engine}' serves one request at a time; {cell.batch_size} sequences at once are not "
            "possible with -s server. Leave -b out."
        )
    if cell.rate is None and prompts is not None and prompts.shortest_tokens != prompts.longest_tokens:
        raise BadInput(
            f"The prompts have {prompts.shortest_tokens} to {prompts.longest_tokens} tokens, so they make no "
            f"batch of {cell.batch_size}. Leave -b out, or give -s server with a --rate."
        )


def refuse_long(cell: GenerationCell, model: GenerativeModel) -> None:
    """Refuse more tokens than the context has; an encoder's prompt and what is generated count apart."""
    if model.context is None:
        return
    tokens = decoder_tokens(cell, model)
    if model.encoder is None and tokens > model.context:
        raise BadInput(
            f"A depth of {cell.depth}, a prompt of {cell.prompt_tokens} and {cell.new_tokens} new tokens are "
            f"{tokens} tokens; the context of {model.source} has {model.context}. Give fewer."
        )
    if max(cell.prompt_tokens, tokens) > model.context:
        raise BadInput(
            f"The encoder and the decoder of {model.source} have room for {model.context} tokens each; a prompt "
            f"of {cell.prompt_tokens} or {cell.new_tokens} new tokens do not fit. Give fewer."
        )


def refuse_encoder(cell: GenerationCell, model: GenerativeModel, capabilities: Collection[str]) -> None:
    """Refuse what an encoder–decoder, or the engine with one, cannot do."""
    encoder = model.encoder
    if encoder is None:
        return
    if "encoder" not in capabilities:
        raise BadInput(
            f"Engine '{cell.engine}' runs decoders alone, and {model.source} has an encoder before its decoder. "
            f"Use -e {'torch' if model.kind == 'transformers' else 'onnxruntime'}."
        )
    if encoder.takes != "tokens" and not cell.audio_digest:
        raise BadInput(f"The encoder of {model.source} takes sound: give --audio with a WAV file.")
    if cell.depth:
        raise BadInput(
            f"{model.source} is an encoder–decoder: its cache holds nothing before the prompt. Leave --depth out."
        )


def decoder_tokens(cell: GenerationCell, model: GenerativeModel) -> int:
    """Tokens of the decoder that a sequence has at its end."""
    if model.encoder is None:
        return cell.depth + cell.prompt_tokens + cell.new_tokens
    return len(model.encoder.start_tokens) + cell.new_tokens


def end_position(model: GenerativeModel, token_ids: tuple[int, ...]) -> int | None:
    """Which of the tokens is the first that ends the text of an encoder–decoder."""
    if model.encoder is None or model.encoder.end_token not in token_ids:
        return None
    return token_ids.index(model.encoder.end_token)


def transcript_of(model: GenerativeModel, one: Generation) -> str:
    """What the tokens of a sequence say of the sound; empty where nothing was heard or no tokenizer is there."""
    if one.audio_s is None:
        return ""
    said = one.token_ids if one.end_position is None else one.token_ids[: one.end_position]
    path = Path(model.path)
    try:
        return text_of(path if path.is_dir() else path.parent, said)
    except BadInput:
        return ""


def is_unpacked(cell: GenerationCell, model: GenerativeModel) -> bool:
    """Whether the weights of a GGUF file are unpacked to 32 bits before the engine gets them."""
    if model.kind != "gguf":
        return False
    engine = engine_name(cell.engine)
    if engine != "openvino-genai":
        return engine in (REFERENCE, "onnxruntime-genai")
    reading = dict(cell.engine_options).get("gguf", "auto")
    # It reads no file that has nothing but 32-bit weights.
    return reading == "converted" or (reading == "auto" and {tensor.type for tensor in model.tensors} == {"F32"})


def is_converted(cell: GenerationCell, model: GenerativeModel) -> bool:
    """Whether the engine runs a copy of the model in its own format."""
    own = engine_name(cell.engine) in _OWN_FORMATS
    return own and (model.kind == "transformers" or is_unpacked(cell, model))


def weights_in_force(cell: GenerationCell, model: GenerativeModel) -> str | None:
    """The type of the weights that the engine runs; None where it runs them as the file has them."""
    if is_converted(cell, model):
        return dict(cell.engine_options).get("weights", "fp32")
    return "fp32" if is_unpacked(cell, model) else None


def runs_torch_weights(cell: GenerationCell, model: GenerativeModel) -> bool:
    """Whether torch runs the weights that lie beside ONNX graphs."""
    return engine_name(cell.engine) == REFERENCE and model.torch_weights


def needed_bytes(cell: GenerationCell, model: GenerativeModel) -> float:
    """What weights and cache take in memory at least; of a server's, nothing is taken here."""
    if registry.is_server(cell.engine):
        return 0.0
    weights = weights_in_force(cell, model)
    told = dict(cell.engine_options).get("dtype")
    if engine_name(cell.engine) == REFERENCE and told in _TORCH_TYPES:
        weights = told
    loaded = float(model.size_bytes) if weights is None else model.parameters * _BYTES.get(weights, 4.0)
    tokens = cell.batch_size * (cell.depth + cell.prompt_tokens + cell.new_tokens)
    return loaded + tokens * model.kv_bytes_per_token(_CACHE_BYTES.get(engine_name(cell.engine), 2.0))


def precision_findings(cell: GenerationCell, model: GenerativeModel) -> list[Finding]:
    """The same model in another precision must not be ranked with the file as it is and nobody told."""
    weights = weights_in_force(cell, model)
    if weights is None or _SAME.get(model.precision) == weights:
        return []
    code = "requantized" if weights in _QUANTIZED else "dequantized"
    return [Finding(code, {"engine": cell.engine, "precision": model.precision, "weights": weights})]
