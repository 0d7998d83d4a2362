"""What an engine is to the child: a few methods and a set of capabilities."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

#: The types of caches of keys and values, as engines that generate call them.
CACHE_TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "uint8": "u8"}
# What layers take is told of this many inferences at least, after as many to warm up; and of so many at most.
WARMUP = _LEAST = 3
MOST_RUNS = 1000

Item = TypeVar("Item")
_NONE: Dict[str, Any] = {}


class BadOption(Exception):
    """An option, a setting or an input that this engine does not take: the user's to mend."""


class LoadOptions(NamedTuple):
    """How a model is to be loaded."""

    kind: str
    #: The CPUs to run on, one for each core; empty where nothing is pinned.
    cpus: List[int]
    #: Threads for one inference, the calling thread included.
    threads: int
    #: Cores for this one loaded model, over all its streams.
    cores: int
    #: Streams that this one loaded model serves.
    streams: int = 1
    #: "single_stream", "multi_stream" or "elastic".
    scheduler: str = "single_stream"
    pinning: str = "none"
    batch_size: int = 1
    #: The shape of every input, by name.
    shapes: Dict[str, List[int]] = _NONE
    #: The user's KEY=VALUE options.
    options: Dict[str, str] = _NONE
    #: The tokens that the decoder of an encoder–decoder begins with.
    start_tokens: Sequence[int] = ()


class Engine:
    """The base of all engines: its defaults say what an engine cannot do.

    One of a user's own need not derive from it: whatever it does not define is taken from here.
    """

    #: "native_streams": one loaded model serves several streams, the cores divided among them by the engine.
    #: "shared_streams": one loaded model serves several streams that share all its cores.
    #: "process_streams": a process loads one model and serves one stream, so each stream gets its own.
    #: "layer_times": it tells what its layers take. "imposed_sparsity": also as if weights were pruned.
    #: "generation": it generates tokens; load gets the shape of `tokens`: sequences, and tokens of each.
    #: "encoder": also behind an encoder, which gets the prompts; the decoder begins with `start_tokens`.
    #: "whole_sequences": it generates sequences to their end (`generate`), not token by token (`prefill`, `step`).
    #: "remote": it computes in a process that is not ours, so nothing is known of its memory, threads and CPUs.
    #: "continuous_batching": it computes sequences together, each at its own position (`advance`).
    #: "concurrent_requests": it takes requests of several threads at once (`complete`).
    capabilities: FrozenSet[str] = frozenset()
    #: The kinds of model that it runs.
    kinds: FrozenSet[str] = frozenset({"onnx"})
    #: Distributions whose versions are recorded, the engine's own first.
    packages: Sequence[str] = ()
    #: Distributions that only some models need; their versions are recorded where they are installed.
    extras: Sequence[str] = ()
    #: The share of the model's operators that run in the engine's own kernels, where it falls back for the others.
    fraction_of_supported_ops: Optional[float] = None
    #: Of an encoder–decoder: the tokens [sequence, position] that its decoder begins with.
    _start_tokens: Any = None
    _encoded_ns: Optional[int] = None

    def prepare(self) -> None:
        """Import the engine's packages, so that the time and memory of load are the model's own."""

    def prepare_for(self, model: Optional[str], kind: str) -> None:
        """Import what a model needs besides; without one, what all models of its kind need."""

    @classmethod
    def check_options(cls, options: Dict[str, str]) -> None:
        """Refuse options that it does not have; asked before anything else of engines that convert models."""

    def convert(self, model: str, folder: str, options: Dict[str, str]) -> List[Dict[str, Any]]:
        """Write the model into a folder in the format that load reads; asked of engines that read none of ours.

        Gives the files: dicts with `file`, its name, and `options`, those of the user's that are decided by taking
        it. Of several the one is loaded that is faster.
        """
        raise BadOption("it does not convert models")

    def load(self, model: str, options: LoadOptions) -> Dict[str, Any]:
        """Load the model file and return the settings in force, as plain data for the record."""
        raise BadOption("its class has no method load")

    def bind(self, inputs: Dict[str, Any], stream: int = 0) -> Callable[[], Any]:
        """A call without arguments that runs one inference: the hot path, so nothing is copied in it.

        What it returns, `outputs` can turn into arrays; it may be None where buffers are bound.
        """
        raise BadOption("its class has no method bind")

    def outputs(self, call: Callable[[], Any], returned: Any) -> Any:
        """The outputs of a call's last run, given what it returned: arrays in a list or a dict by name."""
        return returned

    def after_first_run(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """The call to go on with once it has run: itself, unless it cannot run again as it was bound.

        Whatever changes with it is changed in the settings that load returned.
        """
        return call

    def layer_times(
        self, inputs: Dict[str, Any], seconds: float, imposed_sparsity: Optional[float] = None
    ) -> Dict[str, Any]:
        """What each executed layer takes, with the same threads and options as load set; needs "layer_times".

        `layers`: dicts with name, type, kernel, covers (names of nodes or of their outputs in the model's file),
        fallback, and ns, the time an inference; `wall_ns`, the median time of an inference meanwhile;
        `iterations`; `unnamed`, "before" where nodes that no layer names belong to a layer before them rather than
        after, "activation" where only activations do; `graph`, the bytes of the optimised ONNX graph whose nodes
        the layers are. Only load may follow it.
        """
        raise BadOption("it does not report the times of its layers")

    def begin(self, context: Any) -> Optional[int]:
        """Empty the cache of keys and values, then fill it with tokens [sequence, position]; there may be none.

        Gives how many of them the cache holds, None for all: the others are computed with every prompt.
        """
        raise BadOption("it does not generate tokens")

    def rewind(self, depth: int) -> bool:
        """Let the cache forget all but the first tokens of every sequence; False where it cannot."""
        return False

    def prefill(self, prompts: Any) -> Any:
        """Compute tokens [sequence, position] behind those in the cache; the most likely next ones [sequence].

        A negative number stands for none: the engine has ended that sequence. Of a model with an encoder the
        prompts are that one's inputs, and the next tokens those behind its decoder's first.
        """
        if self._start_tokens is None:
            return self.decode(prompts)
        self.encode(prompts)
        self._encoded_ns = time.perf_counter_ns()
        return self.decode(self._start_tokens)

    def step(self, tokens: Any) -> Any:
        """The most likely next tokens behind one more of each sequence."""
        return self.decode(tokens[:, None])

    def decode(self, tokens: Any) -> Any:
        """What `prefill` and `step` ask for, of an engine that computes both alike."""
        raise BadOption("it does not generate tokens")

    def encode(self, inputs: Any) -> None:
        """Compute what the decoder reads of its encoder's inputs."""
        raise BadOption("it has no encoder")

    def take_start_tokens(self, options: LoadOptions) -> None:
        """Note what the decoder of a model with an encoder begins with."""
        import numpy

        if not options.start_tokens:
            raise BadOption("an encoder–decoder needs the tokens that its decoder begins with")
        self._start_tokens = numpy.tile(numpy.array(options.start_tokens, numpy.int64), (options.batch_size, 1))

    def refuse_context(self, context: Any) -> None:
        """Refuse tokens in the cache of a model whose prompts are its encoder's inputs."""
        if self._start_tokens is not None and context.shape[1]:
            raise BadOption("an encoder–decoder has no tokens before its prompt")

    def encoded_ns(self) -> Optional[int]:
        """When the encoder was done in the last prefill; None without one."""
        return self._encoded_ns

    def generate(self, prompts: Any, new_tokens: int, emit: Callable[[int, int], None]) -> None:
        """Generate behind prompts [sequence, position]; `emit` gets a sequence's number and each of its tokens.

        Asked of engines with "whole_sequences". A sequence that ends early emits fewer tokens.
        """
        raise BadOption("it does not generate whole sequences")

    def advance(self, pieces: Sequence[Tuple[int, Any]]) -> Any:
        """Compute tokens [position] of sequences, by their number, in one batch; the most likely next of each.

        Asked of engines with "continuous_batching": one sequence may begin its prompt while others decode.
        """
        raise BadOption("it does not batch continuously")

    def forget(self, sequence: int, depth: int) -> None:
        """Let the cache forget all but the first tokens of one sequence; asked with "continuous_batching"."""
        raise BadOption("it does not batch continuously")

    def complete(self, prompt: Any, new_tokens: int, emit: Callable[[int], None]) -> None:
        """Generate behind one prompt [position]; `emit` is called with each token when it is there.

        Asked by several threads at once of engines with "concurrent_requests". A negative token stands for an end.
        """
        import numpy

        if "whole_sequences" in self.capabilities:
            self.generate(prompt[None], new_tokens, lambda _, token: emit(token))
            return
        token = self.prefill(prompt[None])
        emit(int(token[0]))
        for _ in range(1, new_tokens):
            token = self.step(numpy.asarray(token))
            emit(int(token[0]))

    def logits(self) -> Optional[Any]:
        """The logits [sequence, token] that the last tokens were chosen by; None where it does not tell them."""
        return None

    def cache_bytes(self) -> Optional[int]:
        """What the cache takes for the tokens in it, as the engine says; None where it does not."""
        return None

    def cache_growth(self) -> Optional[float]:
        """What the process grows with each token that a cache has room for.

        Asked at the end of engines that make room for all tokens when they load; None where it cannot be measured.
        """
        return None

    def versions(self) -> Dict[str, str]:
        """Versions that no package of this process tells, such as a server's; asked after load."""
        return {}

    def inspect(self, model: str, kind: str) -> Dict[str, Any]:
        """Inputs, outputs and weights of a model that only its engine can read, as plain data."""
        raise BadOption("it cannot describe models of kind {}".format(kind))

    def close(self) -> None:
        """Let go of what load took."""

    @classmethod
    def deployment(cls, options: LoadOptions) -> str:
        """Python for a program of the user's own that runs the file MODEL as load would; empty for none.

        It imports numpy and defines load(cpus), which gives a loaded model, and stream(model), which gives a
        function from a dict of arrays to a list of arrays for one stream.
        """
        return ""


class WholeSequences(Engine):
    """The base of engines that keep nothing of a sequence: the context is computed with every prompt."""

    capabilities = frozenset({"generation", "whole_sequences", "concurrent_requests"})
    _context: Any

    def begin(self, context: Any) -> Optional[int]:
        """Remember a context."""
        self._context = context
        return 0

    def rewind(self, depth: int) -> bool:
        """Nothing is kept of what was generated."""
        return True

    def behind_context(self, prompt: Any, row: int) -> Any:
        """The tokens [position] of a sequence: those of the context, then its prompt."""
        import numpy

        return numpy.concatenate([self._context[row], prompt]) if self._context.shape[1] else prompt


class Options:
    """The user's KEY=VALUE options, read once each; what nobody read is refused."""

    def __init__(self, given: Dict[str, str]) -> None:
        self._left = dict(given)
        self._known: List[str] = []

    def passed_on(self, belongs: Callable[[str], bool]) -> Dict[str, str]:
        """The options whose keys are those of the engine's own interface."""
        return {key: self._left.pop(key) for key in list(self._left) if belongs(key)}

    def text(self, key: str, default: str, choices: Sequence[str] = ()) -> str:
        """The option as it was written, one of `choices` where there are any."""
        self._known.append(key)
        value = self._left.pop(key, default)
        if choices and value not in choices:
            raise BadOption("{}={} is not possible; {} takes {}".format(key, value, key, ", ".join(choices)))
        return value

    def flag(self, key: str, default: bool) -> bool:
        """An option that is 0 or 1."""
        return self.text(key, "1" if default else "0", ("0", "1")) == "1"

    def number(self, key: str, default: float) -> float:
        """An option that is a number."""
        value = self.text(key, str(default))
        try:
            return float(value)
        except ValueError:
            raise BadOption("{}={} is not a number".format(key, value)) from None

    def finish(self) -> None:
        """Refuse what was given and not read."""
        if self._left:
            raise BadOption(
                "unknown option {}; it takes {}".format(
                    ", ".join(sorted(self._left)), ", ".join(sorted(self._known)) or "none"
                )
            )


# What engines tell of their layers.


def layer(
    name: str, kind: str, kernel: str, covers: Sequence[str], ns: float, fallback: bool = False
) -> Dict[str, Any]:
    """One layer, as `Engine.layer_times` tells of it."""
    return {
        "name": name,
        "type": kind,
        "kernel": kernel,
        "covers": list(covers),
        "fallback": fallback,
        "ns": max(0.0, float(ns)),
    }


def times_ns(
    call: Callable[[], Any], seconds: float, warmup: int = WARMUP, least: int = _LEAST, most: int = 1 << 62
) -> List[int]:
    """How long each call took for a while, after some to warm up."""
    clock = time.perf_counter_ns
    for _ in range(warmup):
        call()
    walls_ns: List[int] = []
    end = clock() + int(seconds * 1e9)
    while len(walls_ns) < least or (clock() < end and len(walls_ns) < most):
        started = clock()
        call()
        walls_ns.append(clock() - started)
    return walls_ns


def middle_half(runs: Sequence[Item], total: Callable[[Item], float]) -> List[Item]:
    """The middle half of the runs: a disturbed one would stretch the layer that it happened to hit."""
    ordered = sorted(runs, key=total)
    quarter = len(ordered) // 4
    return ordered[quarter : len(ordered) - quarter] or ordered
