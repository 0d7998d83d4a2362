"""What the tokens are compared with: FP32 torch on the same weights, made once for a model and cached.

And the files that the reference and the engines load: the model, its weights in 32 bits, or a conversion of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inferlab import machine
from inferlab.child import protocol
from inferlab.engines import registry
from inferlab.errors import BadInput, InferlabError
from inferlab.measure.check import Arrays, cache_outputs, read_cached
from inferlab.measure.conversion import Conversion, converted, is_made
from inferlab.measure.generation.cells import (
    REFERENCE,
    is_converted,
    is_unpacked,
    memory_shortage,
    runs_torch_weights,
)
from inferlab.records import Event, Listener, engine_name
from inferlab.records.generation import Agreement, GenerationCell, GenerationPlan, GenerativeModel
from inferlab.settings import cache_folder
from inferlab.worker import DEFAULT_S, Launch, Reply, Worker

Tokens = NDArray[np.int64]
#: Token ids, or sound for an encoder.
Prompt = NDArray[Any]

# Of the check: two prompts of so many tokens, and so many positions behind each.
CHECK_PROMPT = 16
CHECK_POSITIONS = 32
_CHECKS = 2
# What the cached tokens of a reference are. Positions are compared behind tokens that were drawn: greedy ones soon
# repeat themselves, and then wrong weights choose them too (SmolLM2 behind random tokens: 4 different ones of 32;
# OpenVINO, which misreads its Q4_1, agreed in 28 of 32 behind those, and in 11 of 32 behind drawn ones).
_CHECK_KIND = "greedy and drawn, with candidates"
#: A choice of the reference whose logit is less above the next one, in standard deviations of all, is close.
TIE = 0.1
#: With fewer positions that agree or are close the tokens are wrong.
LEAST_AGREEMENT = 0.9
_STREAM = 3
# Compute the reference of graphs that have no weights for torch beside them.
_PLAIN = "onnxruntime"
_PLAIN_OPTIONS = {"graph_optimization": "disabled", "spinning": "0", "cache": "0"}
_STATEFUL = "openvino"
_STATEFUL_OPTIONS = {"cache": "0", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
_IN_32_BITS = 4.0
_UNQUANTIZED = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class GenerationJob:
    """A cell with all that is needed to measure it."""

    cell: GenerationCell
    model: GenerativeModel
    patience_s: float
    #: Those of the user's own, each [position], or sound as the encoder takes it; none: random ones.
    prompts: tuple[Prompt, ...] = ()


def make_generation_job(
    plan: GenerationPlan, model: GenerativeModel, cell: GenerationCell, prompts: Sequence[Prompt] = ()
) -> GenerationJob:
    """One of the plan's cells."""
    return GenerationJob(cell, model, plan.patience_s or DEFAULT_S, tuple(prompts))


@contextmanager
def dequantized(job: GenerationJob, listener: Listener) -> Iterator[Path]:
    """The folder with the weights of a GGUF file in 32 bits, which torch loads; made once."""
    launch = registry.launch_generator(REFERENCE)
    wanted = Conversion(
        launch=launch,
        source=Path(job.model.path),
        options={},
        identity=["fp32", job.model.digest, registry.stamp(launch)],
        conditions=[],
        patience_s=job.patience_s,
    )
    if not is_made(wanted) and (short := memory_shortage(_IN_32_BITS * job.model.parameters)):
        raise BadInput(f"{job.model.source} unpacked to 32 bits {short}.")
    with converted(wanted, lambda file: 0.0, listener) as file:
        yield file.path.parent


@dataclass(frozen=True, slots=True)
class Reference:
    """What the reference chose behind each check's prompt, and how close each choice was; or why there is none."""

    label: str
    #: For each check the tokens of a free greedy generation (`greedy`), tokens drawn by their probabilities
    #: (`drawn`), the most likely token in place of each of these (`likely`) and its margin; all [position].
    #: And the tokens that were most likely (`candidates`) with their `log_probabilities` [position, rank].
    checks: tuple[Arrays, ...] = ()
    reason: str = ""
    #: Made by the same graph on a plainer engine, for lack of weights that torch loads.
    same_graph: bool = False


def reference_for(job: GenerationJob, listener: Listener) -> Reference:
    """The reference tokens of a model; never raises for the model's or the engine's faults."""
    try:
        maker = _maker(job.model)
    except (BadInput, metadata.PackageNotFoundError):
        reason = "the reference needs PyTorch and transformers (pip install 'inferlab[transformers]')"
        return Reference("", reason=reason)
    label = maker.label
    # An engine that is compared with itself is told so.
    told = f"{label}; the same engine" if maker.launch.name == engine_name(job.cell.engine) else label
    prompts = [check_prompt(job, number) for number in range(_CHECKS)]
    positions = _check_positions(job.model)
    key = "\n".join(
        [_CHECK_KIND, label, job.model.digest, str(positions), *(digest(prompt) for prompt in prompts)]
    )
    path = cache_folder() / "references" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz"
    cached = read_cached(path, _CHECKS)
    if cached is not None:
        return Reference(told, cached, same_graph=maker.same_graph)
    loaded = job.model.size_bytes if maker.same_graph else _IN_32_BITS * job.model.parameters
    if short := memory_shortage(loaded):
        return Reference(told, reason=f"the reference {short}")
    listener(Event("reference", {"label": label}))
    try:
        checks = tuple(_reference_checks(job, maker, prompts, positions, listener))
    except InferlabError as error:
        return Reference(told, reason=f"no reference could be made: {error}")
    cache_outputs(path, checks)
    return Reference(told, checks, same_graph=maker.same_graph)


class _Maker(NamedTuple):
    """What makes the reference tokens of a model."""

    launch: Launch
    label: str
    kind: str
    options: Mapping[str, str]
    same_graph: bool = False


def _maker(model: GenerativeModel) -> _Maker:
    """FP32 torch on the same weights; of graphs without them, the plain graph without a cache."""
    graphs = model.kind not in ("gguf", "transformers")
    torch_runs = not graphs or (model.torch_weights and model.precision in _UNQUANTIZED)
    try:
        if torch_runs:
            label = f"torch {metadata.version('torch')}, transformers {metadata.version('transformers')}, FP32"
            return _Maker(registry.launch_generator(REFERENCE), label, "transformers", {"dtype": "fp32"})
    except (BadInput, metadata.PackageNotFoundError):
        if not graphs:
            raise
    engine, options = _PLAIN, _PLAIN_OPTIONS
    if model.kind == "openvino-genai":
        engine, options = _STATEFUL, _STATEFUL_OPTIONS
    label = f"{engine} {metadata.version(engine)}, plain graph without a cache (no torch weights of it)"
    return _Maker(registry.launch_generator(engine), label, model.kind, options, same_graph=True)


def _reference_checks(
    job: GenerationJob, maker: _Maker, prompts: Sequence[Prompt], positions: int, listener: Listener
) -> Iterator[Arrays]:
    with ExitStack() as stack:
        path = Path(job.model.path)
        if job.model.kind == "gguf":
            path = stack.enter_context(dequantized(job, listener))
        # Threads that wait for each other asleep: beside other work, those that spin take minutes.
        environment = {**maker.launch.environment, "OMP_WAIT_POLICY": "PASSIVE"}
        asleep = replace(maker.launch, environment=environment)
        worker = stack.enter_context(Worker(asleep, patience_s=job.patience_s))
        cores = machine.usable_cores()
        start = () if job.model.encoder is None else job.model.encoder.start_tokens
        request = load_request(maker.kind, cores, [], "none", 1, 64, maker.options, start)
        worker.ask("load", model=str(path), **request)
        ask(worker, "context", {"context": np.zeros((1, 0), np.int64)})
        for number, prompt in enumerate(prompts):
            greedy = generate(worker, prompt, positions).arrays()["token_ids"]
            sample = ask(worker, "sample", {"prompts": prompt}, positions=positions, seed=number).arrays()
            yield {
                "greedy": greedy[0],
                "drawn": sample["token_ids"][0],
                **{name: values[0] for name, values in sample.items() if name != "token_ids"},
            }


class Score(NamedTuple):
    """How the tokens of one check compare with the reference's, over all sequences of a batch."""

    agreeing: int
    ties: int
    positions: int
    prefix: int
    prefix_of: int
    #: Of the probabilities, mean over the positions; None where the engine does not tell them.
    kl_divergence: float | None = None


def compare_tokens(free: Tokens, chosen: Arrays, expected: Arrays) -> Score:
    """Compare tokens [sequence, position] of a free generation, and those chosen behind what the reference drew.

    What is expected is the same for all sequences, [position], or of each its own.
    """
    same = chosen["token_ids"] == expected["likely"]
    ties = ~same & (expected["margins"] < TIE)
    different = np.any(free != expected["greedy"], axis=0)
    positions = free.shape[-1]
    prefix = int(np.argmax(different)) if different.any() else positions
    by_engine = chosen.get("log_probabilities")
    divergence = None if by_engine is None else kl_divergence(expected["log_probabilities"], by_engine)
    return Score(int(same.sum()), int(ties.sum()), same.size, prefix, positions, divergence)


def kl_divergence(reference: NDArray[np.float64], engine: NDArray[np.float64]) -> float | None:
    """Of the engine's probabilities from the reference's, in nats, mean over the positions.

    Both are logarithms of the probabilities of the reference's candidates [..., rank]. All other tokens count as
    one, which makes it a little less than that of all tokens. None where a probability is not a number.
    """
    p, q = (np.concatenate([np.exp(logs), _others(logs)], axis=-1) for logs in (reference, engine))
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * (np.log(p) - np.log(q)), 0.0)
    mean = float(terms.sum(axis=-1).mean())
    return max(mean, 0.0) if np.isfinite(mean) else None


def _others(log_probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """The probability of all tokens that are no candidates; rounding must not make it none."""
    others: NDArray[np.float64] = np.maximum(1.0 - np.exp(log_probabilities).sum(axis=-1, keepdims=True), 1e-12)
    return others


def agreement_of(reference: Reference, scores: Sequence[Score]) -> Agreement:
    """What all checks of a process say together."""
    if not scores:
        return Agreement("unchecked", reference.label, detail=reference.reason)
    agreeing = sum(score.agreeing for score in scores)
    ties, positions = sum(score.ties for score in scores), sum(score.positions for score in scores)
    divergences = [score.kl_divergence for score in scores if score.kl_divergence is not None]
    return Agreement(
        "match" if (agreeing + ties) / positions >= LEAST_AGREEMENT else "mismatch",
        reference.label,
        agreeing,
        ties,
        positions,
        min(score.prefix for score in scores),
        scores[0].prefix_of,
        same_graph=reference.same_graph,
        kl_divergence=fmean(divergences) if len(divergences) == len(scores) else None,
    )


def check_prompt(job: GenerationJob, number: int) -> Prompt:
    """The prompt of a check [1, position], or the sound that is measured."""
    if job.cell.audio_digest:
        return job.prompts[0][None]
    generator = np.random.default_rng([job.cell.seed, _STREAM, number])
    length = min(CHECK_PROMPT, (job.model.context or 2 * CHECK_PROMPT) // 2)
    return generator.integers(0, job.model.vocabulary, (1, length), np.int64)


def _check_positions(model: GenerativeModel) -> int:
    return min(CHECK_POSITIONS, (model.context or 2 * CHECK_POSITIONS) // 2)


def digest(prompt: Prompt) -> str:
    """What tells prompts apart."""
    kind = "<i8" if prompt.dtype.kind == "i" else "<f4"
    return hashlib.sha256(np.ascontiguousarray(prompt, kind).tobytes()).hexdigest()[:16]


def load_request(
    kind: str,
    cores: int,
    cpus: Sequence[int],
    pinning: str,
    batch_size: int,
    capacity: int,
    options: Mapping[str, str],
    start_tokens: Sequence[int] = (),
) -> dict[str, Any]:
    """How an engine is asked to load a model that generates."""
    return {
        "kind": kind,
        "groups": [list(cpus)],
        "layout": "each",
        "threads": cores,
        "cores": cores,
        "scheduler": "single_stream",
        "pinning": pinning,
        "batch_size": batch_size,
        "shapes": {"tokens": [batch_size, capacity]},
        "options": dict(options),
        "outputs": [],
        "start_tokens": list(start_tokens),
    }


def ask(worker: Worker, do: str, arrays: Arrays, **data: Any) -> Reply:
    """Send a request with arrays and wait for its answer."""
    heads, blocks = protocol.pack_arrays(arrays)
    return worker.ask(do, blocks, arrays=heads, **data)


def generate(
    worker: Worker, prompts: Prompt, new_tokens: int, watch: Sequence[int] = (), memory: bool = False
) -> Reply:
    """Let a child generate tokens behind prompts [sequence, position]."""
    return ask(worker, "generate", {"prompts": prompts}, new_tokens=new_tokens, watch=list(watch), memory=memory)


# The engine's options that decide what is written; others only how it is loaded.
_CONVERSION_OPTIONS = ("weights",)


@contextmanager
def engine_files(job: GenerationJob, listener: Listener) -> Iterator[tuple[Path, str]]:
    """The file or folder that the engine gets, and its kind; what is made for it is made once and cached."""
    cell, model = job.cell, job.model
    path, kind = Path(model.path), str(model.kind)
    with ExitStack() as stack:
        if runs_torch_weights(cell, model):
            kind = "transformers"
        if is_unpacked(cell, model):
            path, kind = stack.enter_context(dequantized(job, listener)), "transformers"
        if is_converted(cell, model):
            path, kind = stack.enter_context(_own_format(job, path, listener)), cell.engine
        yield path, kind


@contextmanager
def _own_format(job: GenerationJob, folder: Path, listener: Listener) -> Iterator[Path]:
    """The folder in the engine's own format that its child makes of a Hugging Face folder."""
    launch = registry.launch_generator(job.cell.engine)
    options: Mapping[str, str] = {
        key: value for key, value in job.cell.engine_options if key in _CONVERSION_OPTIONS
    }
    wanted = Conversion(
        launch=launch,
        source=folder,
        options=options,
        # Its transformers reads the folder.
        identity=[
            "generation",
            job.model.digest,
            registry.stamp(launch),
            registry.stamp(registry.launch_generator(REFERENCE)),
        ],
        conditions=[],
        patience_s=job.patience_s,
    )
    with converted(wanted, lambda file: 0.0, listener) as file:
        yield file.path.parent
