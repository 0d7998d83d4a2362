"""Engines in environments of their own, installed once for all test runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferlab.engines import environments, registry
from inferlab.worker import Launch


@pytest.fixture(scope="session")
def deepsparse() -> Iterator[Launch]:
    """DeepSparse, in a cache that outlives the test run: INFERLAB_TEST_CACHE or ~/.cache/inferlab-tests."""
    if reason := environments.why_not_here("deepsparse"):
        pytest.skip(reason)
    folder = os.environ.get("INFERLAB_TEST_CACHE") or Path.home() / ".cache" / "inferlab-tests"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFERLAB_CACHE", str(folder))
        environments.install("deepsparse")
        found = registry.launch("deepsparse")
    yield found
