"""What the system says about disturbances, read from files that the tests made."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from inferlab.child import counters

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="these counters are Linux's")


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The only files that there are."""
    there: dict[str, str] = {}
    monkeypatch.setattr(counters, "_text", lambda path: there.get(path, ""))
    return there


V2 = "usage_usec 9000000\nnr_periods 100\nnr_throttled 40\nthrottled_usec {}\n"
V1 = "nr_periods 100\nnr_throttled 40\nthrottled_time {}\n"


def test_throttling_of_a_containers_own_root_is_read_in_version_2(files: dict[str, str]) -> None:
    files["/proc/self/cgroup"] = "0::/\n"
    files["/sys/fs/cgroup/cpu.stat"] = V2.format(1_500_000)
    assert counters.read([])["throttled_s"] == 1.5


@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_throttling_is_read_in_version_1(files: dict[str, str], mount: str) -> None:
    files["/proc/self/cgroup"] = "4:cpu,cpuacct:/\n1:name=systemd:/\n"
    files[f"/sys/fs/cgroup/{mount}/cpu.stat"] = V1.format(2_500_000_000)
    assert counters.read([])["throttled_s"] == 2.5


def test_the_groups_own_throttling_goes_before_that_of_the_root(files: dict[str, str]) -> None:
    files["/proc/self/cgroup"] = "0::/lab.slice/run.scope\n"
    files["/sys/fs/cgroup/cpu.stat"] = V2.format(9_000_000)
    files["/sys/fs/cgroup/lab.slice/run.scope/cpu.stat"] = V2.format(250_000)
    assert counters.read([])["throttled_s"] == 0.25


def test_the_groups_own_throttling_is_found_in_version_1_by_its_controller(files: dict[str, str]) -> None:
    files["/proc/self/cgroup"] = "7:memory:/other\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n"
    files["/sys/fs/cgroup/cpu/docker/abc/cpu.stat"] = V1.format(750_000_000)
    files["/sys/fs/cgroup/other/cpu.stat"] = V1.format(9_000_000_000)
    files["/sys/fs/cgroup/cpu/cpu.stat"] = V1.format(8_000_000_000)
    assert counters.read([])["throttled_s"] == 0.75


def test_a_group_without_a_limit_does_not_hide_the_one_above(files: dict[str, str]) -> None:
    files["/proc/self/cgroup"] = "0::/lab\n"
    files["/sys/fs/cgroup/lab/cpu.stat"] = "usage_usec 9000000\n"
    files["/sys/fs/cgroup/cpu.stat"] = V2.format(3_000_000)
    assert counters.read([])["throttled_s"] == 3.0


def test_a_system_that_does_not_say_has_no_such_counters(files: dict[str, str]) -> None:
    assert not {"throttled_s", "steal_s", "cpu_pressure_s", "run_queue_wait_s"} & set(counters.read([0, 1]))


STAT = """cpu  1 2 3 4 5 6 7 1400 0 0
cpu0 1 2 3 4 5 6 7 100 0 0
cpu1 1 2 3 4 5 6 7 300 0 0
cpu10 1 2 3 4 5 6 7 1000 0 0
intr 1 2 3 4 5 6 7 8 9
"""


@LINUX
@pytest.mark.parametrize(("cpus", "ticks"), [([0], 100), ([1], 300), ([0, 1], 400), ([10], 1000)])
def test_only_the_steal_of_watched_cpus_counts(files: dict[str, str], cpus: list[int], ticks: int) -> None:
    files["/proc/stat"] = STAT
    assert counters.read(cpus)["steal_s"] == ticks / os.sysconf("SC_CLK_TCK")


def test_who_watches_no_cpu_reports_no_steal(files: dict[str, str]) -> None:
    files["/proc/stat"] = STAT
    assert "steal_s" not in counters.read([])


def test_pressure_is_read(files: dict[str, str]) -> None:
    files["/proc/pressure/cpu"] = (
        "some avg10=1.00 avg60=2.00 avg300=3.00 total=4500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
    )
    assert counters.read([])["cpu_pressure_s"] == 4.5


def test_what_was_added_is_what_both_readings_have() -> None:
    assert counters.difference({"a": 1.0, "b": 2.0}, {"a": 1.5, "c": 9.0}) == {"a": 0.5}


def test_of_what_concerns_the_machine_a_share_of_the_time_has_its_share() -> None:
    before, after = {"steal_s": 1.0, "cpu_s": 1.0}, {"steal_s": 3.0, "cpu_s": 2.0}
    assert counters.difference(before, after, 0.25) == {"steal_s": 0.5, "cpu_s": 1.0}


@LINUX
def test_the_waits_of_all_threads_add_up_those_that_have_ended_too(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "_ended", {})
    files[f"/proc/self/task/{threading.get_native_id()}/schedstat"] = "1000 2000000000 30\n"
    before = counters.read([])
    assert before["run_queue_wait_s"] == 2.0
    files["/proc/thread-self/schedstat"] = "5 1500000000 7\n"
    thread = threading.Thread(target=counters.remember_thread)
    thread.start()
    thread.join()
    assert counters.difference(before, counters.read([]))["run_queue_wait_s"] == 1.5


@LINUX
def test_a_thread_that_is_remembered_and_still_listed_counts_once(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "_ended", {})
    files[f"/proc/self/task/{threading.get_native_id()}/schedstat"] = "1000 2000000000 30\n"
    files["/proc/thread-self/schedstat"] = "1000 2000000000 30\n"
    monkeypatch.setattr(os, "listdir", lambda _: [str(threading.get_native_id()), "1"])
    files["/proc/self/task/1/schedstat"] = "1 500000000 1\n"
    counters.remember_thread()
    assert counters.read([])["run_queue_wait_s"] == 2.5


def test_the_canary_sings() -> None:
    assert counters.canary_ns() > 0


@LINUX
def test_the_real_counters_never_run_backwards() -> None:
    before = counters.read([0])
    counters.canary_ns()
    assert all(added >= 0 for added in counters.difference(before, counters.read([0])).values())


@LINUX
@pytest.mark.parametrize(("started", "waited_s"), [(100, 5.0), (200, 7.0)])
def test_a_thread_that_got_the_id_of_one_that_ended_is_counted_too(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch, started: int, waited_s: float
) -> None:
    monkeypatch.setattr(counters, "_ended", {})
    task = f"/proc/self/task/{threading.get_native_id()}"
    fields = "7 (a (b) c) S" + " 0" * 18 + " {} 0 0"
    files[f"{task}/stat"] = fields.format(100)
    files["/proc/thread-self/schedstat"] = "1 5000000000 1"
    counters.remember_thread()
    # Still listed, or another thread with the same id.
    files[f"{task}/stat"] = fields.format(started)
    files[f"{task}/schedstat"] = "1 2000000000 1"
    monkeypatch.setattr(os, "listdir", lambda path: [str(threading.get_native_id()), "1"])
    files["/proc/self/task/1/schedstat"] = "1 0 1"
    assert counters.read([])["run_queue_wait_s"] == waited_s
