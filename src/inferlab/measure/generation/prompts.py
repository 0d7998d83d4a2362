"""What engines generate behind: random token ids, the same for every engine, or prompts of a file as token ids."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from inferlab.codec import parse_json, read_text
from inferlab.engines import registry
from inferlab.errors import BadInput
from inferlab.measure.generation.reference import GenerationJob, Tokens
from inferlab.records import Event, Listener
from inferlab.records.generation import GenerationCell, GenerativeModel, PromptSet
from inferlab.worker import ONNXRUNTIME, Reply, Worker

# Numbers of the streams of random tokens.
CONTEXT, PROMPT, REQUEST = 1, 2, 4
# So far apart begin the processes in a list of prompts: a prime, so that they do not begin alike.
_APART = 7919


def random_tokens(cell: GenerationCell, vocabulary: int, stream: int, *numbers: int, length: int) -> Tokens:
    """Token ids [sequence, position]; the same for every engine, other ones for other numbers."""
    generator = np.random.default_rng([cell.seed, stream, *numbers])
    return generator.integers(0, vocabulary, (cell.batch_size, length), np.int64)


def batch_of_prompts(job: GenerationJob, process: int, repetition: int) -> Tokens:
    """The prompts [sequence, position] of one repetition; new ones until those of the user's own are used up."""
    cell = job.cell
    if not job.prompts:
        vocabulary = job.model.vocabulary
        return random_tokens(cell, vocabulary, PROMPT, process, repetition, length=cell.prompt_tokens)
    first = process * _APART + repetition * cell.batch_size
    return np.stack([job.prompts[(first + row) % len(job.prompts)] for row in range(cell.batch_size)])


def request_prompts(job: GenerationJob, process: int, first: int, count: int) -> list[Tokens]:
    """The prompts [position] of so many requests; new ones until those of the user's own are used up."""
    if job.prompts:
        return [job.prompts[(process * _APART + first + number) % len(job.prompts)] for number in range(count)]
    return [
        np.random.default_rng([job.cell.seed, REQUEST, process, first + number]).integers(
            0, job.model.vocabulary, job.cell.prompt_tokens, np.int64
        )
        for number in range(count)
    ]


_MOST_PROMPTS = 100_000
_FORM = 'A line is an object with "prompt", a text, or "token_ids", a list of numbers.'


@dataclass(frozen=True, slots=True)
class _Line:
    """One prompt, and the number of its line."""

    number: int
    text: str | None
    token_ids: Tokens | None


def read_prompts(file: str, model: GenerativeModel, listener: Listener) -> tuple[PromptSet, tuple[Tokens, ...]]:
    """The prompts of a file as token ids; a bad line, or a tokenizer that is missing, is refused."""
    lines = _read_lines(file, model.vocabulary)
    texts = [line.text for line in lines if line.text is not None]
    tokenizer, seconds = "", 0.0
    made: list[Tokens] = []
    if texts:
        listener(Event("tokenizing", {"prompts": len(texts)}))
        tokenizer, seconds, made = _tokenize(file, model, texts)
    left = iter(made)
    prompts = tuple(next(left) if line.token_ids is None else line.token_ids for line in lines)
    for line, prompt in zip(lines, prompts, strict=True):
        if not len(prompt):
            raise BadInput(f"{file}, line {line.number}: the prompt has no tokens.")
        if model.context is not None and len(prompt) >= model.context:
            raise BadInput(
                f"{file}, line {line.number}: the prompt has {len(prompt)} tokens; the context of {model.source} "
                f"has {model.context}."
            )
    lengths = [len(one) for one in prompts]
    joined = hashlib.sha256()
    for one in prompts:
        joined.update(len(one).to_bytes(8, "little") + np.ascontiguousarray(one, "<i8").tobytes())
    return PromptSet(
        digest=joined.hexdigest()[:16],
        count=len(prompts),
        shortest_tokens=min(lengths),
        median_tokens=int(statistics.median(lengths)),
        longest_tokens=max(lengths),
        texts=len(texts),
        tokenizer=tokenizer,
        tokenize_s=seconds,
    ), prompts


def _read_lines(file: str, vocabulary: int) -> list[_Line]:
    try:
        text = read_text(Path(file))
    except (OSError, ValueError) as error:
        raise BadInput(
            f"The prompts {file} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from error
    found: list[_Line] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        if len(found) >= _MOST_PROMPTS:
            raise BadInput(f"{file} has more than {_MOST_PROMPTS} prompts. Give fewer.")
        try:
            found.append(_line(number, parse_json(line), vocabulary))
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{file}, line {number}: {str(error).rstrip('.')}. {_FORM}") from error
    if not found:
        raise BadInput(f"{file} has no prompts. {_FORM}")
    return found


def _line(number: int, content: Any, vocabulary: int) -> _Line:
    if not isinstance(content, dict):
        raise ValueError("it is no object")
    text, ids = content.get("prompt"), content.get("token_ids")
    if (text is None) == (ids is None):
        raise ValueError('it has neither or both of "prompt" and "token_ids"')
    if text is not None:
        if not isinstance(text, str) or not text:
            raise ValueError("its prompt is no text, or empty")
        return _Line(number, text, None)
    if not isinstance(ids, list) or not ids or not all(type(one) is int for one in ids):
        raise ValueError("its token_ids are no list of whole numbers")
    if not all(0 <= one < vocabulary for one in ids):
        raise ValueError(f"a token id is not within 0 to {vocabulary - 1}, the vocabulary of the model")
    return _Line(number, None, np.array(ids, np.int64))


def _tokenize(file: str, model: GenerativeModel, texts: Sequence[str]) -> tuple[str, float, list[Tokens]]:
    """What made the ids, in how many seconds, and the ids of each text."""
    launch = registry.launch_generator("llamacpp") if model.kind == "gguf" else ONNXRUNTIME
    arguments = {"model": model.path, "kind": model.kind}
    try:
        with Worker(launch) as worker:
            reply: Reply = worker.ask("task", [json.dumps(texts).encode()], task="tokenize", arguments=arguments)
            arrays = reply.arrays()
    except BadInput as error:
        reason = str(error).partition(": ")[2] or str(error)
        raise BadInput(
            f"The prompts in {file} are text, which cannot be tokenised: {reason.rstrip('.')}. "
            'Give "token_ids" instead.'
        ) from error
    ends = np.cumsum(arrays["lengths"])
    ids = [arrays["tokens"][end - length : end] for end, length in zip(ends, arrays["lengths"], strict=True)]
    return str(reply.data["tokenizer"]), float(reply.data["seconds"]), ids
