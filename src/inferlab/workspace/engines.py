"""Which engines can be chosen for a model, and why others cannot; asked once, for it starts a process for each."""

from __future__ import annotations

import threading
from collections.abc import Sequence
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

    def choices(self, model: Model, profiling: bool = False) -> list[EngineChoice]:
        """All engines for a model, those that can be chosen first."""
        choices = [
            EngineChoice(engine.name, title(engine.name), reason(engine, model, profiling))
            for engine in self.all()
        ]
        offered = [choice for choice in choices if choice.name != registry.FAKE or not choice.reason]
        return sorted(offered, key=lambda choice: (bool(choice.reason), choice.name == registry.FAKE))

    def refuse(self, name: str, model: Model, profiling: bool = False) -> None:
        """Refuse an engine that is none of the known ones, or that cannot run a model.

        Files with engines (`file.py:Class`) are code: who may name one is at the command line, not on a page.
        """
        if why := reason(self.named(name), model, profiling):
            raise BadInput(f"{title(name)} cannot be chosen: {why}.")

    def generator_choices(self, model: GenerativeModel) -> list[EngineChoice]:
        """All engines that generate tokens, those that can be chosen for a model first."""
        able = [engine for engine in self.all() if engine.state != "ready" or _generates(engine, model)]
        choices = [
            EngineChoice(engine.name, title(engine.name), generator_reason(engine, model)) for engine in able
        ]
        # Of what is not installed, only what is made for generating is worth a line.
        offered = [choice for choice in choices if not choice.reason or choice.name in _GENERATORS]
        order = [name for name in _GENERATORS if model.kind == "gguf" or name != "llamacpp"]
        return sorted(offered, key=lambda choice: (bool(choice.reason), _place(choice.name, order)))

    def refuse_generator(self, name: str, model: GenerativeModel) -> None:
        """Refuse an engine that is none of the known ones, or that cannot generate with a model."""
        if why := generator_reason(self.named(name), model):
            raise BadInput(f"{title(name)} cannot be chosen: {why}.")

    def named(self, name: str) -> EngineInfo:
        """What is known of an engine; refuses one that is none of the known ones."""
        for engine in self.all():
            if engine.name == name:
                return engine
        raise BadInput(
            f"There is no engine '{name}'. Known engines: {', '.join(engine.name for engine in self.all())}."
        )


def reason(engine: EngineInfo, model: Model, profiling: bool = False) -> str:
    """Why an engine cannot run or profile a model; empty where it can."""
    if engine.state != "ready":
        return engine.problem or engine.state
    if model.kind not in engine.kinds:
        return f"it runs {', '.join(engine.kinds)}, and this model is {model.kind}"
    if profiling and "layer_times" not in engine.capabilities:
        return "it does not report the times of its layers"
    return ""


def _generates(engine: EngineInfo, model: GenerativeModel) -> bool:
    return not generator_reason(engine, model)


def _place(name: str, order: Sequence[str]) -> tuple[int, bool]:
    """The usual engines first, the scripted one last."""
    return order.index(name) if name in order else len(order), name == registry.FAKE


def generator_reason(engine: EngineInfo, model: GenerativeModel) -> str:
    """Why an engine cannot generate tokens with a model; empty where it can."""
    if engine.state != "ready":
        return engine.problem or engine.state
    # Some generate with a class of its own, of which the list of engines does not tell.
    can = registry.abilities(registry.launch_generator(engine.name))
    if "generation" not in can.capabilities:
        return "it does not generate tokens"
    if model.kind not in can.kinds:
        return f"it generates with {', '.join(sorted(can.kinds))}, and this model is {model.kind}"
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
