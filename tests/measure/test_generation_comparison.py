"""Comparing arms that generate: what stops while the other runs, and which pairs have their tokens checked."""

from __future__ import annotations

import math
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest

from inferlab.child.processes import descendants_of
from inferlab.lab import Lab
from inferlab.measure.generation import comparison
from inferlab.measure.generation.cells import generation_cells
from inferlab.measure.generation.comparison import GenerationArms
from inferlab.measure.generation.process import Process
from inferlab.measure.generation.reference import GenerationJob, Tokens
from inferlab.model.generative import read_generative
from inferlab.records.generation import Agreement, GenerationPlan, GenerationRun, Repetition
from tests.helpers.generations import MATCH, run, sequence
from tests.helpers.workers import is_stopped

PLAN = GenerationPlan("demo:llama_tiny", ("fake",), (8,), (4,), num_cores=(1,), verify=False)
WRONG = Agreement("mismatch", "torch", 21, 2, 32, 3, 32)


def test_while_one_arm_generates_the_other_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[Process] = []
    stopped: list[int] = []
    make, generate, end = Process.__init__, Process.generate_once, Process.__exit__

    def noted(self: Process, *given: Any) -> None:
        make(self, *given)
        alive.append(self)

    def watched(self: Process, prompts: Tokens) -> Repetition:
        pids = [worker.pid for one in alive if one is not self for worker in one._workers]
        others = [each for pid in pids for each in (pid, *descendants_of(pid))]
        assert all(map(is_stopped, others))
        stopped.extend(others)
        return generate(self, prompts)

    def forgotten(self: Process, *given: Any) -> None:
        alive.remove(self)
        end(self, *given)

    monkeypatch.setattr(Process, "__init__", noted)
    monkeypatch.setattr(Process, "generate_once", watched)
    monkeypatch.setattr(Process, "__exit__", forgotten)
    Lab().compare_generations(PLAN, PLAN, "tpot", 1.0)
    assert len(stopped) > 2


class Scripted:
    """A process whose tokens are right or wrong by the number of its pair."""

    checks: list[tuple[int, int]]
    wrong: frozenset[int]

    def __init__(self, prepared: Any, number: int) -> None:
        self._number = number

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *given: object) -> None:
        """There is nothing to end."""

    def check(self, number: int) -> None:
        """Note that the tokens of this pair were compared."""
        self.checks.append((self._number, number))

    def nothing(self) -> None:
        """There is no process."""

    warm_up = pause = resume = wake = check_cached_prefix = nothing

    def generate_once(self, prompts: Tokens) -> Repetition:
        """The same for all prompts."""
        return Repetition((sequence(10, 12),), 0, 0, {}, 0)

    def run(self) -> GenerationRun:
        """What the checks of this pair say."""
        checked = any(pair == self._number for pair, _ in self.checks)
        agreement = WRONG if self._number in self.wrong else MATCH
        return run((sequence(10, 12),), agreement=agreement if checked else Agreement("unchecked"))


@pytest.mark.parametrize(("wrong", "status"), [((), "match"), ((0,), "mismatch"), ((6,), "mismatch")])
def test_tokens_are_checked_in_every_sixth_pair_and_the_worst_check_counts(
    monkeypatch: pytest.MonkeyPatch, wrong: tuple[int, ...], status: str
) -> None:
    monkeypatch.setattr(comparison, "Process", Scripted)
    monkeypatch.setattr(Scripted, "checks", [], raising=False)
    monkeypatch.setattr(Scripted, "wrong", frozenset(wrong), raising=False)
    model = read_generative("demo:llama_tiny")
    (cell,) = generation_cells(PLAN, model)
    prepared: Any = SimpleNamespace(kind="gguf", job=GenerationJob(cell, model, 60.0))
    arms = GenerationArms([prepared, prepared], "tpot")
    for pair in range(14):
        with ExitStack() as stack:
            arms.begin((0, 1), pair, stack)
            for arm in (0, 1):
                arms.take_turn(arm, 0, last=True)
            assert np.allclose(arms.end(), math.log(2e6))
    assert sorted(set(Scripted.checks)) == [(pair, when) for pair in (0, 6, 12) for when in (0, 1)]
    assert [one.status for one in arms.agreements] == [status, status]
    told = [[one.agreement.status for one in runs] for runs in arms.runs]
    before = ["match"] * min(wrong, default=14)
    assert told == [[*before, *[status] * (14 - len(before))]] * 2
