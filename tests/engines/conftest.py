"""Engines in environments of their own, installed once for all test runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from inferlab.engines import environments, registry, specs
from inferlab.worker import Launch


@pytest.fixture(scope="session")
def deepsparse() -> Iterator[Launch]:
    """DeepSparse, in a cache that outlives the test run: INFERLAB_TEST_CACHE or ~/.cache/inferlab-tests."""
    if reason := environments.why_not_here("deepsparse"):
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFERLAB_CACHE", _cache())
        environments.install("deepsparse")
        found = registry.launch("deepsparse")
    yield found


@pytest.fixture(scope="session")
def executor() -> Iterator[Launch]:
    """Intel's Neural Engine, in the same cache; where the CPU cannot run it, its compiler still runs."""
    # Importing the native library would end the process there, so something else is imported as proof.
    bare = replace(specs.SPECS["executor"], instruction_sets=(), proof=("onnx", "ModelProto"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(specs.SPECS, "executor", bare)
        if reason := environments.why_not_here("executor"):
            pytest.skip(reason)
        patch.setenv("INFERLAB_CACHE", _cache())
        environments.install("executor")
        found = registry.launch("executor")
    yield found


@pytest.fixture
def kept_cache() -> str:
    """A cache folder that outlives the test run."""
    return _cache()


def _cache() -> str:
    return os.environ.get("INFERLAB_TEST_CACHE") or str(Path.home() / ".cache" / "inferlab-tests")
