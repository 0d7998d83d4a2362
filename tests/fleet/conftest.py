"""A Ray cluster of three nodes on this machine, each with a name, a lock and a cache of its own."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inferlab.records import Benchmark, Plan
from inferlab.store import Stored
from inferlab.store.store import Store
from tests.helpers.onnx_files import save_linear

TYPES = ("a", "b", "c")


@dataclass
class Fleet:
    """The cluster, and how nodes are added to it."""

    cluster: Any
    caches: Path

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def add(self, kind: str, name: str | None = None, **more: str) -> Any:
        """Start a node of this type; it is called by the type unless it is given a name."""
        own = {"INFERLAB_NODE": self.name(name or kind), "INFERLAB_CACHE": str(self.cache(name or kind))}
        return self.cluster.add_node(num_cpus=1, resources={kind: 1}, env_vars={**own, **more})

    def name(self, short: str) -> str:
        """The name that a node has in what it measured: no other test run may share its lock."""
        return f"{short}-{self.caches.name}"

    def cache(self, short: str) -> Path:
        return self.caches / short


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    # Without a token: it is gone in a minute, and what it measures is scripted.
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    from ray.cluster_utils import Cluster

    # A node that was killed is noticed within seconds, not a quarter of a minute.
    watchful = {"health_check_period_ms": 1000, "health_check_failure_threshold": 5}
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": watchful}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    caches = tmp_path_factory.mktemp("nodes") / uuid.uuid4().hex[:8]
    made = Fleet(cluster, caches)
    try:
        for kind in TYPES:
            made.add(kind)
        yield made
    finally:
        cluster.shutdown()
        for lock in Path(tempfile.gettempdir()).glob(f"inferlab-*-{caches.name}.lock"):
            lock.unlink()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_linear(tmp_path / "linear.onnx", "batch")


def a_plan(model: Path | str, fleet: Fleet, *batches: int, **fields: Any) -> Plan:
    """Cells of the scripted engine that take a moment each, on all three nodes unless others are named."""
    usual: dict[str, Any] = {"time_s": 0.2, "warmup_s": 0.0, "processes": 2, "on": TYPES, "verify": False}
    cells: dict[str, Any] = {
        "engines": ("fake",),
        "scenarios": ("sync",),
        "num_cores": (1,),
        "batch_sizes": batches,
    }
    return Plan(str(model), cluster=fleet.address, **{**cells, **usual, **fields})


def stored(store: Store, entry_id: str | None = None) -> Benchmark:
    """A benchmark as it was saved, by default the newest."""
    found = store.get(entry_id or store.history()[0].id)
    assert isinstance(found, Stored)
    return found.benchmark
