"""Which engines can be chosen for a model, and why others cannot; asked once, for it starts a process for each."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from inferlab.engines import environments, registry
from inferlab.engines.specs import SPECS, spec_of
from inferlab.errors import BadInput
from inferlab.records import EngineInfo, Model
from inferlab.records.generation import GenerativeModel

#: How engines are called on the pages.
TITLES = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "torch": "PyTorch",
    "mnn": "MNN",
    "llamacpp": "llama.cpp",
    "openvino-genai": "OpenVINO GenAI",
    "onnxruntime-genai": "ONNX Runtime GenAI",
    "deepsparse": "DeepSparse",
    "executor": "Neural Engine",
    "fake": "Fake (scripted)",
}
#: Engines that are made for generating, the usual ones first.
_GENERATORS = ("llamacpp", "torch", "openvino-genai", "onnxruntime-genai")


def title(engine: str) -> str:
    """An engine as people call it."""
    name, _, version = engine.partition("==")
    return f"{TITLES.get(name, name)} {version}".strip() if name in TITLES else engine


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """An engine in a dialog; `reason` says why it cannot be chosen, and is empty where it can."""

    name: str
    title: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Licence:
    """What a user agrees to before an engine is installed."""

    engine: str
    name: str
    summary: str
    size_bytes: int


@dataclass(slots=True)
class Engines:
    """What is known of the engines here; the first who asks waits some seconds, the others not at all."""

    _engines: tuple[EngineInfo, ...] | None = None
    #: Which engines had an environment of their own when it was asked.
    _installed: tuple[str, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def known(self) -> tuple[EngineInfo, ...] | None:
        """What was found before; None where nobody looked yet."""
        return self._engines

    def all(self) -> tuple[EngineInfo, ...]:
        """Every engine that comes with inferlab or a plug-in, but for the scripted one."""
        with self._lock:
            # One may have been installed or removed since, by a job or on the command line.
            installed = tuple(environments.installed_engines())
            if self._engines is None or installed != self._installed:
                self._engines, self._installed = tuple(registry.list_engines(releases=True)), installed
            return self._engines

    def forget(self) -> None:
        """Look again next time: one was installed or removed."""
        self._engines = None

    def choices(self, model: Model | GenerativeModel, profiling: bool = False) -> list[EngineChoice]:
        """All engines for a model, those that can be chosen first; the scripted one only where it can."""
        generates = isinstance(model, GenerativeModel)
        usual = [name for name in _GENERATORS if model.kind == "gguf" or name != "llamacpp"] if generates else []
        choices = []
        for engine in self.all():
            choice = EngineChoice(engine.name, title(engine.name), reason(engine, model, profiling))
            # Of those that cannot generate, what is made for it and not installed is worth a line.
            installable = engine.name in _GENERATORS and engine.state != "ready"
            if not choice.reason or (installable if generates else engine.name != registry.FAKE):
                choices.append(choice)

        def order(choice: EngineChoice) -> tuple[bool, int, bool]:
            place = usual.index(choice.name) if choice.name in usual else len(usual)
            return bool(choice.reason), place, choice.name == registry.FAKE

        return sorted(choices, key=order)

    def refuse(self, name: str, model: Model | GenerativeModel, profiling: bool = False) -> None:
        """Refuse an engine that is none of the known ones, or that cannot run a model, or generate with it.

        Files with engines (`file.py:Class`) are code: who may name one is at the command line, not on a page.
        """
        if why := reason(self.named(name), model, profiling):
            raise BadInput(f"{title(name)} cannot be chosen: {why}.")

    def named(self, name: str) -> EngineInfo:
        """What is known of an engine; refuses one that is none of the known ones."""
        for engine in self.all():
            if engine.name == name:
                return engine
        raise BadInput(
            f"There is no engine '{name}'. Known engines: {', '.join(engine.name for engine in self.all())}."
        )


def reason(engine: EngineInfo, model: Model | GenerativeModel, profiling: bool = False) -> str:
    """Why an engine cannot run or profile a model, or generate tokens with it; empty where it can."""
    if engine.state != "ready":
        return engine.problem or engine.state
    if isinstance(model, GenerativeModel):
        # Some generate with a class of its own, of which the list of engines does not tell.
        generator = registry.abilities(registry.launch_generator(engine.name))
        if "generation" not in generator.capabilities:
            return "it does not generate tokens"
        if model.kind not in generator.kinds:
            return f"it generates with {', '.join(sorted(generator.kinds))}, and this model is {model.kind}"
    elif model.kind not in engine.kinds:
        return f"it runs {', '.join(engine.kinds)}, and this model is {model.kind}"
    if profiling and "layer_times" not in engine.capabilities:
        return "it does not report the times of its layers"
    return ""


def licence_of(engine: str) -> Licence:
    """What is agreed to before an engine is installed into its own environment."""
    if engine not in SPECS:
        raise BadInput(f"The engine '{engine}' has no environment of its own. See: inferlab engines")
    spec = spec_of(engine)
    return Licence(engine, spec.licence, spec.licence_summary, spec.size_bytes)


def can_install(engine: EngineInfo) -> bool:
    """Whether a button can install it: it has an environment of its own, and this machine is of the right kind."""
    there = engine.name in SPECS and engine.state == "missing"
    return there and not environments.why_not_here(engine.name)
