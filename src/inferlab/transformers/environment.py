"""What a result was measured with: versions, the CPU and what it can do, threads, memory."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping
from importlib import metadata

from inferlab.transformers.arguments import BenchmarkArguments
from inferlab.transformers.results import MB
from inferlab.version import __version__


def environment(args: BenchmarkArguments, engine: str, versions: Mapping[str, str]) -> dict[str, str]:
    """The environment by Hugging Face's names where it has some; `versions` are those that measured."""
    from inferlab import machine

    here = machine.describe()
    cores = args.num_cores or machine.usable_cores()
    now = datetime.datetime.now()
    packages = {name: version for name, version in versions.items() if name not in ("inferlab", "python")}
    return {
        "inferlab_version": __version__,
        "engine": engine,
        **{f"{name}_version": package for name, package in (packages or installed(engine)).items()},
        "python_version": versions.get("python", platform.python_version()),
        "system": here.system,
        "architecture": here.architecture,
        "cpu": here.cpu,
        "instruction_sets": " ".join(here.instruction_sets),
        "physical_cores": str(here.physical_cores),
        "logical_cpus": str(here.logical_cpus),
        "numa_nodes": str(here.numa_nodes),
        "cpu_quota": "none" if here.cpu_quota is None else f"{here.cpu_quota:g}",
        "num_cores": str(cores),
        "num_threads": str(cores),
        "cpu_ram_mb": "unknown" if here.memory_bytes is None else str(here.memory_bytes // MB),
        "use_multiprocessing": "True",
        "processes": str(args.repeat),
        "only_pretrain_model": str(args.only_pretrain_model),
        "date": now.date().isoformat(),
        "time": now.time().isoformat(timespec="seconds"),
    }


def installed(engine: str) -> dict[str, str]:
    """The versions of an engine's packages in this environment, where they are in it."""
    versions = {}
    for name in (engine, *(["transformers"] if engine == "torch" else [])):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
