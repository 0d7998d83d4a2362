"""The dialog that asks for a generation: engines, prompts, tokens, depths, batch sizes, cores, and how long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from nicegui import html, ui

from inferlab import machine
from inferlab.errors import BadInput, InferlabError
from inferlab.options.generation import GENERATION, make_generation_plan
from inferlab.records.generation import GenerationPlan, GenerativeModel
from inferlab.store.entries import Project
from inferlab.units import plural
from inferlab.web.components.dialogs import Foot, dialog
from inferlab.web.components.fields import NumberChips, OptionFields, ReasonSelect, number
from inferlab.web.components.jobs import duration
from inferlab.web.desk import Desk
from inferlab.workspace.engines import EngineChoice
from inferlab.workspace.jobs import parts_of
from inferlab.workspace.requests import (
    GenerationCapacityRequest,
    GenerationComparisonRequest,
    GenerationRecommendationRequest,
    GenerationRequest,
    generation_capacity_request,
    generation_comparison_request,
    generation_recommendation_request,
    generation_request,
)

_PROMPTS = (16, 32, 128, 512, 2048)
_NEW = (16, 32, 64, 128, 256)
_DEPTHS = (0, 256, 512, 2048, 8192)
_BATCHES = (1, 2, 4, 8, 16)
_MOST_CHIPS = 16
#: The options that have fields of their own; others are shown as they are declared.
_LAID_OUT = ("engine", "prompt", "new", "depth", "batch_size", "num_cores", "time", "scenario", "rate", "slo")
#: What can be asked for: a scenario, or what is made of several measurements.
_TASKS = {
    "sync": "one batch after the other",
    "server": "requests arrive at a rate, whether or not the last is done",
    "compare": "two engines generate the same tokens, interleaved",
    "capacity": "the highest rate of requests of which enough meet an objective",
    "recommend": "the engine, cores and batch size that generate most tokens per second",
}
_TITLES = {"compare": "compare engines", "capacity": "highest rate", "recommend": "best configuration"}
_WITH_OBJECTIVE = ("server", "capacity", "recommend")
#: What the dialog asks for.
Form = (
    GenerationRequest | GenerationComparisonRequest | GenerationCapacityRequest | GenerationRecommendationRequest
)


class GenerationDialog:
    """Opens at once; `run` is given what was filled in, and the dialog closes when it succeeds."""

    def __init__(
        self,
        model: GenerativeModel,
        choices: Sequence[EngineChoice],
        run: Callable[[Form], Awaitable[None]],
    ) -> None:
        self._model, self._asked = model, 0
        with dialog(
            "Create generation", "il-bench-dialog", name="generation-dialog", persistent=True
        ) as self._dialog:
            names = {name: _TITLES.get(name, name) for name in _TASKS}
            self._scenario = ReasonSelect("scenario", "What to measure", names, "sync", {}, _TASKS)
            self._scenario.props('data-testid="scenario"').on_value_change(self._task_changed)
            self._engines = self._engine_boxes(choices)
            self._what()
            self._how()
            self._foot = Foot(self._dialog, "Run", "run", lambda: run(self.form()))

    async def begin(self) -> None:
        """Show what follows from what it begins with."""
        await self._changed()

    def _engine_boxes(self, choices: Sequence[EngineChoice]) -> dict[str, ui.checkbox]:
        found: dict[str, ui.checkbox] = {}
        with html.div(role="group").classes("il-numbers").props('data-testid="engines" aria-label="Engines"'):
            html.div("Engines").classes("il-numbers-label")
            with html.div().classes("il-engine-boxes"):
                for choice in choices:
                    with html.div():
                        first = not choice.reason and not found
                        box = ui.checkbox(choice.title, value=first, on_change=self._changed)
                        box.props(f'dense data-testid="engine-{choice.name}"').set_enabled(not choice.reason)
                        if choice.reason:
                            html.div(choice.reason[:1].upper() + choice.reason[1:]).classes("il-muted il-small")
                        else:
                            found[choice.name] = box
        return found

    def _what(self) -> None:
        usual, context = GenerationPlan(""), self._model.context
        self._prompt = self._chips("Prompt length (tokens)", "prompt", _PROMPTS, usual.prompt_tokens[0], context)
        self._new = self._chips("New tokens", "new", _NEW, usual.new_tokens[0], context)
        self._depth = self._chips(
            "Depth (tokens in the cache before the prompt)", "depth", _DEPTHS, usual.depths[0], context
        )
        self._batches = self._chips("Batch sizes", "batches", _BATCHES, 1, None)
        cores = len(machine.cores())
        offered = range(1, cores + 1) if cores <= _MOST_CHIPS else [2**one for one in range(cores.bit_length())]
        self._cores = NumberChips("Core counts", "cores", offered, machine.usable_cores(), cores, self._changed)

    def _chips(self, label: str, name: str, offered: Sequence[int], value: int, most: int | None) -> NumberChips:
        """Chips for what fits into the context; where even the usual value does not, for the largest that does."""
        fitting = [one for one in offered if most is None or one < most] or [1]
        chosen = value if most is None or value < most else fitting[0]
        return NumberChips(label, name, fitting, chosen, most, self._changed)

    def _how(self) -> None:
        with html.div().classes("il-fields-2"):
            self._time = number("Time (s)", "time", self._changed, value=GenerationPlan("").time_s)
            self._rate = number("Requests per second", "rate", self._changed)
        with html.div() as self._slo_row:
            self._slo = ui.input("Objective (optional)", on_change=self._changed)
            self._slo.props('stack-label debounce=300 placeholder="ttft<500ms,tpot<50ms" data-testid="slo"')
            self._slo.props["hint"] = "What a request must meet to count as good"
        self._more = OptionFields("generate", _LAID_OUT, self._changed, GENERATION)

    def form(self) -> Form:
        """What was filled in."""
        engines = tuple(name for name, box in self._engines.items() if box.value)
        if not self._engines:
            raise BadInput("No engine here can generate with this model. Install one: inferlab engines")
        if not engines:
            raise BadInput("Choose an engine.")
        task = str(self._scenario.value)
        serves = task == "server"
        if serves and not self._rate.value:
            raise BadInput("Give the requests per second that arrive.")
        slo = (self._slo.value or "").strip()
        values = {
            **self._more.values(),
            "engine": engines,
            "prompt": tuple(self._prompt.values),
            "new": tuple(self._new.values),
            "depth": tuple(self._depth.values),
            "batch_size": tuple(self._batches.values),
            "num_cores": tuple(self._cores.values),
            "time": 0.0 if self._time.value is None else float(self._time.value),
            "scenario": "server" if serves else "sync",
            "rate": (float(self._rate.value) if serves else None,),
            "slo": GENERATION["slo"].check(slo or None) if task in _WITH_OBJECTIVE else (),
        }
        plan = make_generation_plan("", values)
        if task == "compare":
            a, b = replace(plan, engines=engines[:1]), replace(plan, engines=engines[1:])
            return GenerationComparisonRequest(a, b, time_s=plan.time_s)
        if task == "capacity":
            return GenerationCapacityRequest(plan)
        return (
            GenerationRecommendationRequest(plan, plan.time_s) if task == "recommend" else GenerationRequest(plan)
        )

    async def _task_changed(self) -> None:
        """Begin with the time that what was chosen usually takes."""
        self._time.set_value(GENERATION["time"].default_of(str(self._scenario.value)))
        await self._changed()

    async def _changed(self) -> None:
        task = str(self._scenario.value)
        serves = task == "server"
        self._scenario.props["hint"] = _TASKS[task]
        self._time.props["hint"] = "In all" if task in _TITLES else "For each combination"
        self._rate.set_enabled(serves)
        self._rate.props["hint"] = "" if serves else "server only"
        self._slo_row.set_visibility(task in _WITH_OBJECTIVE)
        self._asked += 1
        asked = self._asked
        try:
            form = self.form()
            told, error = await asyncio.to_thread(_predicted, form, self._model), ""
        except InferlabError as problem:
            told, error = "", str(problem)
        if asked == self._asked and not self._dialog.is_deleted:
            self._foot.tell(told, error)


async def open_generation_dialog(desk: Desk, project: Project, queued: Callable[[], Awaitable[None]]) -> None:
    """Ask for a generation of a project; `queued` is called afterwards."""
    workspace, model = desk.workspace, project.generative
    assert model is not None, "only a model that generates has this dialog"

    def add(form: Form) -> None:
        if isinstance(form, GenerationComparisonRequest):
            workspace.add_generation_comparison(project.id, form)
        elif isinstance(form, GenerationCapacityRequest):
            workspace.add_generation_capacity(project.id, form)
        elif isinstance(form, GenerationRecommendationRequest):
            workspace.add_generation_recommendation(project.id, form)
        else:
            workspace.add_generation(project.id, form)

    async def run(form: Form) -> None:
        await asyncio.to_thread(add, form)
        await queued()

    waiting = None
    if workspace.engines.known is None:
        waiting = ui.notification("Checking which engines are available…", timeout=None, spinner=True)
    choices = await asyncio.to_thread(workspace.engines.generator_choices, model)
    if waiting is not None:
        waiting.dismiss()
    await GenerationDialog(model, choices, run).begin()


def _predicted(form: Form, model: GenerativeModel) -> str:
    """How much there is to measure, and about how long that takes."""
    asked = _checked(form, model)
    parts = parts_of(asked)
    takes_s = sum(part.expected_s for part in parts)
    if not isinstance(asked, GenerationRequest):
        return f"About {duration(takes_s)}."
    # The first part is reading the model.
    return f"{plural(len(parts) - 1, 'combination')}, about {duration(takes_s)}."


def _checked(form: Form, model: GenerativeModel) -> Form:
    """The job that is asked for; refuses what cannot be measured."""
    if isinstance(form, GenerationComparisonRequest):
        return generation_comparison_request(form, model)
    if isinstance(form, GenerationCapacityRequest):
        return generation_capacity_request(form, model)
    if isinstance(form, GenerationRecommendationRequest):
        return generation_recommendation_request(form, model)
    return generation_request(form, model)
