"""The first step of a new project: name a model in one of several ways, and see what it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from nicegui import ui

from inferlab.model import reading
from inferlab.records import Dim, Event, Model, TensorSpec
from inferlab.records.generation import GenerativeModel
from inferlab.settings import models_folder
from inferlab.units import capitalized, plural, scaled, share, size
from inferlab.views.text import event as prose
from inferlab.web import faults, shell
from inferlab.web.components.uploads import PathBrowser, drop_zone
from inferlab.web.desk import Desk
from inferlab.web.shell import div, refilled, span, tag
from inferlab.workspace.versions import Version

_KINDS = {
    "onnx": "ONNX",
    "openvino": "OpenVINO IR",
    "torch-export": "torch.export program",
    "torchscript": "TorchScript",
    "transformers": "Hugging Face folder",
    "gguf": "GGUF",
    "onnxruntime-genai": "ONNX Runtime GenAI folder",
    "openvino-genai": "OpenVINO GenAI folder",
}
# Chance makes some weights zero.
_FEW = 1e-4


def kind(model: Model) -> str:
    """The format of a model as people call it."""
    return _KINDS[model.kind]


def source(model: Model) -> str:
    """Where a model comes from as the user knows it: an upload by the name of its file."""
    path = Path(model.source)
    return f"{path.name} (uploaded)" if models_folder() in path.parents else model.source


def precision(model: Model) -> str:
    """In which numbers its weights are, and how that shows where they are quantised."""
    return f"{model.precision} ({model.quantization})" if model.quantization else model.precision


def parameters(model: Model | Version) -> str:
    """How many parameters it has."""
    return "unknown" if model.parameters is None else scaled(model.parameters)


def zeros(model: Model | Version) -> str:
    """Which share of its weights is zero."""
    if model.zero_fraction is None:
        return "an unknown share"
    return "less than 0.01 %" if 0 < model.zero_fraction < _FEW else share(model.zero_fraction)


def tensor(spec: TensorSpec) -> str:
    """An input or output: its name, type and shape."""
    dims = "of unknown rank" if spec.dims is None else f"[{', '.join(map(_dim, spec.dims))}]"
    return f"{spec.name}: {spec.dtype} {dims}"


def facts(model: Model, generative: GenerativeModel | None = None) -> list[tuple[str, str]]:
    """What is known of a model that was just analysed, and what of it as one that generates tokens."""
    only_generates = generative is not None and not model.inputs
    return [
        ("Kind", kind(model)),
        *(_generates(generative) if generative is not None else ()),
        ("Inputs", "" if only_generates else "\n".join(map(tensor, model.inputs)) or "none"),
        ("Outputs", "" if only_generates else "\n".join(map(tensor, model.outputs)) or "none"),
        ("Opset", "" if model.opset is None else str(model.opset)),
        ("Parameters", parameters(model)),
        ("Size", size(model.size_bytes)),
        ("Precision", precision(model)),
        ("Zeros", "" if only_generates else f"{zeros(model)} of the weights"),
        ("Random", "the same inputs may give different outputs, which cannot be checked" if model.random else ""),
    ]


def _generates(model: GenerativeModel) -> list[tuple[str, str]]:
    """What a model is as one that generates tokens."""
    context = "no limit" if model.context is None else f"{model.context} tokens"
    return [
        (
            "Generates tokens",
            f"{model.architecture}, {plural(model.layers, 'layer')}, "
            f"{plural(model.heads, 'head')}, {plural(model.kv_heads, 'KV head')}",
        ),
        ("Context", f"{context}, vocabulary {model.vocabulary}"),
        ("KV cache", f"{size(model.kv_bytes_per_token())} per token in 16 bits"),
    ]


def origin(model: Model) -> list[tuple[str, str]]:
    """Where a model comes from, and which bytes it has."""
    return [("Source", source(model)), ("Path", model.path), ("Digest", f"sha256:{model.digest}")]


def _dim(dim: Dim) -> str:
    return "?" if dim is None else str(dim)


_ADDRESSES = (
    ("https://…", "the address of a model file; what belongs to it is fetched from beside it"),
    ("hf:org/name", "a repository of the Hugging Face hub that has an ONNX file"),
    ("zoo:STUB", "a model of SparseZoo, from a mirror that INFERLAB_ZOO names"),
)


class ModelPicker:
    """Shows the ways to name a model where it is made; `changed` is called when there is one, or none again."""

    def __init__(self, desk: Desk, changed: Callable[[], object], source: str = "") -> None:
        self._desk, self._changed = desk, changed
        #: What was chosen and analysed.
        self.model: Model | None = None
        #: What it is as one that generates tokens.
        self.generative: GenerativeModel | None = None
        self._analysis: asyncio.Task[tuple[Model, GenerativeModel | None]] | None = None
        way = _way(source)
        with ui.tabs().props("inline-label") as tabs:
            for name, words, icon in (
                ("upload", "Upload", "upload"),
                ("path", "Path on this machine", "folder_open"),
                ("address", "URL, hf: or zoo:", "link"),
                ("demo", "Demo model", "science"),
            ):
                ui.tab(name, words, icon).props(f'data-testid="way-{name}"')
        # Panels stay as they are when another is shown, so that nothing that was entered is lost.
        with ui.tab_panels(tabs, value=way, keep_alive=True, animated=False).classes("il-ways"):
            with ui.tab_panel("upload"):
                self._zone = drop_zone(desk, self._begin, self.analyse)
            with ui.tab_panel("path"):
                self._path = self._field("Path", source if way == "path" else "", "path")
                PathBrowser(desk, self._browsed)
            with ui.tab_panel("address"):
                self._address = self._field("Address or name", source if way == "address" else "", "address")
                with div("il-facts il-small"):
                    for form, meaning in _ADDRESSES:
                        div("il-mono", form)
                        div("il-muted", meaning)
            with ui.tab_panel("demo"), div("il-demos"):
                for name, meaning in (reading.DEMOS | reading.GENERATIVE_DEMOS).items():
                    self._demo(name, meaning)
        self._result = div(name="model")
        tabs.on_value_change(self._forget_problem)
        ui.context.client.on_delete(self.leave)
        if source:
            ui.timer(0.0, lambda: self.analyse(source), once=True)

    @property
    def only_generates(self) -> bool:
        """Whether the model cannot be run as one call."""
        return self.model is not None and self.generative is not None and not self.model.inputs

    def keep(self) -> None:
        """A project was made of the model: its files stay."""
        self._zone.keep()

    def leave(self) -> None:
        """Nobody looks any more: end what goes on, and remove what was uploaded for nothing."""
        if self._analysis is not None:
            self._analysis.cancel()
        self._zone.give_up()

    async def analyse(self, source: str) -> None:
        """Find a model and show what it is, or why it is none."""
        self._begin()
        # Uploads are known by their file.
        words = f"Analysing {'the uploaded file' if source.startswith('upload:') else source}"
        with self._result:
            working = shell.Working("analysis", self._begin)
            working.show(words)

        def show(event: Event) -> None:
            whole = event.fraction == 1.0
            working.show(words if whole else prose(event), None if whole else event.fraction)

        async def read() -> tuple[Model, GenerativeModel | None]:
            model = await self._desk.analyse(source, show)
            return model, await asyncio.to_thread(self._desk.workspace.generative, model)

        task = self._analysis = asyncio.create_task(read())
        problem = ""
        try:
            model, generative = await task
        except asyncio.CancelledError:
            return
        except Exception as error:
            faults.report(error)
            problem = faults.sentence(error)
        if self._analysis is not task:
            return
        self._analysis = None
        with refilled(self._result):
            if problem:
                shell.banner("warn", problem, "model-problem")
                return
            self.model, self.generative = model, generative
            _show_model(model, generative)
        self._changed()

    def _begin(self) -> None:
        """Another model is about to be named: the one before is no longer chosen."""
        if self._analysis is not None:
            self._analysis.cancel()
        self._analysis = None
        self._result.clear()
        if self.model is not None:
            self.model = None
            self._changed()

    def _forget_problem(self) -> None:
        """Who goes another way has read what was wrong with the last one."""
        if self.model is None and self._analysis is None:
            self._result.clear()

    def _field(self, label: str, value: str, name: str) -> ui.input:
        with div("il-fields-row il-name-row"):
            field = ui.input(label, value=value).props(f'data-testid="{name}"').classes("il-grow")
            go = ui.button("Analyse").props(f'outline data-testid="analyse-{name}"')

        async def analyse() -> None:
            await self.analyse(field.value or "")

        field.on("keydown.enter", analyse)
        go.on_click(analyse)
        return field

    async def _browsed(self, path: str) -> None:
        self._path.set_value(path)
        await self.analyse(path)

    def _demo(self, name: str, meaning: str) -> None:
        with tag("button", "il-demo", name=f"demo-{name}", type="button") as button:
            div("il-strong", f"demo:{name}")
            div("il-muted il-small", capitalized(meaning))
        button.on("click", lambda: self.analyse(f"demo:{name}"), [])


def _show_model(model: Model, generative: GenerativeModel | None) -> None:
    with div("il-model"):
        with div("il-row"):
            ui.icon("check_circle").classes("il-done-icon")
            span("il-strong il-cut", source(model)).props["title"] = model.source
        shell.facts(facts(model, generative))


def _way(source: str) -> str:
    """The tab that a source is named in."""
    if not source:
        return "upload"
    if source.startswith("demo:"):
        return "demo"
    return "address" if "://" in source or source.startswith(("hf:", "zoo:")) else "path"
