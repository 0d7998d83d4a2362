"""Records of generations made by hand, for tests with exact answers."""

from __future__ import annotations

from dataclasses import replace

from inferlab import machine
from inferlab.records.generation import Agreement, CacheSize, Generation, GenerationRun, Repetition

MATCH = Agreement("match", "torch", 64, 0, 64, 32, 32)


def sequence(*token_ms: float, finish: str = "length") -> Generation:
    times = tuple(int(one * 1e6) for one in token_ms)
    return Generation("p", 10, 0, times, tuple(range(len(times))), finish)  # type: ignore[arg-type]


def run(
    *batches: tuple[Generation, ...], repeated_ms: float = 10.0, agreement: Agreement = MATCH
) -> GenerationRun:
    repetitions = tuple(Repetition(each, 0, 4_000_000, {}, 50_000) for each in batches)
    return GenerationRun(
        *("cell", "2026-01-01T00:00:00+00:00", repetitions, 0.5, 0.25, 0.03, 1, 2, 3, 4),
        *(CacheSize(256.0, 256.0, None, "f16"), int(repeated_ms * 1e6), agreement, {"fake": "1"}, {}),
        *(replace(machine.describe(), cpu_quota=None), True),
    )
