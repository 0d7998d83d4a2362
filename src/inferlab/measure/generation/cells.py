"""From a generation plan to its cells; refuses what the model, an engine or the memory has no room for."""

from __future__ import annotations

import itertools

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import BadInput
from inferlab.options.generation import validate_generation_values
from inferlab.records.generation import GenerationCell, GenerationPlan, GenerativeModel
from inferlab.units import size

#: The engine of the reference, which runs the weights of a GGUF file in 32 bits.
REFERENCE = "torch"
# What runs a kind of model where nobody names an engine.
_USUAL = {"gguf": "llamacpp", "transformers": REFERENCE}
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


def generation_cells(plan: GenerationPlan, model: GenerativeModel) -> list[GenerationCell]:
    """Every cell of a plan once; refuses those that the model, an engine or the memory has no room for."""
    cells: dict[str, GenerationCell] = {}
    usual_cores = len(plan.cpu_list) or machine.usable_cores()
    for engine, prompt, new, depth, batch_size, cores in itertools.product(
        plan.engines or (_USUAL[model.kind],),
        plan.prompt_tokens,
        plan.new_tokens,
        plan.depths,
        plan.batch_sizes,
        plan.num_cores,
    ):
        cell = GenerationCell(
            model_digest=model.digest,
            engine=engine,
            prompt_tokens=prompt,
            new_tokens=new,
            depth=depth,
            batch_size=batch_size,
            num_cores=cores or usual_cores,
            engine_options=plan.engine_options,
            thread_pinning=plan.thread_pinning,
            cpu_list=plan.cpu_list,
            time_s=plan.time_s,
            processes=plan.processes,
            seed=plan.seed,
            verify=plan.verify,
        )
        cells.setdefault(cell.id, cell)
    for cell in cells.values():
        _refuse_misfit(cell, model)
    return list(cells.values())


def _refuse_misfit(cell: GenerationCell, model: GenerativeModel) -> None:
    tokens = cell.depth + cell.prompt_tokens + cell.new_tokens
    if tokens > model.context:
        raise BadInput(
            f"A depth of {cell.depth}, a prompt of {cell.prompt_tokens} and {cell.new_tokens} new tokens are "
            f"{tokens} tokens; the context of {model.source} has {model.context}. Give fewer."
        )
    abilities = registry.abilities(registry.launch_generator(cell.engine))
    if "generation" not in abilities.capabilities:
        raise BadInput(f"Engine '{cell.engine}' does not generate tokens. Use -e llamacpp or -e torch.")
    if model.kind not in abilities.kinds:
        raise BadInput(
            f"Engine '{cell.engine}' does not run models of kind {model.kind}; it runs "
            f"{', '.join(sorted(abilities.kinds))}. See: inferlab engines"
        )
    needed, available = needed_bytes(cell, model), machine.available_memory_bytes()
    if available is not None and needed > available:
        raise BadInput(
            f"{model.source} on {cell.engine} would need about {size(needed)} of memory for its weights and "
            f"{tokens * cell.batch_size} tokens; {size(available)} are available. Give fewer tokens or sequences."
        )


def needed_bytes(cell: GenerationCell, model: GenerativeModel) -> float:
    """What a cell takes in memory at least: torch runs weights of a GGUF file in 32 bits."""
    unpacked = model.kind == "gguf" and cell.engine == REFERENCE
    weights = 4.0 * model.parameters if unpacked else float(model.size_bytes)
    value_bytes = 4.0 if cell.engine == REFERENCE else 2.0
    tokens = cell.batch_size * (cell.depth + cell.prompt_tokens + cell.new_tokens)
    return weights + tokens * model.kv_bytes_per_token(value_bytes) + _BASE_BYTES
