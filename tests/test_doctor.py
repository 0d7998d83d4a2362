"""`inferlab.machine` on machines that are laid out as files, and its documentation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from inferlab import machine
from inferlab.cli.doctor import command
from inferlab.machine.conditions import examine
from inferlab.machine.hardware import System
from inferlab.records import Fact
from inferlab.views import doctor as render
from inferlab.views.doctor import PROSE, sentence

DOCUMENTATION = (Path(__file__).parent.parent / "docs/doctor.md").read_text()
CPU = "sys/devices/system/cpu"
GROUP = "sys/fs/cgroup"
CLOCK = "sys/devices/system/clocksource/clocksource0"
ALL_COUNTERS = {
    "run_queue_wait_s": 1.0,
    "involuntary_switches": 2.0,
    "throttled_s": 0.0,
    "steal_s": 0.0,
    "cpu_pressure_s": 3.0,
}
GIB = 1 << 30
Files = Mapping[str, str]


def lay_out(root: Path, files: Files) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def stat(*cpus: tuple[int, int, int]) -> str:
    """/proc/stat of CPUs that were busy, idle and stolen for so many ticks."""
    lines = [f"cpu{n} {busy} 0 0 {idle} 0 0 0 {stolen} 0 0" for n, (busy, idle, stolen) in enumerate(cpus)]
    return "\n".join(["cpu  1 2 3 4 5 6 7 8 9 10", *lines, "intr 5"])


def process(name: str, ticks: int) -> str:
    """/proc/PID/stat of a process that has run for so many ticks, a third of them in the kernel."""
    return f"1 ({name}) S 1 1 1 0 -1 0 0 0 0 0 {ticks - ticks // 3} {ticks // 3} 0 0 20 0 1 0 5"


def intel() -> dict[str, str]:
    """A desktop: 2 cores with 2 threads each, turbo on, governor powersave."""
    files = {
        "proc/cpuinfo": "processor : 0\nmodel name : Intel(R) Core(TM) i5\nflags : fpu avx avx2 fma\n"
        "\nprocessor : 1\nmodel name : another",
        "proc/meminfo": f"MemTotal: {16 << 20} kB\nMemAvailable: {8 << 20} kB\n"
        "SwapTotal: 2048 kB\nSwapFree: 1024 kB",
        "proc/vmstat": "pgfault 99\npswpin 5\npswpout 6",
        "proc/pressure/cpu": "some avg10=1.50 avg60=0.25 avg300=0.00 total=5\nfull avg10=0.00 avg60=0.00 total=0",
        "proc/self/cgroup": "0::/user.slice/session.scope",
        f"{GROUP}/cpu.stat": "usage_usec 5",
        f"{CPU}/online": "0-3",
        f"{CPU}/smt/active": "1",
        f"{CPU}/intel_pstate/no_turbo": "0",
        f"{CPU}/isolated": "",
        f"{CPU}/nohz_full": "(null)",
        "sys/devices/system/node/node0/cpulist": "0-3",
        "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never",
        f"{CLOCK}/current_clocksource": "tsc",
        f"{CLOCK}/available_clocksource": "tsc hpet acpi_pm",
        "sys/class/dmi/id/sys_vendor": "Dell Inc.",
        "sys/class/dmi/id/product_name": "OptiPlex",
        "proc/stat": stat((100, 900, 0), (100, 900, 0), (100, 900, 0), (100, 900, 0)),
    }
    for cpu in range(4):
        folder = f"{CPU}/cpu{cpu}"
        files |= {
            f"{folder}/topology/thread_siblings_list": f"{cpu % 2},{cpu % 2 + 2}",
            f"{folder}/cpufreq/scaling_governor": "powersave",
            f"{folder}/cpufreq/scaling_driver": "intel_pstate",
            f"{folder}/cpufreq/scaling_min_freq": "800000",
            f"{folder}/cpufreq/scaling_max_freq": "4500000",
            f"{folder}/cpufreq/cpuinfo_max_freq": "4700000",
        }
    return files


@pytest.fixture
def look(tmp_path: Path) -> Callable[..., dict[str, Fact]]:
    """Examine a machine made of files, of which some change while it is watched."""

    def examined(files: Files, meanwhile: Files | None = None, **more: Any) -> dict[str, Fact]:
        lay_out(tmp_path, files)
        readings = iter(range(0, 10**9, 40))
        given: dict[str, Any] = {
            "cpu_count": 4,
            "affinity": (0, 1, 2, 3),
            "architecture": "x86_64",
            "processor": "",
            "environ": {},
            "counters": lambda cpus: ALL_COUNTERS,
            "confinement": dict,
            "clock_ns": lambda: next(readings),
            "sleep": lambda seconds: lay_out(tmp_path, meanwhile or {}),
            "process_id": 7,
            **more,
        }
        facts = examine(System(root=tmp_path, **given))
        assert all(sentence(fact) for fact in facts)
        json.dumps(render.content(facts), allow_nan=False)
        return {fact.code: fact for fact in facts}

    return examined


Look = Callable[..., dict[str, Fact]]


def test_an_intel_desktop(look: Look) -> None:
    idle = stat((100, 930, 0), (100, 930, 0), (100, 930, 0), (103, 927, 0))
    facts = look(intel(), {"proc/stat": idle})
    assert list(facts.values()) == [
        Fact(
            "cpu",
            "info",
            {"name": "Intel(R) Core(TM) i5", "architecture": "x86_64", "instruction_sets": ["avx", "fma", "avx2"]},
        ),
        Fact(
            "cores",
            "good",
            {"physical_cores": 2, "logical_cpus": 4, "usable_cores": 2, "usable_cpus": [0, 1, 2, 3]},
        ),
        Fact("smt", "info", {"on": True, "threads_per_core": 2}),
        Fact("numa", "good", {"nodes": {"0": "0-3"}}),
        Fact("isolated-cpus", "info", {"isolated": "", "nohz_full": "", "inside": False}),
        Fact("governor", "warn", {"governors": {"powersave": 4}, "driver": "intel_pstate"}),
        Fact("turbo", "info", {"on": True, "file": f"/{CPU}/intel_pstate/no_turbo"}),
        Fact(
            "frequency",
            "info",
            {"min_mhz": 800, "max_mhz": 4500, "hardware_max_mhz": 4700, "slowest_hardware_max_mhz": 4700},
        ),
        Fact("cpu-quota", "good", {"quota": None}),
        Fact("thread-pools", "good", {"threads": 4, "cpus": 4, "quota": None}),
        Fact("thread-variables", "good", {"counts": {}, "behaviour": {}}),
        Fact(
            "memory",
            "good",
            {"total_bytes": 16 * GIB, "available_bytes": 8 * GIB, "limit_bytes": None, "usable_bytes": 8 * GIB},
        ),
        Fact("swap", "info", {"total_bytes": 2 << 20, "used_bytes": 1 << 20, "pages_moved": 0}),
        Fact("huge-pages", "info", {"mode": "always"}),
        Fact("confinement", "good", {"off": False, "missing": {}}),
        Fact("clock-source", "good", {"name": "tsc", "available": ["tsc", "hpet", "acpi_pm"]}),
        Fact("clock-cost", "good", {"cost_ns": 40.0, "step_ns": 40}),
        Fact("virtual-machine", "good", {"virtual": False, "product": "Dell Inc. OptiPlex"}),
        Fact(
            "busy",
            "good",
            {"share": 3 / 120, "of_each_cpu": {"0": 0, "1": 0, "2": 0, "3": 0.1}, "seconds": 0.3, "by": []},
        ),
        Fact("steal", "good", {"share": 0, "share_since_boot": 0}),
        Fact("pressure", "good", {"share_10_s": 0.015, "share_60_s": 0.0025}),
        Fact("noise-counters", "good", {"readable": list(ALL_COUNTERS), "missing": []}),
    ]
    assert render.verdict(list(facts.values())) == "1 thing disturbs measurements here: governor."


def test_an_amd_server_of_two_nodes_that_is_set_up_for_measuring(look: Look) -> None:
    files = intel() | {
        "proc/cpuinfo": "model name : AMD EPYC 9654\nflags : avx avx2 avx512f",
        f"{CPU}/smt/active": "0",
        f"{CPU}/cpufreq/boost": "0",
        f"{CPU}/isolated": "0-3",
        f"{CPU}/nohz_full": "2-3",
        "sys/devices/system/node/node0/cpulist": "0-1",
        "sys/devices/system/node/node1/cpulist": "2-3",
        "sys/devices/system/node/node2/cpulist": "",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    }
    del files[f"{CPU}/intel_pstate/no_turbo"]
    for cpu in range(4):
        files |= {
            f"{CPU}/cpu{cpu}/topology/thread_siblings_list": str(cpu),
            f"{CPU}/cpu{cpu}/cpufreq/scaling_governor": "performance",
            f"{CPU}/cpu{cpu}/cpufreq/scaling_min_freq": "2400000",
            f"{CPU}/cpu{cpu}/cpufreq/scaling_max_freq": "2400000",
        }
    facts = look(files)
    assert facts["smt"] == Fact("smt", "good", {"on": False, "threads_per_core": 1})
    assert facts["cores"].data["physical_cores"] == 4
    assert facts["turbo"] == Fact("turbo", "good", {"on": False, "file": f"/{CPU}/cpufreq/boost"})
    assert facts["numa"] == Fact("numa", "info", {"nodes": {"0": "0-1", "1": "2-3"}})
    assert facts["isolated-cpus"].state == "good"
    assert facts["governor"].state == "good"
    assert sentence(facts["frequency"]) == "fixed at 2.4 GHz."
    assert facts["huge-pages"] == Fact("huge-pages", "good", {"mode": "madvise"})


def test_an_arm_server_has_a_name_and_no_flag_for_its_hypervisor(look: Look) -> None:
    files = {
        "proc/cpuinfo": "processor : 0\nFeatures : fp asimd asimddp\nCPU implementer : 0x41\nCPU part : 0xd40",
        f"{CLOCK}/current_clocksource": "arch_sys_counter",
        "sys/class/dmi/id/sys_vendor": "Amazon EC2",
        "sys/class/dmi/id/product_name": "c7g.xlarge",
    }
    facts = look(files, architecture="aarch64")
    assert facts["cpu"].data["name"] == "Neoverse V1"
    assert facts["cpu"].data["instruction_sets"] == ["asimd", "asimddp"]
    assert facts["clock-source"].state == "good"
    assert facts["virtual-machine"].data == {"virtual": True, "product": "Amazon EC2 c7g.xlarge"}
    metal = look({**files, "sys/class/dmi/id/product_name": "c7g.metal"})
    assert metal["virtual-machine"].state == "good"


def test_a_machine_that_shows_nothing_still_gets_a_report(look: Look) -> None:
    facts = look({}, affinity=None, cpu_count=8, architecture="arm64", counters=lambda cpus: {})
    assert {code for code, fact in facts.items() if fact.state != "unknown"} == {
        "thread-pools",
        "thread-variables",
        "confinement",
        "clock-cost",
    }
    assert facts["cores"].data["logical_cpus"] == 8
    report = render.lines(list(facts.values()), None, lambda state, word: word)
    assert report[1] == "  unknown  CPU               cannot be read."
    assert report[-1].startswith("Nothing that can be read disturbs measurements here. Not readable: CPU, cores,")


def test_a_container_of_version_2_is_limited_by_its_own_cgroup(look: Look) -> None:
    files = intel() | {
        "proc/self/cgroup": "0::/",
        f"{GROUP}/cpu.max": "150000 100000",
        f"{GROUP}/memory.max": str(4 * GIB),
        f"{GROUP}/memory.current": str(3 * GIB),
        f"{GROUP}/memory.stat": f"anon 5\ninactive_file {GIB // 2}",
    }
    facts = look(files)
    assert facts["cpu-quota"] == Fact("cpu-quota", "info", {"quota": 1.5})
    assert facts["thread-pools"] == Fact("thread-pools", "warn", {"threads": 4, "cpus": 4, "quota": 1.5})
    assert "it sees 4, the quota pays for 1.5. inferlab uses 1 core by default" in sentence(facts["thread-pools"])
    assert facts["memory"].data["limit_bytes"] == 4 * GIB
    assert facts["memory"].data["usable_bytes"] == 1.5 * GIB


def test_a_container_of_version_1_is_limited_whatever_its_path_is_outside(look: Look) -> None:
    files = intel() | {
        "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc",
        f"{GROUP}/cpu,cpuacct/cpu.cfs_quota_us": "50000",
        f"{GROUP}/cpu,cpuacct/cpu.cfs_period_us": "100000",
        f"{GROUP}/memory/memory.limit_in_bytes": str(GIB),
        f"{GROUP}/memory/memory.usage_in_bytes": str(GIB // 2),
    }
    facts = look(files)
    assert facts["cpu-quota"].data == {"quota": 0.5}
    assert "even a single busy thread is stopped 50 % of the time" in sentence(facts["thread-pools"])
    assert facts["memory"].state == "warn"
    assert facts["memory"].data["usable_bytes"] == GIB // 2


def test_limits_without_a_number_are_none(look: Look) -> None:
    files = intel() | {
        f"{GROUP}/cpu.max": "max 100000",
        f"{GROUP}/memory.max": "max",
        f"{GROUP}/memory.current": "5",
        f"{GROUP}/cpu/cpu.cfs_quota_us": "-1",
        f"{GROUP}/cpu/cpu.cfs_period_us": "100000",
        f"{GROUP}/memory/memory.limit_in_bytes": "9223372036854771712",
        f"{GROUP}/memory/memory.usage_in_bytes": "5",
    }
    facts = look(files)
    assert facts["cpu-quota"] == Fact("cpu-quota", "good", {"quota": None})
    assert facts["memory"].data["limit_bytes"] is None


@pytest.mark.parametrize(
    ("own", "quota"),
    [
        ("0::/a.slice/b.scope", 2.0),
        ("0::/a.slice", 3.0),
        ("0::/c.slice", None),
        ("0::/../outside", None),
        ("", None),
    ],
)
def test_the_quota_is_the_tightest_of_the_cgroups_that_enclose_the_process(
    tmp_path: Path, own: str, quota: float | None
) -> None:
    lay_out(
        tmp_path,
        {
            **({"proc/self/cgroup": own} if own else {}),
            f"{GROUP}/a.slice/cpu.max": "300000 100000",
            f"{GROUP}/a.slice/b.scope/cpu.max": "200000 100000",
            f"{GROUP}/a.slice/other.scope/cpu.max": "1000 100000",
            "sys/fs/outside/cpu.max": "1000 100000",
        },
    )
    assert machine.cpu_quota(tmp_path) == quota


def test_fewer_cpus_than_a_program_counts_are_told_apart_from_a_quota(look: Look) -> None:
    facts = look(intel(), affinity=(1, 3))
    assert facts["cores"].state == "info"
    assert facts["cores"].data["usable_cores"] == 1
    assert "may use only CPUs 1,3," in sentence(facts["cores"])
    assert facts["thread-pools"] == Fact("thread-pools", "info", {"threads": 4, "cpus": 2, "quota": None})


def test_busy_cpus_are_reported_with_the_processes_that_keep_them_busy(look: Look) -> None:
    before = {
        "proc/31/stat": process("stress (a) b", 300),
        "proc/32/stat": process("idle", 50),
        "proc/7/stat": process("inferlab", 0),
    }
    meanwhile = {
        "proc/stat": stat((130, 900, 0), (115, 915, 0), (100, 930, 0), (100, 930, 0)),
        "proc/31/stat": process("stress (a) b", 330),
        "proc/7/stat": process("inferlab", 30),
        "proc/33/stat": process("new", 3),
    }
    busy = look(intel() | before, meanwhile)["busy"]
    assert busy.state == "warn"
    assert busy.data["share"] == 45 / 120
    assert busy.data["of_each_cpu"] == {"0": 1.0, "1": 0.5, "2": 0.0, "3": 0.0}
    assert busy.data["by"] == [
        {"name": "stress (a) b", "process_id": 31, "cpus": 1.0},
        {"name": "new", "process_id": 33, "cpus": 0.1},
    ]
    assert sentence(busy) == (
        "other programs took 38 % of the CPUs' time in 300 ms (the busiest, CPU 0: 100 %); running now: "
        "stress (a) b (process 31: 100 % of a CPU), new (process 33: 10 % of a CPU). Stop them before you measure."
    )


def test_only_the_cpus_that_this_process_may_use_count_as_busy(look: Look) -> None:
    meanwhile = {"proc/stat": stat((130, 900, 0), (100, 930, 0), (100, 930, 0), (100, 930, 0))}
    assert look(intel(), meanwhile, affinity=(1,))["busy"].data["of_each_cpu"] == {"1": 0.0}


def test_busy_cpus_that_no_visible_process_explains_point_outside(look: Look) -> None:
    meanwhile = {"proc/stat": stat((130, 900, 0), (130, 900, 0), (100, 930, 0), (100, 930, 0))}
    assert "look outside the container" in sentence(look(intel(), meanwhile)["busy"])


def test_steal_is_seen_now_and_since_boot(look: Look) -> None:
    before = {"proc/cpuinfo": "model name : vCPU\nflags : hypervisor", "proc/stat": stat((90, 900, 0))}
    facts = look(before, {"proc/stat": stat((95, 915, 5))}, affinity=(0,))
    assert facts["virtual-machine"].state == "info"
    assert facts["steal"] == Fact("steal", "warn", {"share": 0.2, "share_since_boot": 0.05})


def test_swapping_warns_and_old_swap_does_not(look: Look) -> None:
    facts = look(intel(), {"proc/vmstat": "pswpin 9\npswpout 6"})
    assert facts["swap"].state == "warn"
    assert sentence(facts["swap"]).startswith("4 pages moved")


@pytest.mark.parametrize(
    ("environ", "state"),
    [
        ({"PATH": "/bin"}, "good"),
        ({"OMP_NUM_THREADS": "1"}, "info"),
        ({"OMP_NUM_THREADS": "1", "GOMP_CPU_AFFINITY": "0-3"}, "warn"),
    ],
)
def test_variables_that_set_threads(look: Look, environ: Mapping[str, str], state: str) -> None:
    assert look(intel(), environ=environ)["thread-variables"].state == state


@pytest.mark.parametrize("name", ["hpet", "acpi_pm", "xen"])
def test_a_slow_clock_source_warns_and_names_the_faster_one(look: Look, name: str) -> None:
    fact = look(intel() | {f"{CLOCK}/current_clocksource": name})["clock-source"]
    assert fact.state == "warn"
    assert "echo tsc | sudo tee /sys/devices" in sentence(fact)


def test_a_coarse_clock_and_one_that_stands_still_warn(look: Look) -> None:
    coarse = iter(number // 300 * 15_000_000 for number in range(10**6))
    fact = look(intel(), clock_ns=lambda: next(coarse))["clock-cost"]
    assert (fact.state, fact.data["step_ns"]) == ("warn", 15_000_000)
    assert sentence(fact).endswith("Calls shorter than 1.5 s are off by 1 % or more.")
    still = look(intel(), clock_ns=lambda: 5)["clock-cost"]
    assert still == Fact("clock-cost", "warn", {"cost_ns": 0.0, "step_ns": None})


def test_cpus_of_different_kinds_warn_and_favoured_ones_do_not(look: Look) -> None:
    favoured = look(intel() | {f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq": "4900000"})
    assert favoured["frequency"].state == "info"
    hybrid = look(intel() | {f"{CPU}/cpu3/cpufreq/cpuinfo_max_freq": "3400000"})
    assert hybrid["frequency"].state == "warn"


def test_counters_that_cannot_be_read_are_named(look: Look) -> None:
    fact = look(intel(), counters=lambda cpus: {"involuntary_switches": 1.0})["noise-counters"]
    assert fact.state == "unknown"
    assert sentence(fact) == (
        "a run cannot see waiting for a CPU (schedstat), throttling by a quota (cpu.stat), steal (/proc/stat), "
        "CPU pressure (/proc/pressure). It records involuntary switches (getrusage)."
    )


def test_lines_wrap_under_their_sentence_but_not_at_hyphens(look: Look) -> None:
    facts = look(intel())
    lines = render.lines([facts["governor"], facts["steal"]], 70, lambda state, word: f"<{word}>")
    assert lines == [
        "Clock speed",
        "  <warn   >  governor          powersave on 4 CPUs: the clock speed",
        "                             follows the load, so the first calls",
        "                             after a pause are slower. Set it with:",
        "                             sudo cpupower frequency-set -g",
        "                             performance",
        "",
        "Disturbances",
        "  <unknown>  steal             cannot be read: a host may take CPU time",
        "                             unseen.",
        "",
        "1 thing disturbs measurements here: governor. Not readable: steal.",
    ]


def test_every_fact_and_option_is_documented_and_no_other() -> None:
    assert re.findall(r"^\| `([a-z][a-z-]+)` \|", DOCUMENTATION, re.M) == list(PROSE)
    options = {name for param in command.params for name in param.opts}
    assert (
        set(re.findall(r"`(-{1,2}\w+)`", "\n".join(re.findall(r"^\| (`-.*?) \|", DOCUMENTATION, re.M)))) == options
    )


def test_what_the_system_does_not_allow_of_confinement_is_said_once_each(look: Look) -> None:
    missing = {"files": "the kernel has no Landlock, or it is switched off", "network": "only Linux has seccomp"}
    fact = look(intel(), confinement=lambda: missing)["confinement"]
    assert fact == Fact("confinement", "info", {"off": False, "missing": missing})
    assert sentence(fact) == (
        "An engine can read and write all of your files: the kernel has no Landlock, or it is switched off. "
        "An engine can use the network: only Linux has seccomp."
    )


def test_readers_that_cannot_be_confined_are_said(look: Look) -> None:
    fact = look(intel(), can_fork=False)["confinement"]
    assert fact == Fact("confinement", "info", {"off": False, "missing": {"readers": "this system cannot fork"}})
    assert sentence(fact) == (
        "What inferlab itself reads of a model, it reads in its own process, unconfined: this system cannot fork."
    )


def test_confinement_that_is_switched_off_is_said(look: Look) -> None:
    fact = look(intel(), environ={"INFERLAB_CONFINEMENT": "off"})["confinement"]
    assert sentence(fact) == "off (INFERLAB_CONFINEMENT): run only models that you trust."


def test_every_part_of_confinement_that_can_be_missing_has_a_sentence(look: Look) -> None:
    parts = ("files", "network", "memory", "cpu", "file_size", "processes", "privileges", "out_of_memory")
    fact = look(intel(), confinement=lambda: dict.fromkeys(parts, "so"))["confinement"]
    assert sentence(fact).count(": so.") == len(parts)
