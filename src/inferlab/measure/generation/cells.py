"""From a generation plan to its cells; refuses what the model, an engine or the memory has no room for."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Literal

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput
from inferlab.measure.generation.encoders import refuse_encoder, refuse_long
from inferlab.measure.generation.weights import REFERENCE as REFERENCE
from inferlab.measure.generation.weights import needed_bytes, runs_torch_weights
from inferlab.measure.stats import processes_for
from inferlab.model.audio import Clip
from inferlab.options.generation import validate_generation_values
from inferlab.records import engine_name
from inferlab.records.generation import GenerationCell, GenerationPlan, GenerativeModel, PromptSet
from inferlab.units import size

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
# Beside weights and cache, for buffers and the packages.
_BASE_BYTES = 500_000_000


def validate_generation(plan: GenerationPlan) -> None:
    """Refuse what cannot be measured before anything is loaded."""
    validate_generation_values(plan)
    listed = len(plan.cpu_list)
    for cores in plan.num_cores:
        if listed and cores not in (None, listed):
            raise BadInput(
                f"--cpu-list names {listed}, -ncores asks for {cores}: leave one out, or let them agree."
            )
        machine.choose_cpus(cores or listed or 1, plan.thread_pinning, plan.cpu_list)
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
    needed, available = needed_bytes(cell, model) + _BASE_BYTES, machine.available_memory_bytes()
    if available is not None and needed > available:
        raise BadInput(
            f"{model.source} on {cell.engine} would need about {size(needed)} of memory for its weights and "
            f"{tokens * cell.batch_size} tokens; {size(available)} are available. Give fewer tokens or sequences."
        )


def _refuse_batch(cell: GenerationCell, prompts: PromptSet | None) -> None:
    if cell.batch_size == 1:
        return
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
