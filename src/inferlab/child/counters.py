"""What the system says about disturbances: read before and after measuring, subtracted, recorded."""

from __future__ import annotations

import os
import sys
import threading
import time
import zlib
from typing import Dict, List, Optional, Sequence, Tuple

_CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct")


# Work that never changes: some 50 µs, all of it in the first-level cache, which leaves the engine's data alone.
_CANARY = bytes(range(256)) * 32
_CANARY_ROUNDS = 16
_CANARY_TRIES = 5

_OF_THE_MACHINE = ("steal_s", "throttled_s", "cpu_pressure_s")

# Nanoseconds that threads waited which have ended since, by their ids and the moments of their start: the system
# gives an id to another thread later.
_ended: Dict[Tuple[int, str], int] = {}


def read(cpus: Sequence[int]) -> Dict[str, float]:
    """Every counter that this system has, as running totals in seconds or counts; steal is that of `cpus`."""
    totals: Dict[str, float] = {}
    totals.update(_switches())
    totals.update(_run_queue())
    totals.update(_throttling())
    totals.update(_steal(cpus))
    totals.update(_pressure())
    return totals


def difference(before: Dict[str, float], after: Dict[str, float], share: float = 1.0) -> Dict[str, float]:
    """What was added between two readings; of what concerns the whole machine, for a share of the time."""
    added = {name: after[name] - before[name] for name in after if name in before}
    return {name: value * share if name in _OF_THE_MACHINE else value for name, value in added.items()}


def remember_thread() -> None:
    """Keep how long the calling thread waited for a CPU: it is about to end, and the system then forgets it."""
    fields = _text("/proc/thread-self/schedstat").split()
    if len(fields) == 3:
        thread = threading.get_native_id()
        _ended[thread, _started(thread)] = int(fields[1])


def canary_ns() -> int:
    """How long a fixed piece of work takes now, at best of a few tries: it follows the clock speed."""
    best = 1 << 62
    for _ in range(_CANARY_TRIES):
        started = time.perf_counter_ns()
        for _ in range(_CANARY_ROUNDS):
            zlib.crc32(_CANARY)
        best = min(best, time.perf_counter_ns() - started)
    return best


def memory_bytes() -> Dict[str, Optional[int]]:
    """The process's resident memory now and at its peak."""
    text = _text("/proc/self/status")
    if text:
        values = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        return {
            "now": int(values["VmRSS"].split()[0]) * 1024,
            "peak": int(values["VmHWM"].split()[0]) * 1024,
        }
    try:
        import resource
    except ImportError:
        return {"now": None, "peak": None}
    unit = 1 if sys.platform == "darwin" else 1024
    return {"now": None, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _switches() -> Dict[str, float]:
    try:
        import resource
    except ImportError:
        return {}
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "involuntary_switches": float(usage.ru_nivcsw),
        "cpu_s": usage.ru_utime + usage.ru_stime,
    }


def _run_queue() -> Dict[str, float]:
    """Seconds that the process's threads were ready to run and had no CPU."""
    waited, seen = sum(_ended.values()), False
    try:
        tasks = os.listdir("/proc/self/task")
    except OSError:
        return {}
    ids = {thread for thread, _ in _ended}
    for task in tasks:
        # A thread that was joined may still be listed for a moment: it counts once.
        if int(task) in ids and (int(task), _started(int(task))) in _ended:
            continue
        fields = _text("/proc/self/task/{}/schedstat".format(task)).split()
        if len(fields) == 3:
            waited, seen = waited + int(fields[1]), True
    return {"run_queue_wait_s": waited / 1e9} if seen else {}


def _started(thread: int) -> str:
    """When a thread of this process was started, in the system's own ticks."""
    fields = _text("/proc/self/task/{}/stat".format(thread)).rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""


def _cgroup_files() -> List[str]:
    """Where throttling may stand: this process's own group, version 2 or 1, then what a container has as root."""
    own = []
    for line in _text("/proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if path != "/" and (number == "0" or "cpu" in controllers.split(",")):
            own += [root + path + "/cpu.stat" for root in _CGROUPS]
    return own + [root + "/cpu.stat" for root in _CGROUPS]


def _throttling() -> Dict[str, float]:
    for path in _cgroup_files():
        fields = dict(line.split() for line in _text(path).splitlines() if len(line.split()) == 2)
        if "throttled_usec" in fields:
            return {"throttled_s": int(fields["throttled_usec"]) / 1e6}
        if "throttled_time" in fields:
            return {"throttled_s": int(fields["throttled_time"]) / 1e9}
    return {}


def _steal(cpus: Sequence[int]) -> Dict[str, float]:
    """Seconds that the hypervisor gave these CPUs to others; nobody's CPUs have no steal to report."""
    names = {"cpu{}".format(cpu) for cpu in cpus}
    ticks, seen = 0, False
    for line in _text("/proc/stat").splitlines():
        fields = line.split()
        if len(fields) > 8 and fields[0] in names:
            ticks, seen = ticks + int(fields[8]), True
    return {"steal_s": ticks / os.sysconf("SC_CLK_TCK")} if seen else {}


def _pressure() -> Dict[str, float]:
    for line in _text("/proc/pressure/cpu").splitlines():
        if line.startswith("some"):
            return {"cpu_pressure_s": int(line.rsplit("total=", 1)[1]) / 1e6}
    return {}
