"""Facts about the machine: as sentences that say why they matter and what to do, with a verdict, and as a file."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferlab.codec import plain
from inferlab.records import Fact, FactState
from inferlab.units import duration, one_line, plural, share, size
from inferlab.views.fields import Field
from inferlab.views.results import View, render_view
from inferlab.views.tables import Block, Pair, Table


@dataclass(frozen=True, slots=True)
class Entry:
    """How one fact is told."""

    group: str
    label: str
    #: Where it was read.
    known: Callable[[Fact], str]
    #: Where it could not be read: what that leaves open.
    unknown: Callable[[Mapping[str, Any]], str] = lambda d: "cannot be read."


def _ghz(mhz: float) -> str:
    return f"{mhz / 1000:.3g} GHz"


def _percent(fraction: float) -> str:
    """A share of a few dozen ticks: more digits would be made up."""
    return f"{100 * fraction:.0f} %"


def _settings(variables: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in variables.items())


def _cpu_list(cpus: Sequence[int]) -> str:
    """'0-3,8' for 0, 1, 2, 3 and 8."""
    ranges: list[list[int]] = []
    for cpu in cpus:
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _cpu(fact: Fact) -> str:
    d = fact.data
    sets = ", ".join(d["instruction_sets"])
    return f"{d['name'] or 'no name'} ({d['architecture']}){': ' + sets if sets else ''}."


def _cores(fact: Fact) -> str:
    d, usable = fact.data, fact.data["usable_cpus"]
    there = f"{plural(d['physical_cores'], 'physical core')}, {plural(d['logical_cpus'], 'CPU')}"
    if fact.state == "good":
        return f"{there}; inferlab may use all of them."
    return (
        f"{there}; inferlab may use only CPU{'s' if len(usable) > 1 else ''} {_cpu_list(usable)}, "
        "because it was started that way (taskset, cpuset)."
    )


def _smt(fact: Fact) -> str:
    if fact.state == "good":
        return "off or absent: every CPU is a core of its own, as far as the system shows."
    return (
        f"on, {fact.data['threads_per_core']} CPUs share each core. inferlab takes one CPU of each core; "
        "whatever runs on the other slows it down."
    )


def _numa(fact: Fact) -> str:
    nodes = fact.data["nodes"]
    if len(nodes) == 1:
        return "1 node: all memory is equally near."
    listed = "; ".join(f"node {node}: CPUs {cpus}" for node, cpus in nodes.items())
    return (
        f"{len(nodes)} nodes ({listed}). Memory of another node is slower: "
        "with -ncores, keep a model on the cores of one."
    )


def _isolated(fact: Fact) -> str:
    d = fact.data
    ticks = f" CPUs {d['nohz_full']} run without a timer tick." if d["nohz_full"] else ""
    if not d["isolated"]:
        return f"none, which is usual: any program may run on any CPU.{ticks}"
    if d["inside"]:
        return f"inferlab runs on the isolated CPUs {d['isolated']}: no other program is put there.{ticks}"
    return (
        f"CPUs {d['isolated']} are kept free of other programs.{ticks} To measure on them: "
        f"taskset -c {d['isolated']} inferlab …"
    )


def _governor(fact: Fact) -> str:
    if fact.state == "good":
        return "performance: CPUs run at full clock speed whenever they work."
    governors = ", ".join(f"{name} on {plural(count, 'CPU')}" for name, count in fact.data["governors"].items())
    return (
        f"{governors}: the clock speed follows the load, so the first calls after a pause are slower. "
        "Set it with: sudo cpupower frequency-set -g performance"
    )


def _turbo(fact: Fact) -> str:
    if fact.state == "good":
        return "off: the clock speed does not depend on how many cores are busy."
    path = fact.data["file"]
    return (
        "on: the clock speed depends on heat and on how many cores are busy. Leave it on to see the speed of "
        "deployment; to tell small differences apart, turn it off: "
        f"echo {1 if path.endswith('no_turbo') else 0} | sudo tee {path}"
    )


def _frequency(fact: Fact) -> str:
    d = fact.data
    if fact.state == "good":
        return f"fixed at {_ghz(d['max_mhz'])}."
    range_text = f"{_ghz(d['min_mhz'])} to {_ghz(d['max_mhz'])}"
    fastest = d["hardware_max_mhz"]
    if fact.state == "warn":
        return (
            f"{range_text}, but the CPUs are of different kinds: some reach {_ghz(fastest)}, others only "
            f"{_ghz(d['slowest_hardware_max_mhz'])}. Measure on one kind: taskset -c CPUS inferlab …"
        )
    return (
        f"{range_text}; the CPU itself could do {_ghz(fastest)}."
        if fastest and d["max_mhz"] < fastest
        else f"{range_text}."
    )


def _quota(fact: Fact) -> str:
    if fact.data["quota"] is None:
        return "none: no cgroup limits CPU time."
    return f"the cgroup allows {fact.data['quota']:.3g} CPUs' worth of time."


def _pools(fact: Fact) -> str:
    threads, cpus, quota = fact.data["threads"], fact.data["cpus"], fact.data["quota"]
    if fact.state == "warn" and quota < 1:
        return (
            f"the quota of {quota:.3g} CPUs is below one: even a single busy thread is stopped {share(1 - quota)} "
            "of the time. Measure with a quota of 1 CPU or more."
        )
    if fact.state == "warn":
        return (
            f"an engine that starts a thread for each CPU would be throttled: it sees {threads}, the quota pays "
            f"for {quota:.3g}. inferlab uses {plural(int(quota), 'core')} by default; set as many threads where "
            "you deploy."
        )
    if fact.state == "info":
        return (
            f"a program that starts a thread for each of {threads} CPUs would have {cpus} to run on. "
            "inferlab sets its engines' threads itself."
        )
    return f"a program that starts a thread for each CPU starts {threads}, and all may run at once."


def _variables(fact: Fact) -> str:
    behaviour, counts = fact.data["behaviour"], fact.data["counts"]
    if behaviour:
        return (
            f"{_settings(behaviour)}: overrides where inferlab lets engines' threads run or how they wait. "
            f"Remove with: unset {' '.join(behaviour)}"
        )
    if counts:
        return f"{_settings(counts)}: inferlab sets its engines' threads itself; other programs obey this."
    return "none is set."


def _memory(fact: Fact) -> str:
    d = fact.data
    of = f" of {size(d['total_bytes'])}" if d["total_bytes"] is not None else ""
    limit = f"; the cgroup's limit is {size(d['limit_bytes'])}" if d["limit_bytes"] is not None else ""
    memory = f"{size(d['usable_bytes'])}{of} can be used{limit}."
    if fact.state == "good":
        return memory
    return f"{memory} An engine may be killed or swapped out: stop other programs or raise the limit."


def _swap(fact: Fact) -> str:
    d = fact.data
    if fact.state == "warn":
        return (
            f"{plural(d['pages_moved'], 'page')} moved to or from the disk just now: memory is short. "
            "Stop other programs."
        )
    if d["used_bytes"]:
        return f"{size(d['used_bytes'])} is on the disk; none of it moved just now."
    return "not in use." if d["total_bytes"] else "there is none."


_NOT_CONFINED = {
    "files": "An engine can read and write all of your files",
    "network": "An engine can use the network",
    "memory": "An engine can ask for any amount of memory",
    "cpu": "A task that runs away is stopped only by the wall clock",
    "file_size": "An engine can write files of any size",
    "processes": "An engine can start any number of processes",
    "privileges": "An engine can gain privileges by starting other programs",
    "readers": "What inferlab itself reads of a model, it reads in its own process, unconfined",
    "out_of_memory": "When memory runs out, the system may end inferlab instead of the engine",
}


def _confinement(fact: Fact) -> str:
    if fact.data["off"]:
        return "off (INFERLAB_CONFINEMENT): run only models that you trust."
    missing = fact.data["missing"]
    if not missing:
        return "engines see only the model's files, no network, and have limits of memory and processes."
    return " ".join(f"{_NOT_CONFINED[part]}: {reason}." for part, reason in missing.items())


def _huge_pages(fact: Fact) -> str:
    return {
        "always": (
            "always: which memory gets large pages depends on what is free at that moment, so two runs of the "
            "same program may differ. Steadier: "
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
        ),
        "madvise": "madvise: only programs that ask get large pages.",
        "never": "never: no program gets large pages unasked.",
    }[fact.data["mode"]]


def _source(fact: Fact) -> str:
    name = fact.data["name"]
    if fact.state == "good":
        return f"{name}: read without entering the kernel."
    if fact.state == "info":
        return f"{name}: not one that inferlab knows; the next line has what a reading costs."
    slow = f"{name}: each reading enters the kernel, which takes long beside a short call."
    if "tsc" not in fact.data["available"]:
        return f"{slow} The system offers no better one."
    return (
        f"{slow} Change it: echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"
    )


def _cost(fact: Fact) -> str:
    cost_s, step_ns = fact.data["cost_ns"] / 1e9, fact.data["step_ns"]
    if step_ns is None:
        return "the clock stood still while it was read 5000 times: nothing short can be measured."
    cost = f"one reading takes {duration(cost_s)}; the smallest step seen is {duration(step_ns / 1e9)}."
    if fact.state == "good":
        return cost
    return f"{cost} Calls shorter than {duration(100 * max(cost_s, step_ns / 1e9))} are off by 1 % or more."


def _virtual(fact: Fact) -> str:
    product = f" ({fact.data['product']})" if fact.data["product"] else ""
    if fact.state == "good":
        return f"no sign of a hypervisor{product}."
    return (
        f"yes{product}: the host may give the CPUs to others (steal), "
        "and two CPUs may share a core without showing it."
    )


def _busy(fact: Fact) -> str:
    d = fact.data
    worst, most = max(d["of_each_cpu"].items(), key=lambda item: item[1])
    load_text = f"other programs took {_percent(d['share'])} of the CPUs' time in {duration(d['seconds'])}"
    if len(d["of_each_cpu"]) > 1 and most:
        load_text += f" (the busiest, CPU {worst}: {_percent(most)})"
    if d["by"]:
        load_text += "; running now: " + ", ".join(
            f"{program['name']} (process {program['process_id']}: {_percent(program['cpus'])} of a CPU)"
            for program in d["by"]
        )
    if fact.state == "good":
        return f"{load_text}."
    hidden = "" if d["by"] else " No process that can be seen explains it: look outside the container."
    return f"{load_text}. Stop them before you measure.{hidden}"


def _steal(fact: Fact) -> str:
    now, before = fact.data["share"], fact.data["share_since_boot"]
    if not now and not before:
        return "none."
    stolen = f"{_percent(now)} just now; since boot {share(before)} of the time that programs wanted the CPUs."
    if fact.state == "good":
        return stolen
    return f"{stolen} Others share this host: measure at a quieter moment, or on a host of your own."


def _pressure(fact: Fact) -> str:
    d = fact.data
    pressure = (
        f"threads waited for a CPU {share(d['share_10_s'])} of the last 10 s and {share(d['share_60_s'])} of the "
        "last minute."
    )
    return pressure if fact.state == "good" else f"{pressure} Stop other programs before you measure."


_COUNTERS = {
    "run_queue_wait_s": "waiting for a CPU (schedstat)",
    "involuntary_switches": "involuntary switches (getrusage)",
    "throttled_s": "throttling by a quota (cpu.stat)",
    "steal_s": "steal (/proc/stat)",
    "cpu_pressure_s": "CPU pressure (/proc/pressure)",
}


def _counters(data: Mapping[str, Any]) -> str:
    readable, missing = (", ".join(_COUNTERS[name] for name in data[which]) for which in ("readable", "missing"))
    if not missing:
        return f"each run records {readable}."
    return f"a run cannot see {missing}. It records {readable or 'nothing'}."


_CPU, _SPEED, _LIMITS, _CLOCK, _OTHERS = "Processor", "Clock speed", "Limits", "Clock", "Disturbances"


def _smallest(fact: Fact) -> str:
    d = fact.data
    smallest = (
        f"a change of {share(d['visible'])} would be seen nine times out of ten in one minute on one core "
        f"({d['model']} against itself, {plural(d['pairs'], 'pair')})."
    )
    return smallest if fact.state == "good" else f"{smallest} Stop other programs, or compare longer with -t."


PROSE = {
    "cpu": Entry(_CPU, "CPU", _cpu),
    "cores": Entry(
        _CPU,
        "cores",
        _cores,
        lambda d: f"{plural(d['logical_cpus'], 'CPU')}; which of them share a core cannot be read.",
    ),
    "smt": Entry(_CPU, "SMT", _smt, lambda d: "cannot be read: two CPUs may share a core."),
    "numa": Entry(_CPU, "NUMA", _numa, lambda d: "cannot be read: some memory may be slower."),
    "isolated-cpus": Entry(_CPU, "isolated CPUs", _isolated),
    "governor": Entry(
        _SPEED, "governor", _governor, lambda d: "cannot be read: the clock speed may follow the load unseen."
    ),
    "turbo": Entry(
        _SPEED, "turbo", _turbo, lambda d: "cannot be read: the clock speed may depend on heat and load unseen."
    ),
    "frequency": Entry(
        _SPEED,
        "frequency",
        _frequency,
        lambda d: (
            "the range cannot be read" + (f"; the system says {_ghz(d['now_mhz'])}." if d["now_mhz"] else ".")
        ),
    ),
    "cpu-quota": Entry(_LIMITS, "CPU quota", _quota, lambda d: "cannot be read: there are no cgroups here."),
    "thread-pools": Entry(_LIMITS, "thread pools", _pools),
    "thread-variables": Entry(_LIMITS, "thread variables", _variables),
    "memory": Entry(_LIMITS, "memory", _memory),
    "swap": Entry(_LIMITS, "swap", _swap),
    "huge-pages": Entry(_LIMITS, "huge pages", _huge_pages),
    "confinement": Entry(_LIMITS, "confinement", _confinement),
    "clock-source": Entry(
        _CLOCK, "clock source", _source, lambda d: "cannot be read; the next line has what a reading costs."
    ),
    "clock-cost": Entry(_CLOCK, "clock cost", _cost),
    "virtual-machine": Entry(
        _OTHERS, "virtual machine", _virtual, lambda d: "cannot be read: a host may share the CPUs unseen."
    ),
    "busy": Entry(
        _OTHERS, "busy CPUs", _busy, lambda d: "cannot be read: look for other programs before you measure."
    ),
    "steal": Entry(_OTHERS, "steal", _steal, lambda d: "cannot be read: a host may take CPU time unseen."),
    "pressure": Entry(
        _OTHERS, "CPU pressure", _pressure, lambda d: "cannot be read: this kernel does not keep it."
    ),
    "noise-counters": Entry(_OTHERS, "noise counters", lambda fact: _counters(fact.data), _counters),
    "smallest-difference": Entry(
        _OTHERS, "smallest change", _smallest, lambda d: "unknown: too few pairs could be measured."
    ),
}


def sentence(fact: Fact) -> str:
    """A fact as a sentence, or a few."""
    entry = PROSE[fact.code]
    return entry.unknown(fact.data) if fact.state == "unknown" else entry.known(fact)


# Version 1: the first.
FORMAT = "inferlab-doctor/1"

_STATE_WIDTH = len("unknown")
_LABEL_WIDTH = max(len(entry.label) for entry in PROSE.values())
_MARGIN = 2 + _STATE_WIDTH + 2 + _LABEL_WIDTH + 2
_NARROWEST = 30


def lines(facts: Sequence[Fact], width: int | None, paint: Callable[[FactState, str], str]) -> list[str]:
    """The facts in their groups, then the verdict; wrapped to `width` if given; `paint` colours a state's word."""
    printed: list[str] = []
    group = ""
    for fact in facts:
        entry = PROSE[fact.code]
        if entry.group != group:
            group = entry.group
            printed += ["", group] if printed else [group]
        first, *rest = _wrapped(one_line(sentence(fact)), width and width - _MARGIN)
        state = paint(fact.state, fact.state.ljust(_STATE_WIDTH))
        printed.append(f"  {state}  {entry.label.ljust(_LABEL_WIDTH)}  {first}")
        printed += [" " * _MARGIN + line for line in rest]
    return [*printed, "", *_wrapped(verdict(facts), width)]


def blocks(facts: Sequence[Fact]) -> list[Block]:
    """The same as named values."""
    pairs: list[Block] = [Pair(PROSE[fact.code].label, f"{fact.state}: {sentence(fact)}") for fact in facts]
    return [*pairs, verdict(facts)]


def render(facts: Sequence[Fact], ending: str) -> str:
    """The text of a file with this ending; JSON where it is none of the others."""
    view = View("This machine", lambda: blocks(facts), lambda: Table(_FIELDS, facts), lambda: content(facts))
    return render_view(view, ending)


_FIELDS = (
    Field("code", "Code", lambda fact: fact.code, left=True),
    Field("group", "Group", lambda fact: PROSE[fact.code].group, left=True),
    Field("state", "State", lambda fact: fact.state, left=True),
    Field("text", "Text", lambda fact: sentence(fact), left=True),
)


def _wrapped(text: str, width: int | None) -> list[str]:
    if width is None:
        return [text]
    # Commands are there to be copied: no break at their hyphens or within a path.
    return textwrap.wrap(text, max(width, _NARROWEST), break_on_hyphens=False, break_long_words=False)


def verdict(facts: Sequence[Fact]) -> str:
    """All facts in one line."""
    bad, unread = (
        [PROSE[fact.code].label for fact in facts if fact.state == state] for state in ("warn", "unknown")
    )
    cannot = f" Not readable: {', '.join(unread)}." if unread else ""
    if not bad:
        return f"Nothing {'that can be read ' if unread else ''}disturbs measurements here.{cannot}"
    things = "1 thing disturbs" if len(bad) == 1 else f"{len(bad)} things disturb"
    return f"{things} measurements here: {', '.join(bad)}.{cannot}"


def content(facts: Sequence[Fact]) -> dict[str, Any]:
    """The facts as the JSON values of a file."""
    return {
        "format": FORMAT,
        "facts": [
            {"code": fact.code, "state": fact.state, "data": plain(fact.data), "text": sentence(fact)}
            for fact in facts
        ],
        "verdict": verdict(facts),
    }
