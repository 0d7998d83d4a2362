"""Generation of tokens: the model that generates, what was asked, and what each process measured."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from inferlab.records.plan import Pinning
from inferlab.records.run import Estimate, Failure, Machine, Samples, Status, Window

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
class GenerativeModel:
    """A decoder-only language model that was found and read."""

    kind: Literal["gguf", "transformers"]
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
    #: The most tokens of a sequence.
    context: int
    vocabulary: int
    #: The type of most parameters.
    precision: str
    tensors: tuple[TensorGroup, ...]

    def kv_bytes_per_token(self, bytes_per_value: float = 2.0) -> float:
        """What the cache should take for each token of a sequence; by default in 16 bits."""
        return self.kv_values_per_token * bytes_per_value


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
    batch_sizes: tuple[int, ...] = (1,)
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

    @property
    def id(self) -> str:
        """The cell's identity: a hash of all that was fixed."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Generation:
    """One sequence: from its prompt to its last token. Times count from its submission."""

    prompt_digest: str
    prompt_tokens: int
    #: Tokens before the prompt that the cache held already.
    cached_tokens: int
    #: When each token was available.
    token_ns: tuple[int, ...]
    token_ids: tuple[int, ...]
    #: "length": as many tokens as were asked for; "stop": the engine ended it before.
    finish_reason: Literal["length", "stop"]


@dataclass(frozen=True, slots=True)
class Repetition:
    """The sequences of one batch, generated together, and what the system said about that time."""

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

    @property
    def windows(self) -> tuple[Window, ...]:
        """The repetitions as windows, by which is told what disturbed them."""
        return tuple(
            Window(
                (Samples(array("q", [0]), array("q", [max(one.token_ns[-1] for one in each.sequences)])),),
                each.counters,
                each.canary_ns,
            )
            for each in self.repetitions
        )


@dataclass(frozen=True, slots=True)
class GenerationOutcome:
    """A GenerationCell and what became of it."""

    cell: GenerationCell
    status: Status
    runs: tuple[GenerationRun, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class GenerationSweep:
    """A GenerationPlan, its model, and what became of every cell."""

    plan: GenerationPlan
    model: GenerativeModel
    outcomes: tuple[GenerationOutcome, ...]
    #: Its name in the store; empty where it was not saved.
    id: str = ""


@dataclass(frozen=True, slots=True)
class GenerationSummary:
    """Derived from a cell's runs; None where N is too small for a number."""

    ttft_ms: Estimate
    prefill_tokens_per_s: Estimate
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
