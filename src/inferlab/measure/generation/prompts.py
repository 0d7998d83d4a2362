"""What engines generate behind: random token ids, or prompts of the user's own; the same for every engine."""

from __future__ import annotations

import numpy as np

from inferlab.measure.generation.reference import GenerationJob, Tokens
from inferlab.records.generation import GenerationCell

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
