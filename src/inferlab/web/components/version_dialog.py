"""The dialog that asks for a version: its name, and what it is measured on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from nicegui import html, ui

from inferlab import machine
from inferlab.errors import InferlabError
from inferlab.records import Model
from inferlab.units import plural
from inferlab.web.components.card_words import seconds
from inferlab.web.components.data_field import HINT, DataField
from inferlab.web.components.dialogs import Foot
from inferlab.web.components.fields import number, whole
from inferlab.workspace.engines import EngineChoice
from inferlab.workspace.forms import has_sequence, own_batch_size
from inferlab.workspace.sources import Sources
from inferlab.workspace.tracking import parts_of
from inferlab.workspace.version_forms import SCHEMES, VersionForm, version_asked

_GENERATED = "Without data, ranges are found on generated inputs, which are not like yours."


class VersionDialog:
    """Opens at once; `run` is given what was filled in, and the dialog closes when it succeeds."""

    def __init__(
        self,
        model: Model,
        choices: Sequence[EngineChoice],
        draft: VersionForm,
        run: Callable[[VersionForm], Awaitable[None]],
        sources: Sources,
    ) -> None:
        self._model, self._draft, self._sources = model, draft, sources
        with (
            ui.context.client.content,
            ui.dialog(value=True).props("persistent") as self._dialog,
            ui.card().classes("il-dialog il-bench-dialog").props('data-testid="version-dialog"'),
        ):
            html.h2("Create Version").classes("il-dialog-title")
            html.p(_described(draft)).classes("il-muted").props('data-testid="version-what"')
            self._name = ui.input("Name", value=draft.name, on_change=self._tell).props(
                'data-testid="version-name"'
            )
            self._engines = self._engine_boxes(choices)
            self._fields(draft)
            self._foot = Foot(self._dialog, "Create", "create", lambda: run(self.form()))
        self._dialog.on("hide", self._dialog.delete)
        self._tell()

    def _engine_boxes(self, choices: Sequence[EngineChoice]) -> dict[str, ui.checkbox]:
        first = next((one.name for one in choices if not one.reason), None)
        found = {}
        with html.div().classes("il-numbers"):
            html.div("Measure against the original on").classes("il-numbers-label")
            with html.div().classes("il-checks"):
                for one in choices:
                    box = ui.checkbox(one.title, value=one.name == first, on_change=self._tell)
                    box.props(f'dense data-testid="on-{one.name}"').set_enabled(not one.reason)
                    if one.reason:
                        box.tooltip(one.reason)
                    found[one.name] = box
        return found

    def _fields(self, draft: VersionForm) -> None:
        cores = machine.usable_cores()
        with html.div().classes("il-fields-3"):
            self._time = number("Seconds", "time", self._tell, draft.time_s).props('hint="For each engine"')
            self._cores = number("CPU Cores", "num-cores", self._tell, cores)
            self._batch = number("Batch Size", "batch-size", self._tell, own_batch_size(self._model))
        self._sequence = None
        if has_sequence(self._model):
            with html.div().classes("il-fields-3"):
                self._sequence = number("Sequence Length", "sequence-length", self._tell)
                self._sequence.props('placeholder="128"')
        known = "demo:digits" if self._model.source == "demo:digits" else ""
        hint = f"{HINT} {_GENERATED}" if draft.quantization == "static" else HINT
        self._data = DataField(self._sources, known, hint, self._tell)

    def form(self) -> VersionForm:
        """What was filled in."""
        return replace(
            self._draft,
            name=self._name.value or "",
            engines=tuple(name for name, box in self._engines.items() if box.value and box.enabled),
            time_s=float(self._time.value or 0.0),
            num_cores=whole(self._cores.value, "number of cores"),
            batch_size=whole(self._batch.value, "batch size"),
            sequence_length=whole(self._sequence.value, "sequence length") if self._sequence else None,
            data=self._data.source,
        )

    def _tell(self) -> None:
        """Say how long it takes, or what is wrong."""
        try:
            form = self.form()
            asked = version_asked(form, self._model, form.levels)
            takes = seconds(sum(one.expected_s for one in parts_of(asked)))
            engines = plural(len(form.engines), "engine") if form.engines else "no engine"
            told, error = f"Made, then measured on {engines}: about {takes}.", ""
        except InferlabError as problem:
            told, error = "", str(problem)
        self._foot.tell(told, error)


async def ask_version(
    model: Model,
    choices: Callable[[], Sequence[EngineChoice]],
    draft: VersionForm,
    run: Callable[[VersionForm], Awaitable[None]],
    sources: Sources,
) -> None:
    """Ask for a version; asking the engines may take some seconds the first time."""
    found = await asyncio.to_thread(choices)
    VersionDialog(model, found, draft, run, sources)


def _described(draft: VersionForm) -> str:
    """What will be made."""
    levels = sorted(draft.levels.values())
    words = []
    if levels:
        span = (
            f"{100 * levels[0]:g} %"
            if levels[0] == levels[-1]
            else f"{100 * levels[0]:g} to {100 * levels[-1]:g} %"
        )
        words.append(f"{plural(len(levels), 'layer')} pruned to {span} zeros ({draft.pattern})")
    if draft.quantization:
        words.append(SCHEMES[draft.quantization])
    return ", then ".join(words) or "Nothing would change."
