"""Measuring a cell of a generation alone on this machine, in fresh processes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import EngineFailed
from inferlab.measure.cell import measuring_alone
from inferlab.measure.children import FreshProcesses
from inferlab.measure.generation.cells import (
    decoder_tokens,
    end_position,
    generation_processes,
    serving_of,
    transcript_of,
)
from inferlab.measure.generation.prompts import (
    CONTEXT,
    PROMPT,
    batch_of_prompts,
    random_tokens,
    request_prompts,
    unseen_prompts,
)
from inferlab.measure.generation.reference import (
    CHECK_POSITIONS,
    CHECK_PROMPT,
    GenerationJob,
    Prompt,
    Reference,
    Score,
    Tokens,
    agreement_of,
    ask,
    check_prompt,
    compare_tokens,
    digest,
    engine_files,
    generate,
    load_request,
    reference_for,
)
from inferlab.measure.generation.stats import CACHED_SHARE
from inferlab.measure.queueing import poisson_arrivals
from inferlab.records import Event, Listener
from inferlab.records.generation import Agreement, CacheSize, Generation, GenerationRun, Repetition
from inferlab.worker import Launch, Reply, Worker

_BYTES = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32, "u8": 1.0, "i8": 1.0}
# Caches that have room for all tokens when the model is loaded: a process does not grow when they fill.
_MADE_AT_LOAD = ("allocated", "pool", "shared buffer")
# A server gets this much longer than its requests take to arrive, and time for a few more; what is left then is
# given up.
_OVERTIME = 1.25
_OVERTIME_REQUESTS = 4
# A prompt that looks cached is followed by so many others at most: a new one may only have been disturbed.
_PREFIX_TRIALS = 3


def measure_generation(
    job: GenerationJob, before: Sequence[GenerationRun], listener: Listener
) -> Iterator[GenerationRun]:
    """Measure a job alone on this machine, one run for each process; raises what the engine did wrong."""
    cell = job.cell
    runs = list(before)
    label = f"generation of {job.model.source} on {cell.engine}"
    with measuring_alone(label, listener), prepare_generation(job, listener) as prepared:
        while not runs or len(runs) < generation_processes(cell, runs[0].ready_s):
            listener(Event("loading", {"engine": cell.engine, "process": len(runs) + 1}))
            with Process(prepared, len(runs)) as process:
                first = not runs
                if first:
                    listener(Event("engine", process.settings()))
                process.check(0)
                share_s = cell.time_s / generation_processes(cell, (process if first else runs[0]).ready_s)
                if first:
                    listener(Event("generating", {"seconds": cell.time_s}))
                process.warm_up()
                if cell.rate is None:
                    process.repeat(share_s)
                else:
                    process.serve_for(share_s, cell.rate)
                process.check_cached_prefix()
                process.check(1)
                runs.append(process.run())
            yield runs[-1]


@dataclass(frozen=True, slots=True)
class PreparedGeneration:
    """A job that is ready to be measured in as many fresh processes as wanted."""

    job: GenerationJob
    launch: Launch
    #: The file or folder that the engine gets.
    path: Path
    kind: str
    reference: Reference


@contextmanager
def prepare_generation(job: GenerationJob, listener: Listener) -> Iterator[PreparedGeneration]:
    """Make ready what a job needs once: the reference's tokens, and the file that the engine gets."""
    cell = job.cell
    with ExitStack() as stack:
        reference = Reference("", reason="--no-verify was given")
        if cell.verify:
            reference = reference_for(job, listener)
        launch = registry.launch_generator(cell.engine)
        path, kind = stack.enter_context(engine_files(job, listener))
        listener(Event("pinning", {"mode": cell.thread_pinning}))
        yield PreparedGeneration(job, launch, path, kind, reference)


class Process(FreshProcesses):
    """One fresh process with the model loaded: checked, warmed up, measured, and checked again."""

    def __init__(self, prepared: PreparedGeneration, number: int) -> None:
        super().__init__()
        self._prepared, self._number = prepared, number
        self._job = prepared.job
        self._cell, self._model = prepared.job.cell, prepared.job.model
        # Beside a server's own threads, the client is not bound to their CPUs.
        self._cpus = (
            []
            if registry.is_server(self._cell.engine)
            else machine.choose_cpus(self._cell.num_cores, self._cell.thread_pinning, self._cell.cpu_list)
        )
        self._serving = serving_of(self._cell)
        self._scores: list[Score] = []
        self._repetitions: list[Repetition] = []
        self._warm_up: Reply | None = None
        #: Generations so far, the warm-up among them: each gets prompts of its own.
        self._generations = 0
        self._requests = 0
        self._arrivals: int | None = None
        #: To the first token of a prompt that nothing had seen, and of the same one again.
        self._unseen_ttft_ns: int | None = None
        self._repeated_ttft_ns: int | None = None
        self._before_bytes: int | None = None
        began = time.monotonic()
        self._worker = Worker(prepared.launch, self._cpus, prepared.job.patience_s)
        self._workers.append(self._worker)
        try:
            self.loaded = self._worker.ask("load", model=str(prepared.path), **self._request()).data
            self.ready_s = time.monotonic() - began
            self._loaded_bytes = self._empty()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    @property
    def repetitions(self) -> tuple[Repetition, ...]:
        """All that was measured."""
        return tuple(self._repetitions)

    def settings(self) -> dict[str, Any]:
        """What is in force, for the log."""
        version = next(iter(self.loaded["versions"].values()), "")
        return {"engine": self._cell.engine, "version": version, **self.loaded["settings"]}

    def check(self, number: int) -> None:
        """Compare free generations and forced tokens with the reference's, in every sequence of a batch.

        Sequences beside each other have other prompts: tokens of one that are given for another do not pass.
        """
        checks, rows = self._reference.checks, self._cell.batch_size
        if not checks:
            return
        self._empty()
        numbers = [(number + row) % len(checks) for row in range(rows)]
        expected = {name: np.stack([checks[each][name] for each in numbers]) for name in checks[0]}
        prompts = np.concatenate([check_prompt(self._job, each) for each in numbers])
        free = generate(self._worker, prompts, expected["greedy"].shape[1]).arrays()["token_ids"]
        forced = {"prompts": prompts, "tokens": expected["drawn"], "candidates": expected["candidates"]}
        # Requests that are batched continuously are checked as they are computed: at positions of their own.
        batched = self._cell.rate is not None and self._serving == "continuous batching"
        chosen = ask(self._worker, "force", forced, batched=batched).arrays()
        self._scores.append(compare_tokens(free, chosen, expected))

    def agreement(self) -> Agreement:
        """What all checks so far say together."""
        return agreement_of(self._reference, self._scores)

    @property
    def _reference(self) -> Reference:
        """What there is to compare with, where the engine says which tokens it chose."""
        reference = self._prepared.reference
        if self.loaded["settings"].get("token_ids") != "none":
            return reference
        return replace(reference, checks=(), reason="the server does not say which tokens it chose")

    def warm_up(self) -> float:
        """Fill the cache to its depth, and generate once; the seconds that this took."""
        cell = self._cell
        self._before_bytes = self._empty()
        if cell.depth:
            context = random_tokens(cell, self._model.vocabulary, CONTEXT, length=cell.depth)
            ask(self._worker, "context", {"context": context})
        # Requests may have prompts of any lengths, which do not make a batch; of a sound there is one.
        prompts = (
            self._next_prompts()
            if cell.rate is None or cell.audio_digest
            else random_tokens(cell, self._model.vocabulary, PROMPT, self._number, length=cell.prompt_tokens)
        )
        self._warm_up = generate(self._worker, prompts, cell.new_tokens, self._cpus, memory=True)
        return self._first_generation_s

    @property
    def _first_generation_s(self) -> float:
        assert self._warm_up is not None, "a process is warmed up before it is measured"
        return float(self._warm_up.arrays()["token_ns"].max()) / 1e9

    @property
    def _cached_tokens(self) -> int:
        assert self._warm_up is not None, "a process is warmed up before it is measured"
        return int(self._warm_up.data["cached_tokens"])

    def repeat(self, share_s: float) -> None:
        """Generate behind new prompts until the share of the time is over, once at least."""
        end = time.monotonic() + share_s
        while True:
            self.generate_once(self._next_prompts())
            if time.monotonic() >= end:
                return

    def wake(self) -> None:
        """Compute a few tokens, untimed: after a pause threads wake up and caches fill."""
        few = np.zeros((self._cell.batch_size, 4), np.int64)
        generate(self._worker, self._next_prompts() if self._cell.audio_digest else few, 1)

    def generate_once(self, prompts: Tokens) -> Repetition:
        """Generate one batch, timed."""
        cell = self._cell
        reply = generate(self._worker, prompts, cell.new_tokens, self._cpus)
        arrays = reply.arrays()
        times, ids = arrays["token_ns"], arrays["token_ids"]
        if ids.shape != (cell.batch_size, cell.new_tokens):
            raise EngineFailed(
                f"Engine '{cell.engine}' generated tokens of shape {list(ids.shape)} where "
                f"{[cell.batch_size, cell.new_tokens]} were asked for."
            )
        repetition = Repetition(
            tuple(
                self._sequence(prompts[row], times[row], ids[row], reply.data["encoder_ns"])
                for row in range(len(ids))
            ),
            int(reply.data["prefill_cpu_ns"]),
            int(reply.data["decode_cpu_ns"]),
            reply.data["counters"],
            int(reply.data["canary_ns"]),
        )
        self._repetitions.append(repetition)
        return repetition

    def serve_for(self, seconds: float, rate: float) -> None:
        """Serve the requests that arrive in so many seconds, the same for every engine."""
        # Every process gets arrivals of its own, the same ones each time the cell is measured.
        arrivals = poisson_arrivals(rate, seconds, self._cell.seed * 1000 + self._number)
        most_s = _OVERTIME * seconds + _OVERTIME_REQUESTS * self._first_generation_s
        self.serve(arrivals, most_s)

    def serve(self, arrivals_ns: NDArray[np.int64], most_s: float) -> Repetition:
        """Serve requests that arrive at these moments; what is not done after `most_s` is given up."""
        prompts = request_prompts(self._job, self._number, self._requests, len(arrivals_ns))
        self._requests += len(prompts)
        self._arrivals = (self._arrivals or 0) + len(prompts)
        if not prompts:
            return Repetition((), 0, 0, {}, 0)
        reply = self._answer(prompts, arrivals_ns, self._cell.new_tokens, most_s)
        arrays = reply.arrays()
        served: list[int] = np.flatnonzero(arrays["finished"]).tolist()
        sequences = tuple(
            self._request_sequence(prompts[number], int(arrivals_ns[number]), arrays, number) for number in served
        )
        repetition = Repetition(
            sequences, 0, int(reply.data["cpu_ns"]), reply.data["counters"], int(reply.data["canary_ns"])
        )
        self._repetitions.append(repetition)
        return repetition

    def _answer(
        self, prompts: Sequence[Prompt], arrivals_ns: NDArray[np.int64], new_tokens: int, most_s: float
    ) -> Reply:
        """Let the child answer requests; until then this process sleeps."""
        # Requests may share a prompt, and a sound is long.
        different = {id(prompt): prompt for prompt in prompts}
        places = {key: place for place, key in enumerate(different)}
        return ask(
            self._worker,
            "answer",
            {
                "prompts": np.concatenate([*different.values()]),
                "lengths": np.array([len(prompt) for prompt in different.values()], np.int64),
                "numbers": np.array([places[id(prompt)] for prompt in prompts], np.int64),
                "arrivals_ns": arrivals_ns,
            },
            work_s=most_s,
            new_tokens=new_tokens,
            sequences=self._cell.batch_size,
            seconds=most_s,
            watch=self._cpus,
        )

    def check_cached_prefix(self) -> None:
        """Ask a prompt that nothing has seen, then the same again: that is answered soon only from a cache.

        What was measured is no measure of it: prompts of the user's own come again, and may be in the cache
        themselves. A sound is the same each time, so that nothing can be told by it.
        """
        if self._cell.audio_digest or (self._cell.rate is not None and not self._requests):
            return
        for _ in range(_PREFIX_TRIALS):
            prompts = unseen_prompts(self._job)
            unseen_ns, repeated_ns = self._first_token_ns(prompts), self._first_token_ns(prompts)
            if unseen_ns is None or repeated_ns is None:
                return
            self._unseen_ttft_ns, self._repeated_ttft_ns = unseen_ns, repeated_ns
            if repeated_ns >= CACHED_SHARE * unseen_ns:
                return

    def _first_token_ns(self, prompts: Tokens) -> int | None:
        """Until every prompt of a batch, or the first as a request, has a token; None where it was given up."""
        if self._cell.rate is None:
            return int(generate(self._worker, prompts, 1).arrays()["token_ns"][:, 0].max())
        patience_s = _OVERTIME_REQUESTS * self._first_generation_s + 1
        arrays = self._answer([prompts[0]], np.zeros(1, np.int64), 1, patience_s).arrays()
        return int(arrays["token_ns"][0, 0] - arrays["submitted_ns"][0]) if arrays["finished"][0] else None

    def run(self) -> GenerationRun:
        """The record of all that was measured."""
        assert self._warm_up is not None, "a process is warmed up before it is measured"
        told = self._warm_up.data
        first = next((sequence for each in self._repetitions for sequence in each.sequences), None)
        settings = {**told["settings"], **({} if self._cell.rate is None else {"serving": self._serving})}
        return GenerationRun(
            cell_id=self._cell.id,
            started_at=self.started_at,
            repetitions=self.repetitions,
            ready_s=self.ready_s,
            load_s=self.loaded["load_s"],
            first_generation_s=self._first_generation_s,
            baseline_memory_bytes=self.loaded["baseline_memory_bytes"],
            loaded_memory_bytes=self._loaded_bytes,
            prefilled_memory_bytes=told["prefilled_memory_bytes"],
            decoded_memory_bytes=told["decoded_memory_bytes"],
            cache=self._cache(settings, told),
            repeated_ttft_ns=self._repeated_ttft_ns,
            unseen_ttft_ns=self._unseen_ttft_ns,
            agreement=self.agreement(),
            versions=self.versions,
            settings=settings,
            machine=machine.describe(),
            pinned=self._worker.pinned,
            arrivals=self._arrivals,
            transcript=transcript_of(self._model, first) if first and self._cell.audio_s else "",
        )

    def _empty(self) -> int | None:
        """Empty the cache; what is resident then."""
        empty = np.zeros((self._cell.batch_size, 0), np.int64)
        resident: int | None = ask(self._worker, "context", {"context": empty}).data["memory_bytes"]
        return resident

    def _request(self) -> dict[str, Any]:
        cell = self._cell
        capacity = max(
            cell.depth + cell.prompt_tokens + cell.new_tokens,
            min(CHECK_PROMPT + CHECK_POSITIONS, self._model.context or math.inf),
        )
        return load_request(
            self._prepared.kind,
            cell.num_cores,
            self._cpus,
            cell.thread_pinning,
            cell.batch_size,
            int(capacity),
            dict(cell.engine_options),
            () if self._model.encoder is None else self._model.encoder.start_tokens,
        )

    def _next_prompts(self) -> Tokens:
        prompts = batch_of_prompts(self._job, self._number, self._generations)
        self._generations += 1
        return prompts

    def _sequence(
        self, prompt: Prompt, times: NDArray[Any], ids: NDArray[Any], encoder_ns: int | None = None
    ) -> Generation:
        """A sequence with the tokens that were really emitted, of which there is one at least."""
        ended = np.flatnonzero(ids < 0)
        count = int(ended[0]) if len(ended) else len(ids)
        if count == 0:
            raise EngineFailed(f"Engine '{self._cell.engine}' generated no token behind a prompt.")
        token_ids = tuple(int(one) for one in ids[:count])
        sound = self._cell.audio_s is not None
        return Generation(
            prompt_digest=digest(prompt),
            # What of the depth an engine cannot keep it computes with the prompt.
            prompt_tokens=0 if sound else len(prompt) + self._cell.depth - self._cached_tokens,
            cached_tokens=self._cached_tokens,
            token_ns=tuple(int(one) for one in times[:count]),
            token_ids=token_ids,
            finish_reason="length" if count == len(ids) else "stop",
            encoder_ns=encoder_ns,
            audio_s=self._cell.audio_s,
            end_position=end_position(self._model, token_ids),
        )

    def _request_sequence(
        self, prompt: Prompt, arrival_ns: int, arrays: Mapping[str, NDArray[Any]], number: int
    ) -> Generation:
        """A request that was served; its times count from its scheduled arrival."""
        encoder_ns = None if self._model.encoder is None else int(arrays["encoder_ns"][number]) - arrival_ns
        times = arrays["token_ns"][number] - arrival_ns
        return replace(
            self._sequence(prompt, times, arrays["token_ids"][number], encoder_ns),
            scheduled_ns=arrival_ns,
            submitted_ns=int(arrays["submitted_ns"][number]) - arrival_ns,
            late_ns=int(arrays["late_ns"][number]),
        )

    def _cache(self, settings: Mapping[str, Any], told: Mapping[str, Any]) -> CacheSize:
        cell, dtype = self._cell, str(settings.get("kv_dtype", ""))
        # The last token is chosen but not computed.
        tokens = cell.batch_size * (decoder_tokens(cell, self._model) - 1)
        formula = self._model.kv_bytes_per_token(_BYTES[dtype]) if dtype in _BYTES else None
        engine = None if told["cache_bytes"] is None else told["cache_bytes"] / tokens
        measured: float | None = None
        if settings.get("cache") in _MADE_AT_LOAD:
            measured = ask(self._worker, "cache_growth", {}).data["bytes"]
        elif self._model.encoder is not None:
            pass  # what the encoder takes cannot be told from the cache by what the process grew
        elif self._before_bytes is not None and told["decoded_memory_bytes"] is not None:
            measured = max(0, told["decoded_memory_bytes"] - self._before_bytes) / tokens
        return CacheSize(formula, engine, measured, dtype)
