"""Which engines exist, how a child for each is started, and what each can do here."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from inferlab.engines import environments
from inferlab.errors import BadInput, InferlabError
from inferlab.files import whole_file
from inferlab.records import EngineInfo
from inferlab.settings import cache_folder, offers_fake_engine
from inferlab.version import __version__
from inferlab.worker import Launch, Worker

#: The class of each engine that comes with inferlab, in the child's module of the same name.
BUILTIN = {
    "onnxruntime": "OnnxRuntime",
    "openvino": "OpenVino",
    "torch": "Torch",
    "deepsparse": "DeepSparse",
    "executor": "Executor",
    "fake": "Fake",
}
#: Scripted, for tests and demonstrations.
FAKE = "fake"
GROUP = "inferlab.engines"

# What to install for an engine whose package is an extra of ours.
_EXTRAS = {"torch": "pip install 'inferlab[torch]'"}
# The newest ONNX IR that an engine with an environment of its own reads (ENGINES.md: tried).
_NEWEST_IR = {"deepsparse": 8}
# Into the file itself, or beside it.
_WRITES_MODEL = frozenset({"deepsparse", "executor"})
# OpenVINO 2026.4.1 runs AMX kernels of some INT8 models without configuring the tiles first (seen in a debugger).
_ADVICE = {
    "openvino": {
        "SIGILL": "On CPUs with AMX its INT8 kernels may do that; ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 in the "
        "environment makes it do without AMX."
    }
}
_PATIENCE_S = 60.0
_CHILD_ENGINES = Path(__file__).parent.parent / "child" / "engines"


class NotInstalled(BadInput):
    """An engine that exists, but not here; `remedy` is the command that installs it."""

    def __init__(self, name: str, remedy: str) -> None:
        super().__init__(f"Engine '{name}' is not installed. Install it with: {remedy}")
        self.remedy = remedy


class NotForThisMachine(BadInput):
    """An engine that exists, but cannot run on a machine of this kind."""


#: Engines that other machines may have.
NOT_HERE = (NotInstalled, NotForThisMachine)


def launch(name: str) -> Launch:
    """How to start a child for an engine: one of ours, `path/to/file.py:ClassName`, or a plug-in's."""
    if name in environments.SPECS:
        return _launch_isolated(name)
    if name in BUILTIN:
        if name in _EXTRAS and importlib.util.find_spec(name) is None:
            raise NotInstalled(name, _EXTRAS[name])
        return Launch(name, {"builtin": name, "class": BUILTIN[name]}, advice=_ADVICE.get(name, {}))
    if ".py:" in name or name.endswith(".py"):
        return _launch_file(name)
    plugins = _plugins()
    if name in plugins:
        return _launch_plugin(plugins[name])
    raise BadInput(_unknown(name, _known()))


def describe(name: str) -> EngineInfo:
    """What an engine is and can do, asked of a child; a fault of the engine's own becomes its state."""
    home = _home(name)
    try:
        start = launch(name)
    except NotInstalled as error:
        return EngineInfo(name, "missing", environment=home, problem="not installed", remedy=error.remedy)
    except NotForThisMachine as error:
        return EngineInfo(name, "missing", environment=home, problem=_reason(name, error))
    except BadInput as error:
        if name not in _known():
            raise
        return EngineInfo(name, "broken", environment=home, problem=_reason(name, error))
    try:
        with Worker(start, patience_s=_PATIENCE_S) as worker:
            told = worker.ask("describe").data
    except (InferlabError, OSError) as error:
        return EngineInfo(name, "broken", environment=home, problem=_reason(name, error), remedy=_mend(name))
    version = next(iter(told["versions"].values()), _own_version(name))
    kinds, capabilities = tuple(told["kinds"]), tuple(told["capabilities"])
    missing = told["missing"]
    if missing:
        problem, remedy = f"{', '.join(missing)} not installed", f"pip install {' '.join(missing)}"
        return EngineInfo(name, "missing", version, kinds, capabilities, home, problem, remedy)
    return EngineInfo(name, "ready", version, kinds, capabilities, home)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an engine's class says of itself."""

    kinds: frozenset[str]
    capabilities: frozenset[str]


_abilities: dict[str, Abilities] = {}


def abilities(launch: Launch, patience_s: float = _PATIENCE_S) -> Abilities:
    """What an engine can do, asked of a child once for each version of the engine and of inferlab.

    What comes with inferlab is remembered in the cache folder; what others wrote, while this process lives.
    """
    key = json.dumps([__version__, launch.interpreter, dict(launch.reference), _stamp(launch)])
    file = cache_folder() / "engines" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    if key not in _abilities and "builtin" in launch.reference:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            told = json.loads(file.read_text(encoding="utf-8"))
            _abilities[key] = Abilities(frozenset(told["kinds"]), frozenset(told["capabilities"]))
    if key not in _abilities:
        with Worker(launch, patience_s=patience_s) as worker:
            told = worker.ask("describe").data
        _abilities[key] = Abilities(frozenset(told["kinds"]), frozenset(told["capabilities"]))
        if "builtin" in launch.reference:
            with contextlib.suppress(OSError):  # only a cache
                file.parent.mkdir(parents=True, exist_ok=True)
                content = {name: told[name] for name in ("kinds", "capabilities")}
                with whole_file(file) as out:
                    out.write(json.dumps(content).encode())
    return _abilities[key]


def _stamp(launch: Launch) -> list[Any]:
    """What tells whether an engine is still the same: its package's version, or the file that defines it."""
    if "file" in launch.reference:
        told = Path(launch.reference["file"]).stat()
        return [told.st_mtime_ns, told.st_size]
    found: list[Any] = []
    with contextlib.suppress(metadata.PackageNotFoundError):
        found.append(metadata.version(launch.name))
    for source in (_CHILD_ENGINES / f"{launch.name}.py", _CHILD_ENGINES / launch.name / "__init__.py"):
        with contextlib.suppress(OSError):
            found.append(source.stat().st_mtime_ns)
    return found


def list_engines() -> list[EngineInfo]:
    """Every engine that comes with inferlab or with an installed plug-in, in that order.

    The scripted one is left out, for nobody deploys it; who names it gets it.
    """
    # A child dies with the thread that started it, and each of these threads outlives its child.
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(describe, _known()))


def _known() -> list[str]:
    names = dict.fromkeys([*BUILTIN, *environments.SPECS, *_plugins()])
    return [name for name in names if name != FAKE or offers_fake_engine()]


def _launch_isolated(name: str) -> Launch:
    # Asked even where there is an environment: a cache folder may be shared by machines of several kinds.
    if reason := environments.why_not_here(name):
        raise NotForThisMachine(f"Engine '{name}' cannot run here: {reason}.")
    interpreter = environments.interpreter_of(name)
    if interpreter is None:
        raise NotInstalled(name, f"inferlab engines install {name}")
    return Launch(
        name,
        environments.spec_of(name).reference,
        interpreter=str(interpreter),
        isolated=True,
        writes_model=name in _WRITES_MODEL,
        newest_ir=_NEWEST_IR.get(name),
    )


def _launch_file(name: str) -> Launch:
    path, _, kind = name.rpartition(":")
    if not path or not kind.isidentifier():
        raise BadInput(f"Engine '{name}' names no class. Write it as path/to/file.py:ClassName.")
    file = Path(path).expanduser()
    if not file.is_file():
        raise BadInput(f"Engine '{name}': there is no file {file}.")
    return Launch(name, {"file": str(file.resolve()), "class": kind}, trusted=True)


def _launch_plugin(point: metadata.EntryPoint) -> Launch:
    module, _, kind = point.value.partition(":")
    module, kind = module.strip(), kind.strip()
    if not all(part.isidentifier() for part in module.split(".")) or not kind.isidentifier():
        raise BadInput(
            f"Engine '{point.name}': its entry point is '{point.value}', which is not package.module:ClassName."
        )
    return Launch(point.name, {"module": module, "class": kind}, trusted=True)


def _plugins() -> dict[str, metadata.EntryPoint]:
    """The engines of installed plug-ins by name; our own names are not theirs to take."""
    found: dict[str, metadata.EntryPoint] = {}
    for point in sorted(metadata.entry_points(group=GROUP), key=lambda one: one.name):
        if point.name not in BUILTIN and point.name not in environments.SPECS:
            found.setdefault(point.name, point)
    return found


def _unknown(name: str, known: Iterable[str]) -> str:
    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return (
        f"There is no engine '{name}'.{hint} Known engines: {', '.join(names)}; "
        "one of your own is given as path/to/file.py:ClassName."
    )


def _home(name: str) -> str:
    """Where an engine's packages live."""
    if name in environments.SPECS:
        return str(environments.spec_of(name).folder)
    return EngineInfo(name, "missing").environment


def _own_version(name: str) -> str:
    """The version of an engine that names no packages: that of the plug-in or of inferlab itself."""
    if name in BUILTIN:
        return metadata.version("inferlab")
    point = _plugins().get(name)
    return point.dist.version if point is not None and point.dist is not None else ""


def _mend(name: str) -> str:
    return f"inferlab engines install {name} --reinstall" if name in environments.SPECS else ""


def _reason(name: str, error: Exception) -> str:
    """An engine's fault without what the list around it says already."""
    text = str(error)
    for start in (f"Engine '{name}'", ":", "cannot run this model:", "cannot start:"):
        text = text.removeprefix(start).strip()
    return text.removesuffix("See: inferlab engines").strip().removesuffix(".")
