"""Comparing arms that generate: what stops while the other runs."""

from __future__ import annotations

from typing import Any

import pytest

from inferlab.child.processes import descendants_of
from inferlab.lab import Lab
from inferlab.measure.generation.process import Process
from inferlab.measure.generation.reference import Tokens
from inferlab.records.generation import GenerationPlan, Repetition
from tests.helpers.workers import is_stopped

PLAN = GenerationPlan("demo:llama_tiny", ("fake",), (8,), (4,), num_cores=(1,), verify=False)


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
