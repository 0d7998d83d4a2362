"""Generation of tokens: the model that generates, what was asked, and what each process measured."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from inferlab.records.benchmark import Estimate, Failure, Machine, Pinning, Samples, Status, Window

# Version 1: the first.
FORMAT = "inferlab-generation/1"


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """All tensors of a model that are stored in one type."""

    type: str
    tensors: int
    parameters: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Encoder:
    """The encoder of an encoder–decoder: what it takes, and with which tokens its decoder begins and ends."""

    #: Token ids, samples of sound, or frames of its spectrum (log-mel features).
    takes: Literal["tokens", "samples", "features"]
    parameters: int
    start_tokens: tuple[int, ...]
    end_token: int | None = None
    #: Layers of the encoder; None where neither graph nor configuration says.
    layers: int | None = None
    #: Of sound: samples per second, bands of the spectrum, seconds that it takes at most.
    sampling_rate: int | None = None
    bands: int | None = None
    longest_s: float | None = None


@dataclass(frozen=True, slots=True)
class GenerativeModel:
    """A model that generates tokens, found and read: a decoder alone, or behind an encoder."""

    kind: Literal["gguf", "transformers", "onnx", "ort", "onnxruntime-genai", "openvino-genai"]
    source: str
    path: str
    digest: str
    size_bytes: int
    architecture: str
    parameters: int
    layers: int
    heads: int
    kv_heads: int
    #: Numbers that the cache of keys and values holds for each token, over all layers.
    kv_values_per_token: int
    #: The most tokens of a sequence, of an encoder–decoder in either part; None where the model sets no limit.
    context: int | None
    vocabulary: int
    #: The type of most parameters.
    precision: str
    tensors: tuple[TensorGroup, ...]
    #: None for a decoder alone.
    encoder: Encoder | None = None
    #: Graphs have the weights that PyTorch loads beside them, in the same folder.
    torch_weights: bool = False

    def kv_bytes_per_token(self, bytes_per_value: float = 2.0) -> float:
        """What the cache should take for each token of a sequence; by default in 16 bits."""
        return self.kv_values_per_token * bytes_per_value


#: sync: a batch at a time, as soon as the last is done; server: requests arrive by themselves, at a rate.
GenerationScenario = Literal["sync", "server"]
#: Time to the first token, time per output token after it, and the whole request, each counted from its arrival.
TokenMetric = Literal["ttft", "tpot", "e2e"]


@dataclass(frozen=True, slots=True)
class TokenLimit:
    """A part of an objective: what a request may take at most."""

    metric: TokenMetric
    limit_s: float
    text: str


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """What the user asked for: the product of its tuples, each cell measured in the same way."""

    model: str
    #: None named: the one that usually runs the model's kind.
    engines: tuple[str, ...] = ()
    prompt_tokens: tuple[int, ...] = (128,)
    new_tokens: tuple[int, ...] = (64,)
    #: Tokens that the cache holds before the prompt.
    depths: tuple[int, ...] = (0,)
    #: None stands for 1, in the scenario server for as many as the engine can compute together.
    batch_sizes: tuple[int | None, ...] = (None,)
    #: None stands for all cores.
    num_cores: tuple[int | None, ...] = (None,)
    engine_options: tuple[tuple[str, str], ...] = ()
    thread_pinning: Pinning = "core"
    cpu_list: tuple[int, ...] = ()
    time_s: float = 10.0
    #: Fresh processes that share the time; None stands for 5, or fewer where loading takes long.
    processes: int | None = None
    seed: int = 0
    verify: bool = True
    patience_s: float | None = None
    scenario: GenerationScenario = "sync"
    #: Requests per second that arrive; the scenario server needs one, sync has none.
    rates: tuple[float | None, ...] = (None,)
    #: What a request must meet to be a good one.
    slo: tuple[TokenLimit, ...] = ()
    #: Prompts of the user's own, one JSON object per line; None: random token ids.
    prompts_file: str | None = None
    #: A WAV file with the sound that an encoder gets.
    audio: str | None = None


@dataclass(frozen=True, slots=True)
class GenerationCell:
    """One fully fixed choice out of a GenerationPlan."""

    model_digest: str
    engine: str
    prompt_tokens: int
    new_tokens: int
    depth: int
    batch_size: int
    num_cores: int
    engine_options: tuple[tuple[str, str], ...]
    thread_pinning: Pinning
    cpu_list: tuple[int, ...]
    time_s: float
    processes: int | None
    seed: int
    verify: bool
    #: Requests per second that arrive by themselves; None: a batch is begun when the last is done.
    rate: float | None = None
    #: What tells prompts of the user's own from others; then `prompt_tokens` is the length of the longest.
    prompts_digest: str = ""
    #: What tells the sound that the encoder gets from others, and its length; then there are no prompt tokens.
    audio_digest: str = ""
    audio_s: float | None = None

    @property
    def id(self) -> str:
        """The cell's identity: a hash of all that was fixed."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Generation:
    """One sequence: from its prompt to its last token. Times count from its submission, or scheduled arrival."""

    prompt_digest: str
    prompt_tokens: int
    #: Tokens before the prompt that the cache held already.
    cached_tokens: int
    #: When each token was available.
    token_ns: tuple[int, ...]
    token_ids: tuple[int, ...]
    #: "length": as many tokens as were asked for; "stop": the engine ended it before.
    finish_reason: Literal["length", "stop"]
    #: When it was to arrive, after the first moment of the run; None where the next begins when the last is done.
    scheduled_ns: int | None = None
    #: How long after its arrival the engine began with it.
    submitted_ns: int = 0
    #: How much of that the engine was free: the dispatcher was late.
    late_ns: int = 0
    #: When the encoder was done; None for a decoder alone.
    encoder_ns: int | None = None
    #: How long the sound is that the encoder got; None where it got tokens.
    audio_s: float | None = None
    #: Which of the tokens was the first that ends a text; None where none of them did.
    end_position: int | None = None


@dataclass(frozen=True, slots=True)
class Repetition:
    """The sequences of one batch, or all requests of a run, and what the system said about that time."""

    sequences: tuple[Generation, ...]
    #: CPU time of all threads until the first token, and from there to the last.
    prefill_cpu_ns: int
    decode_cpu_ns: int
    counters: Mapping[str, float]
    canary_ns: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """How an engine's tokens compare with those of the reference on the same weights."""

    status: Literal["match", "mismatch", "unchecked"]
    reference: str = ""
    #: Positions at which the engine, given the reference's tokens before, chose the same next token.
    agreeing: int = 0
    #: Positions at which it chose another, but the reference's own choice was close.
    ties: int = 0
    positions: int = 0
    #: Tokens of a free-running generation up to the first that differs; the shortest of all.
    prefix: int = 0
    #: How many there were.
    prefix_of: int = 0
    #: Why nothing was compared.
    detail: str = ""
    #: The reference is the same graph on a plainer engine, not FP32 torch: what is wrong in the file is in both.
    same_graph: bool = False
    #: Of the engine's probabilities from the reference's, in nats, mean over the positions; None where the engine
    #: does not tell them.
    kl_divergence: float | None = None

    @property
    def top1(self) -> float | None:
        """The share of positions with the same token; None where nothing was compared."""
        return self.agreeing / self.positions if self.positions else None


@dataclass(frozen=True, slots=True)
class CacheSize:
    """What the cache of keys and values takes for each token, told in three ways."""

    #: By the model's shape and the type of the cache.
    formula_bytes: float | None
    #: As the engine says.
    engine_bytes: float | None
    #: By what the process grew, other memory that it took meanwhile included.
    measured_bytes: float | None
    dtype: str


@dataclass(frozen=True, slots=True)
class GenerationRun:
    """What one fresh process measured of one GenerationCell."""

    cell_id: str
    started_at: str
    repetitions: tuple[Repetition, ...]
    #: From the start of the process to the loaded model, and the engine's own part of it.
    ready_s: float
    load_s: float
    #: The first generation of the process, which warms it up.
    first_generation_s: float
    #: Resident: before the model, with it, after a prefill, after decoding.
    baseline_memory_bytes: int | None
    loaded_memory_bytes: int | None
    prefilled_memory_bytes: int | None
    decoded_memory_bytes: int | None
    cache: CacheSize
    #: The first token of a prompt that had been seen before: much sooner where prefixes are cached.
    repeated_ttft_ns: int | None
    agreement: Agreement
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    machine: Machine
    pinned: bool
    #: Requests that were to arrive, where they arrive by themselves; what is missing was not served in time.
    arrivals: int | None = None
    #: What the tokens of the first sequence say up to the end; empty where there is no tokenizer, or no sound.
    transcript: str = ""
    #: The first token of the same prompt when nothing had seen it; None where an earlier version measured.
    unseen_ttft_ns: int | None = None

    @property
    def windows(self) -> tuple[Window, ...]:
        """The repetitions as windows, by which is told what disturbed them."""
        return tuple(
            Window(
                (Samples(array("q", [0]), array("q", [_end_ns(each)])),),
                each.counters,
                each.canary_ns,
            )
            for each in self.repetitions
            if each.sequences
        )


def _end_ns(repetition: Repetition) -> int:
    return max((sequence.scheduled_ns or 0) + sequence.token_ns[-1] for sequence in repetition.sequences)


@dataclass(frozen=True, slots=True)
class GenerationOutcome:
    """A GenerationCell and what became of it."""

    cell: GenerationCell
    status: Status
    runs: tuple[GenerationRun, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts of the user's own, as token ids, and what it took to make them of text."""

    #: Of all token ids.
    digest: str
    count: int
    shortest_tokens: int
    median_tokens: int
    longest_tokens: int
    #: Prompts that were text; the others were token ids already.
    texts: int = 0
    #: What made token ids of text, and how long it took for all of them together; apart from every other time.
    tokenizer: str = ""
    tokenize_s: float = 0.0


@dataclass(frozen=True, slots=True)
class GenerationSweep:
    """A GenerationPlan, its model, and what became of every cell."""

    plan: GenerationPlan
    model: GenerativeModel
    outcomes: tuple[GenerationOutcome, ...]
    prompts: PromptSet | None = None
    #: Its name in the store; empty where it was not saved.
    id: str = ""


@dataclass(frozen=True, slots=True)
class GenerationSummary:
    """Derived from a cell's runs; None where N is too small for a number."""

    ttft_ms: Estimate
    #: None where the prompt is sound.
    prefill_tokens_per_s: Estimate | None
    tpot_ms: Estimate | None
    decode_tokens_per_s: Estimate | None
    output_tokens_per_s: Estimate
    end_to_end_ms: Estimate
    cpu_s_per_token: Estimate | None
    load_s: Estimate
    first_generation_ms: Estimate
    #: Of every gap between two tokens; None where too few samples carry one.
    itl_percentiles_ms: Mapping[float, float | None]
    sequences: int
    #: What the encoder took of the time to the first token; None for a decoder alone.
    encoder_ms: Estimate | None = None
    #: The time to the end of the text over the length of the sound; below 1 it keeps up with who speaks.
    real_time_factor: Estimate | None = None


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """Derived from runs whose requests arrive by themselves; times count from the scheduled arrival.

    A request that was not served is later than every one that was: a percentile that reaches so far is unknown.
    """

    #: Requests that arrived, and the share of them that was not served in time.
    requests: int
    unserved_share: float
    #: Requests per second that were served, and those of them that meet every limit; None without limits.
    served_per_s: Estimate
    goodput_per_s: Estimate | None
    #: The share of the requests that meet every limit; None without limits.
    attainment: float | None
    #: By percent; None where too few requests carry one.
    ttft_percentiles_ms: Mapping[float, float | None]
    tpot_percentiles_ms: Mapping[float, float | None]
    end_to_end_percentiles_ms: Mapping[float, float | None]
    #: From the arrival to the beginning of the prefill.
    queue_percentiles_ms: Mapping[float, float | None]
    #: Sequences that the engine worked on at once, on average while it worked on any.
    concurrency: float
    #: The share of the requests that the dispatcher gave to a free engine late, and the longest such delay.
    late_share: float
    latest_ms: float
