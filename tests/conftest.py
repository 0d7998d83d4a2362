"""What holds for all tests."""

from __future__ import annotations

import collections
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped,unused-ignore]

from tests.helpers.forked import Pool, new_pool, workers_from

# A busy machine is no fault of the code.
hypothesis.settings.register_profile(
    "busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("busy")

# Tests that run side by side measure side by side: each worker of each test run has a measuring lock of its own.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ["INFERLAB_NODE"] = f"{socket.gethostname()}-{worker}-{os.environ['PYTEST_XDIST_TESTRUNUID']}"

# Many tests measure the scripted engine, which is not offered to users.
os.environ["INFERLAB_FAKE_ENGINE"] = "1"

# Neither the commit that is tested nor the CI service shall show in what tests measure.
os.environ["INFERLAB_LABELS"] = ""

# OpenVINO 2026.4.1 dies of SIGILL in AMX kernels of small INT8 models; what is tested is not its kernels.
if Path("/proc/cpuinfo").exists() and "amx_tile" in Path("/proc/cpuinfo").read_text():
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Started in the background (CI does it), we are told to ignore Ctrl-C, and so would be every command under test.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Side by side, the tests of a file stay on one worker, and so do files that share what is expensive to make: a
# server and a browser, models made with PyTorch or the import of it, a PostgreSQL server.
_SHARED = {
    "browser-0": ("web/test_profiles", "web/test_versions", "web/test_app", "web/test_login", "web/test_trends"),
    "browser-1": (
        *("web/test_projects", "web/test_benchmarks", "web/test_accessibility", "web/test_journey"),
        "web/test_generations",
    ),
    "server": ("web/test_api", "web/test_api_requests", "web/test_hostile_models", "web/test_unopened"),
    "berts": (
        *("tests/test_transformers", "engines/test_executor", "engines/test_torch_layers"),
        *("engines/test_torch_folders", "model/test_torch_costs"),
    ),
    "torch": ("engines/test_torch", "engines/test_graph_generation", "model/test_export", "tests/test_training"),
    "stores": (
        *("store/test_store", "store/test_opening", "store/test_exchange", "store/test_projects"),
        *("store/test_jobs", "store/test_migrations", "store/test_concurrency"),
    ),
}
# What takes minutes begins first, so that no worker works alone at the end. What computes and what mostly waits
# begin together, so that the cores are busy and yet not crowded.
_ORDER = (
    *("browser-0", "browser-1", "berts", "cli/test_capacity", "cli/test_recommend", "torch", "stores"),
    *("measure/test_capacity", "measure/test_recommend", "lab/test_recipe_search", "server"),
    *("cli/test_compare", "cli/test_profile", "cli/test_bisect", "engines/test_environments", "tests/test_docs"),
    *("model/test_demo", "model/test_onnx_file", "security/test_fuzz_onnx", "cli/test_releases"),
    *("cli/test_optimize", "lab/test_versions", "workspace/test_versions", "cli/test_gate", "tests/test_api"),
    *("engines/test_mnn", "engines/test_deepsparse", "engines/test_generation", "engines/test_genai_folders"),
    *("engines/test_generation_faults", "measure/test_paired", "web/test_runner", "web/test_limits"),
    "cli/test_doctor",
)


def _group(file: Path) -> str:
    """What a file shares with others, or the file alone."""
    name = f"{file.parent.name}/{file.stem}"
    return next((group for group, files in _SHARED.items() if name in files), name)


class _ByGroup(LoadScopeScheduling):  # type: ignore[misc,unused-ignore]
    """Gives every group to one worker. (xdist's own groups are marked in test ids, which pytest 9.2 ignores.)"""

    def _split_scope(self, nodeid: str) -> str:
        return _group(Path(nodeid.partition("::")[0]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByGroup | None:
    """Distribute groups where xdist would distribute files."""
    return _ByGroup(config, log) if config.getoption("dist") == "loadscope" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put groups and files that take long first, then files with many tests."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    sizes = collections.Counter(item.path for item in items)
    places = {name: place for place, name in enumerate(_ORDER)}

    def place(item: pytest.Item) -> tuple[int, int, Path]:
        path = item.path
        return places.get(_group(path), len(places)), -sizes[path], path

    items.sort(key=place)  # keeps the order of a file's own tests


@pytest.fixture(scope="session", autouse=True)
def own_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The store of all tests that name none: never the user's own."""
    os.environ["INFERLAB_STORE"] = str(tmp_path_factory.mktemp("store") / "lab.db")
    yield os.environ["INFERLAB_STORE"]
    del os.environ["INFERLAB_STORE"]


# Where new processes are what is tested.
_NEW_PROCESSES = (
    *("child", "fleet", "security", "test_worker", "test_children", "test_lock"),
    *("test_environments", "test_registry", "test_releases", "test_deepsparse", "test_executor", "test_mnn"),
)


@pytest.fixture(scope="session")
def fork_pool(own_store: str) -> Iterator[Pool]:
    """The processes that workers of tests are forked from."""
    with new_pool() as pool:
        yield pool


@pytest.fixture(scope="module", autouse=True)
def forked_workers(request: pytest.FixtureRequest, fork_pool: Pool) -> Iterator[None]:
    """Fork the workers of a file's tests, unless starting processes is what they test."""
    places = {request.path.stem, request.path.parent.name}
    with workers_from(None if places & set(_NEW_PROCESSES) else fork_pool):
        yield


@pytest.fixture(autouse=True)
def new_workers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Start new processes for a test that is marked so."""
    if request.node.get_closest_marker("new_processes") is None:
        yield
        return
    with workers_from(None):
        yield


def pytest_unconfigure() -> None:
    """Leave no lock behind that only this worker used."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        from inferlab.measure.cell import lock_file

        lock_file().unlink(missing_ok=True)
