"""Measuring a cell of a generation alone on this machine, in fresh processes."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import EngineFailed
from inferlab.measure.cell import measuring_alone
from inferlab.measure.generation.cells import REFERENCE
from inferlab.measure.generation.reference import (
    CHECK_POSITIONS,
    CHECK_PROMPT,
    GenerationJob,
    Reference,
    Score,
    Tokens,
    agreement_of,
    ask,
    check_prompt,
    compare_tokens,
    dequantized,
    digest,
    generate,
    load_request,
    reference_for,
)
from inferlab.measure.stats import processes_for
from inferlab.records import Event, Listener
from inferlab.records.generation import CacheSize, Generation, GenerationCell, GenerationRun, Repetition
from inferlab.version import __version__
from inferlab.worker import Launch, Worker

# Numbers of the streams of random tokens.
_CONTEXT, _PROMPT = 1, 2
_BYTES = {"f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q4_0": 18 / 32}


def random_tokens(cell: GenerationCell, vocabulary: int, stream: int, *numbers: int, length: int) -> Tokens:
    """Token ids [sequence, position]; the same for every engine, other ones for other numbers."""
    generator = np.random.default_rng([cell.seed, stream, *numbers])
    return generator.integers(0, vocabulary, (cell.batch_size, length), np.int64)


def measure_generation(
    job: GenerationJob, before: Sequence[GenerationRun], listener: Listener
) -> Iterator[GenerationRun]:
    """Measure a job alone on this machine, one run for each process; raises what the engine did wrong."""
    cell = job.cell
    runs = list(before)
    label = f"generation of {job.model.source} on {cell.engine}"
    with measuring_alone(label, listener), _prepared(job, listener) as prepared:
        while not runs or len(runs) < processes_for(cell, runs[0].ready_s):
            listener(Event("loading", {"engine": cell.engine, "process": len(runs) + 1}))
            share_s = cell.time_s / (processes_for(cell, runs[0].ready_s) if runs else 1)
            runs.append(_Process(prepared, len(runs)).run(share_s, first=not runs, listener=listener))
            yield runs[-1]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A job that is ready to be measured in as many fresh processes as wanted."""

    job: GenerationJob
    launch: Launch
    #: The file or folder that the engine gets.
    path: Path
    kind: str
    reference: Reference


@contextmanager
def _prepared(job: GenerationJob, listener: Listener) -> Iterator[_Prepared]:
    cell, model = job.cell, job.model
    with ExitStack() as stack:
        reference = Reference("", reason="--no-verify was given")
        if cell.verify:
            reference = reference_for(job, listener)
        launch = registry.launch_generator(cell.engine)
        path, kind = Path(model.path), str(model.kind)
        if cell.engine == REFERENCE and model.kind == "gguf":
            path, kind = stack.enter_context(dequantized(job, listener)), "transformers"
        listener(Event("pinning", {"mode": cell.thread_pinning}))
        yield _Prepared(job, launch, path, kind, reference)


class _Process:
    """One fresh process: loaded, checked, warmed up, measured repetition by repetition, and checked again."""

    def __init__(self, prepared: _Prepared, number: int) -> None:
        self._prepared, self._number = prepared, number
        self._cell, self._model = prepared.job.cell, prepared.job.model
        self._cpus = machine.choose_cpus(self._cell.num_cores, self._cell.thread_pinning, self._cell.cpu_list)
        self._scores: list[Score] = []

    def run(self, share_s: float, first: bool, listener: Listener) -> GenerationRun:
        """Measure for a while; of a first process the share is not known before it is ready."""
        cell = self._cell
        started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        began = time.monotonic()
        empty = np.zeros((cell.batch_size, 0), np.int64)
        with Worker(self._prepared.launch, self._cpus, self._prepared.job.patience_s) as worker:
            loaded = worker.ask("load", model=str(self._prepared.path), **self._request()).data
            ready_s = time.monotonic() - began
            if first:
                share_s = cell.time_s / processes_for(cell, ready_s)
                listener(Event("engine", self._settings(loaded)))
            loaded_bytes = ask(worker, "context", {"context": empty}).data["memory_bytes"]
            self._check(worker, 0)
            before = ask(worker, "context", {"context": empty}).data["memory_bytes"]
            if cell.depth:
                context = random_tokens(cell, self._model.vocabulary, _CONTEXT, length=cell.depth)
                ask(worker, "context", {"context": context})
            if first:
                listener(Event("generating", {"seconds": cell.time_s}))
            warm_up = generate(worker, self._prompts(0), cell.new_tokens, self._cpus, memory=True)
            repetitions = self._repeat(worker, share_s)
            # Seen before: soon answered only where prefixes are cached.
            again = generate(worker, self._prompts(len(repetitions)), 1)
            if self._prepared.reference.checks:
                ask(worker, "context", {"context": empty})
                self._check(worker, 1)
            pinned = worker.pinned
        settings = dict(warm_up.data["settings"])
        return GenerationRun(
            cell_id=cell.id,
            started_at=started_at,
            repetitions=repetitions,
            ready_s=ready_s,
            load_s=loaded["load_s"],
            first_generation_s=float(warm_up.arrays()["token_ns"].max()) / 1e9,
            baseline_memory_bytes=loaded["baseline_memory_bytes"],
            loaded_memory_bytes=loaded_bytes,
            prefilled_memory_bytes=warm_up.data["prefilled_memory_bytes"],
            decoded_memory_bytes=warm_up.data["decoded_memory_bytes"],
            cache=self._cache(settings, warm_up.data, before),
            repeated_ttft_ns=int(again.arrays()["token_ns"][:, 0].max()),
            agreement=agreement_of(self._prepared.reference, self._scores),
            versions={"inferlab": __version__, "python": sys.version.split()[0], **loaded["versions"]},
            settings=settings,
            machine=machine.describe(),
            pinned=pinned,
        )

    def _request(self) -> dict[str, Any]:
        cell = self._cell
        capacity = max(
            cell.depth + cell.prompt_tokens + cell.new_tokens,
            min(CHECK_PROMPT + CHECK_POSITIONS, self._model.context),
        )
        return load_request(
            self._prepared.kind,
            cell.num_cores,
            self._cpus,
            cell.thread_pinning,
            cell.batch_size,
            capacity,
            dict(cell.engine_options),
        )

    def _settings(self, loaded: Mapping[str, Any]) -> dict[str, Any]:
        version = next(iter(loaded["versions"].values()), "")
        return {"engine": self._cell.engine, "version": version, **loaded["settings"]}

    def _prompts(self, repetition: int) -> Tokens:
        cell = self._cell
        return random_tokens(
            cell, self._model.vocabulary, _PROMPT, self._number, repetition, length=cell.prompt_tokens
        )

    def _repeat(self, worker: Worker, share_s: float) -> tuple[Repetition, ...]:
        """Generate behind new prompts until the share of the time is over, once at least."""
        end = time.monotonic() + share_s
        repetitions: list[Repetition] = []
        while not repetitions or time.monotonic() < end:
            prompts = self._prompts(len(repetitions) + 1)
            reply = generate(worker, prompts, self._cell.new_tokens, self._cpus)
            arrays = reply.arrays()
            times, ids = arrays["token_ns"], arrays["token_ids"]
            if ids.shape != (self._cell.batch_size, self._cell.new_tokens):
                raise EngineFailed(
                    f"Engine '{self._cell.engine}' generated tokens of shape {list(ids.shape)} where "
                    f"{[self._cell.batch_size, self._cell.new_tokens]} were asked for."
                )
            repetitions.append(
                Repetition(
                    tuple(
                        self._sequence(prompts[row], times[row], ids[row], reply.data["cached_tokens"])
                        for row in range(len(ids))
                    ),
                    int(reply.data["prefill_cpu_ns"]),
                    int(reply.data["decode_cpu_ns"]),
                    reply.data["counters"],
                    int(reply.data["canary_ns"]),
                )
            )
        return tuple(repetitions)

    def _sequence(self, prompt: Tokens, times: NDArray[Any], ids: NDArray[Any], cached: int) -> Generation:
        """A sequence with the tokens that were really emitted, of which there is one at least."""
        ended = np.flatnonzero(ids < 0)
        count = int(ended[0]) if len(ended) else len(ids)
        if count == 0:
            raise EngineFailed(f"Engine '{self._cell.engine}' generated no token behind a prompt.")
        return Generation(
            prompt_digest=digest(prompt),
            # What of the depth an engine cannot keep it computes with the prompt.
            prompt_tokens=len(prompt) + self._cell.depth - cached,
            cached_tokens=cached,
            token_ns=tuple(int(one) for one in times[:count]),
            token_ids=tuple(int(one) for one in ids[:count]),
            finish_reason="length" if count == len(ids) else "stop",
        )

    def _check(self, worker: Worker, number: int) -> None:
        """Compare a free generation and forced tokens with the reference's, in every sequence of a batch."""
        if not self._prepared.reference.checks:
            return
        expected, rows = self._prepared.reference.checks[number], self._cell.batch_size
        tokens = expected["tokens"]
        prompts = np.repeat(check_prompt(self._prepared.job, number), rows, axis=0)
        free = generate(worker, prompts, len(tokens)).arrays()["token_ids"]
        forced = np.repeat(tokens[None], rows, axis=0)
        chosen = ask(worker, "force", {"prompts": prompts, "tokens": forced}, margins=False).arrays()["token_ids"]
        self._scores.append(compare_tokens(free, chosen, expected))

    def _cache(self, settings: Mapping[str, Any], told: Mapping[str, Any], before: int | None) -> CacheSize:
        cell, dtype = self._cell, str(settings.get("kv_dtype", ""))
        # The last token is chosen but not computed.
        tokens = cell.batch_size * (cell.depth + cell.prompt_tokens + cell.new_tokens - 1)
        formula = self._model.kv_bytes_per_token(_BYTES[dtype]) if dtype in _BYTES else None
        engine = None if told["cache_bytes"] is None else told["cache_bytes"] / tokens
        measured: float | None = None
        if settings.get("kv_allocated_tokens"):
            # All of it is made when the model is loaded.
            measured = settings.get("kv_allocated_bytes", 0) / settings["kv_allocated_tokens"] or None
        elif before is not None and told["decoded_memory_bytes"] is not None:
            measured = max(0, told["decoded_memory_bytes"] - before) / tokens
        return CacheSize(formula, engine, measured, dtype)
