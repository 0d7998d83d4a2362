"""What the system says about disturbances: read before and after measuring, subtracted, recorded."""

from __future__ import annotations

import os
import sys
from typing import Dict, Optional

_CGROUP_FILES = (
    "/sys/fs/cgroup/cpu.stat",
    "/sys/fs/cgroup/cpu/cpu.stat",
    "/sys/fs/cgroup/cpu,cpuacct/cpu.stat",
)


def read() -> Dict[str, float]:
    """Every counter that this system has, as running totals in seconds or counts."""
    totals: Dict[str, float] = {}
    totals.update(_switches())
    totals.update(_run_queue())
    totals.update(_throttling())
    totals.update(_steal())
    totals.update(_pressure())
    return totals


def difference(before: Dict[str, float], after: Dict[str, float]) -> Dict[str, float]:
    """What was added between two readings."""
    return {name: after[name] - before[name] for name in after if name in before}


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
    waited, seen = 0, False
    try:
        tasks = os.listdir("/proc/self/task")
    except OSError:
        return {}
    for task in tasks:
        fields = _text("/proc/self/task/{}/schedstat".format(task)).split()
        if len(fields) == 3:
            waited, seen = waited + int(fields[1]), True
    return {"run_queue_wait_s": waited / 1e9} if seen else {}


def _throttling() -> Dict[str, float]:
    for path in _CGROUP_FILES:
        fields = dict(line.split() for line in _text(path).splitlines() if len(line.split()) == 2)
        if "throttled_usec" in fields:
            return {"throttled_s": int(fields["throttled_usec"]) / 1e6}
        if "throttled_time" in fields:
            return {"throttled_s": int(fields["throttled_time"]) / 1e9}
    return {}


def _steal() -> Dict[str, float]:
    line = _text("/proc/stat").split("\n", 1)[0].split()
    return {"steal_s": int(line[8]) / os.sysconf("SC_CLK_TCK")} if len(line) > 8 else {}


def _pressure() -> Dict[str, float]:
    for line in _text("/proc/pressure/cpu").splitlines():
        if line.startswith("some"):
            return {"cpu_pressure_s": int(line.rsplit("total=", 1)[1]) / 1e6}
    return {}
