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
# server with a browser, or models made with PyTorch. Those begin first, so that no worker works alone at the end.
_BROWSERS = 3
_BERTS = ("test_transformers", "test_executor", "test_torch_layers", "test_torch_folders", "test_torch_costs")
# Files of few tests that take minutes.
_LONG = (
    *("test_recipe_search", "test_profile", "test_capacity", "test_docs", "test_recommend", "test_export"),
    *("test_compare", "test_demo", "test_onnx_file", "test_optimize", "test_versions", "test_api"),
)
_PAGES = sorted(path.stem for path in (Path(__file__).parent / "web").glob("test_*.py"))


def _group(file: Path) -> str:
    """What a file shares with others, or the file alone."""
    if file.parent.name == "web":
        return f"browser-{_PAGES.index(file.stem) % _BROWSERS}"
    return "berts" if file.stem in _BERTS else file.as_posix()


class _ByGroup(LoadScopeScheduling):  # type: ignore[misc,unused-ignore]
    """Gives every group to one worker. (xdist's own groups are marked in test ids, which pytest 9.2 ignores.)"""

    def _split_scope(self, nodeid: str) -> str:
        return _group(Path(nodeid.partition("::")[0]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByGroup | None:
    """Distribute groups where xdist would distribute files."""
    return _ByGroup(config, log) if config.getoption("dist") == "loadscope" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put groups of several files first, then files that take long, then those with many tests."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    sizes = collections.Counter(item.path for item in items)
    shared = {path: _group(path) for path in sizes if _group(path) != path.as_posix()}

    def place(item: pytest.Item) -> tuple[bool, str, bool, int, Path]:
        path = item.path
        return path not in shared, shared.get(path, ""), path.stem not in _LONG, -sizes[path], path

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
