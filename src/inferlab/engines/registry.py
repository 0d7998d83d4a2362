"""Which engines exist, how a child for each is started, and what each can do here."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from inferlab.engines import environments
from inferlab.engines.specs import BUILTIN, SPECS, has_environment, plugin_reference, plugins, spec_of
from inferlab.errors import BadInput, InferlabError
from inferlab.files import whole_file
from inferlab.machine import describe as describe_machine
from inferlab.records import EngineInfo, engine_name, is_release
from inferlab.settings import cache_folder, offers_fake_engine
from inferlab.version import __version__
from inferlab.worker import Launch, Worker

#: Scripted, for tests and demonstrations.
FAKE = "fake"

# OpenVINO 2026.4.1 runs AMX kernels of some INT8 models without configuring the tiles first (seen in a debugger).
_WITHOUT_AMX = {"max_cpu_isa": "AVX512_CORE_FP16"}


@dataclass(frozen=True, slots=True)
class Traits:
    """What sets an engine of ours apart from others when a child is started for it."""

    #: What it imports, and the extra of ours that brings it; empty where it is always there or has its own home.
    imports: str = ""
    extra: str = ""
    #: Where its generation is a class of its own: the child's module and the class.
    generator: tuple[str, str] | None = None
    only_generates: bool = False
    #: What its Launch has beside the names of its class and its interpreter.
    launch: Mapping[str, Any] = field(default_factory=dict)
    #: Options with which it does without AMX, where oneDNN would choose it by itself.
    without_amx: Mapping[str, str] = field(default_factory=dict)
    #: The option with which it computes an FP32 model in INT8, where it refuses models that are quantised already.
    quantizes_by: str = ""


#: By name; those that are not here have no such traits.
TRAITS = {
    "onnxruntime": Traits(generator=("onnxruntime", "OnnxRuntimeGenerator")),
    "openvino": Traits(
        generator=("openvino", "OpenVinoGenerator"),
        launch={
            "advice": {
                "SIGILL": "On CPUs with AMX its INT8 kernels may do that; --engine-option "
                f"max_cpu_isa={_WITHOUT_AMX['max_cpu_isa']} makes it do without AMX."
            }
        },
        without_amx=_WITHOUT_AMX,
    ),
    "torch": Traits("torch", "torch", generator=("torch.generation", "TorchGenerator")),
    "mnn": Traits("MNN", "mnn", launch={"converts": True}, quantizes_by="weights=int8"),
    "llamacpp": Traits("xllamacpp", "llamacpp", only_generates=True),
    "openvino-genai": Traits("openvino_genai", "genai", only_generates=True),
    "onnxruntime-genai": Traits("onnxruntime_genai", "genai", only_generates=True),
    # It reads no newer IR (ENGINES.md: tried), and writes into the file itself; the executor writes beside it.
    "deepsparse": Traits(launch={"newest_ir": 8, "writes_model": True}),
    "executor": Traits(launch={"writes_model": True}),
    FAKE: Traits(generator=("fake", "FakeGenerator")),
}
_NO_TRAITS = Traits()
# A server that the user names by its address, and the variable by which its client learns it.
_SERVER = {"builtin": "http_server", "class": "HttpServer"}
_SERVER_SCHEMES = ("http://", "https://")
_SERVER_VARIABLE = "INFERLAB_SERVER"
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
    if is_server(name):
        return _launch_server(name)
    if name in BUILTIN and name not in SPECS:
        traits = _traits(name)
        if traits.imports and importlib.util.find_spec(traits.imports) is None:
            raise NotInstalled(name, _extra(name))
        return _with_traits(Launch(name, {"builtin": name.replace("-", "_"), "class": BUILTIN[name]}), traits)
    if has_environment(name):
        return _launch_isolated(name)
    if ".py:" in name or name.endswith(".py"):
        return _launch_file(name)
    points = plugins()
    if name in points:
        return Launch(name, plugin_reference(points[name]), trusted=True)
    raise BadInput(_unknown(name, _engine_names()))


def launch_generator(name: str) -> Launch:
    """How to start a child for an engine that generates tokens."""
    usual, generator = launch(name), _traits(engine_name(name)).generator
    return (
        replace(usual, reference=dict(zip(("builtin", "class"), generator, strict=True))) if generator else usual
    )


def _traits(name: str) -> Traits:
    return TRAITS.get(name, _NO_TRAITS)


def _with_traits(launch: Launch, traits: Traits) -> Launch:
    amx = "amx_tile" in describe_machine().instruction_sets and "ONEDNN_MAX_CPU_ISA" not in os.environ
    return replace(launch, **traits.launch, safe_options=traits.without_amx if amx else {})


def is_server(name: str) -> bool:
    """Whether an engine is a server that is named by its address."""
    return name.startswith(_SERVER_SCHEMES)


def generators() -> list[str]:
    """The engines of ours that generate tokens."""
    return [name for name in BUILTIN if name != FAKE and (only_generates(name) or _traits(name).generator)]


def only_generates(name: str) -> bool:
    """Whether an engine generates tokens and can do nothing else."""
    return _traits(engine_name(name)).only_generates or is_server(name)


def quantizes_by(name: str) -> str:
    """The option with which an engine quantises models itself, in place of running quantised ones; or nothing."""
    return _traits(engine_name(name)).quantizes_by


def refuse_extra(name: str) -> None:
    """Refuse to make an environment for an engine whose package is an extra of ours."""
    if _traits(name).extra:
        raise BadInput(
            f"Engine '{name}' lives beside inferlab, without an environment of its own. "
            f"Install it with: {_extra(name)}"
        )


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
        if name not in _engine_names():
            raise
        return EngineInfo(name, "broken", environment=home, problem=_reason(name, error))
    try:
        with Worker(start, patience_s=_PATIENCE_S) as worker:
            facts = worker.ask("describe").data
    except (InferlabError, OSError) as error:
        return EngineInfo(name, "broken", environment=home, problem=_reason(name, error), remedy=_mend(name))
    version = next(iter(facts["versions"].values()), _own_version(name))
    kinds, capabilities = tuple(facts["kinds"]), tuple(facts["capabilities"])
    missing = facts["missing"]
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
    key = json.dumps([__version__, launch.interpreter, dict(launch.reference), stamp(launch)])
    file = cache_folder() / "engines" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    if key not in _abilities and "builtin" in launch.reference:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            facts = json.loads(file.read_text(encoding="utf-8"))
            _abilities[key] = Abilities(frozenset(facts["kinds"]), frozenset(facts["capabilities"]))
    if key not in _abilities:
        with Worker(launch, patience_s=patience_s) as worker:
            facts = worker.ask("describe").data
        _abilities[key] = Abilities(frozenset(facts["kinds"]), frozenset(facts["capabilities"]))
        if "builtin" in launch.reference:
            with contextlib.suppress(OSError):  # only a cache
                file.parent.mkdir(parents=True, exist_ok=True)
                content = {name: facts[name] for name in ("kinds", "capabilities")}
                with whole_file(file) as out:
                    out.write(json.dumps(content).encode())
    return _abilities[key]


def stamp(launch: Launch) -> list[Any]:
    """What tells whether an engine is still the same: its package's version, or the file that defines it."""
    if "file" in launch.reference:
        status = Path(launch.reference["file"]).stat()
        return [status.st_mtime_ns, status.st_size]
    name = engine_name(launch.name)
    marks: list[Any] = [launch.name] if name != launch.name else []
    with contextlib.suppress(metadata.PackageNotFoundError):
        marks.append(metadata.version(launch.name))
    module = launch.reference.get("builtin", name).replace(".", "/")
    for source in (_CHILD_ENGINES / f"{module}.py", _CHILD_ENGINES / module / "__init__.py"):
        with contextlib.suppress(OSError):
            marks.append(source.stat().st_mtime_ns)
    return marks


def list_engines(releases: bool = False) -> list[EngineInfo]:
    """Every engine that comes with inferlab or with an installed plug-in, in that order; then installed releases.

    The scripted one is left out, for nobody deploys it; who names it gets it.
    """
    names = _engine_names() + [name for name in environments.installed_engines() if releases and is_release(name)]
    # A child dies with the thread that started it, and each of these threads outlives its child.
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(describe, names))


def _engine_names() -> list[str]:
    names = dict.fromkeys([*BUILTIN, *SPECS, *plugins()])
    return [name for name in names if name != FAKE or offers_fake_engine()]


def _extra(name: str) -> str:
    return f"pip install 'inferlab[{_traits(name).extra}]'"


def _launch_server(address: str) -> Launch:
    parts = urlsplit(address)
    if not parts.hostname or parts.query or parts.fragment or parts.username or parts.password:
        raise BadInput(f"Engine '{address}' is no address of a server. Write it as http://127.0.0.1:8000.")
    # Ours, and it reads no model; unlike other engines it needs the network.
    return Launch(address, _SERVER, trusted=True, environment={_SERVER_VARIABLE: address})


def _launch_isolated(name: str) -> Launch:
    # Asked even where there is an environment: a cache folder may be shared by machines of several kinds.
    if reason := environments.why_not_here(name):
        raise NotForThisMachine(f"Engine '{name}' cannot run here: {reason}.")
    interpreter = environments.interpreter_of(name)
    if interpreter is None:
        raise NotInstalled(name, f"inferlab engines install {name}")
    environments.note_use(name)
    spec = spec_of(name)
    return _with_traits(environments.launch(spec, interpreter), _traits(spec.name))


def _launch_file(name: str) -> Launch:
    path, _, kind = name.rpartition(":")
    if not path or not kind.isidentifier():
        raise BadInput(f"Engine '{name}' names no class. Write it as path/to/file.py:ClassName.")
    file = Path(path).expanduser()
    if not file.is_file():
        raise BadInput(f"Engine '{name}': there is no file {file}.")
    return Launch(name, {"file": str(file.resolve()), "class": kind}, trusted=True)


def _unknown(name: str, names_there: Iterable[str]) -> str:
    names = list(dict.fromkeys(names_there))
    near = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return (
        f"There is no engine '{name}'.{hint} Known engines: {', '.join(names)}; "
        "one of your own is given as path/to/file.py:ClassName."
    )


def _home(name: str) -> str:
    """Where an engine's packages live."""
    if has_environment(name):
        return str(spec_of(name).folder)
    return EngineInfo(name, "missing").environment


def _own_version(name: str) -> str:
    """The version of an engine that names no packages: that of the plug-in or of inferlab itself."""
    if is_release(name):
        return spec_of(name).version
    if name in BUILTIN:
        return metadata.version("inferlab")
    point = plugins().get(name)
    return point.dist.version if point is not None and point.dist is not None else ""


def _mend(name: str) -> str:
    return f"inferlab engines install {name} --reinstall" if has_environment(name) else ""


def _reason(name: str, error: Exception) -> str:
    """An engine's fault without what the list around it says already."""
    text = str(error)
    for start in (f"Engine '{name}'", ":", "cannot run this model:", "cannot start:"):
        text = text.removeprefix(start).strip()
    return text.removesuffix("See: inferlab engines").strip().removesuffix(".")
