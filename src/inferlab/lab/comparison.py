"""The two arms of a comparison, compared once or at several core counts and batch sizes, each saved as it ends."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from inferlab.errors import BadInput, InferlabError
from inferlab.options.plan import COMPARISON, make_plan
from inferlab.records import Event, Listener, Plan
from inferlab.records.comparison import Comparison, ComparisonFailure, GenerationComparison
from inferlab.records.generation import GenerationPlan

Settings = Mapping[str, Any]
P = TypeVar("P", bound=Plan | GenerationPlan)
C = TypeVar("C", bound=Comparison | GenerationComparison)
_WORDS = {"num_cores": "core counts", "prompt_tokens": "prompt lengths", "new_tokens": "numbers of new tokens"}
# What a plan may have several of, where the comparisons of all combinations make a sweep.
_SWEPT: Mapping[type, Sequence[str]] = {
    Plan: ("num_cores", "batch_sizes"),
    GenerationPlan: ("num_cores", "batch_sizes", "prompt_tokens", "new_tokens", "depths"),
}


def arm_plans(models: Sequence[str], values: Settings, own: Sequence[Settings]) -> tuple[Plan, Plan]:
    """Both plans: of the values that are common to them, by keyword, and those of each arm alone."""
    a, b = (make_plan(model, arm, timed=False) for model, arm in _arms(models, values, own))
    return a, b


def generation_arms(
    models: Sequence[str], values: Settings, own: Sequence[Settings]
) -> tuple[GenerationPlan, GenerationPlan]:
    """Both plans of models that generate."""
    from inferlab.options.generation import generation_values, make_generation_plan

    for settings in own:
        generation_values("compare", {name: value for name, value in settings.items() if name != "model"})
    a, b = (make_generation_plan(model, arm) for model, arm in _arms(models, values, own))
    return a, b


def _arms(
    models: Sequence[str], values: Settings, own: Sequence[Settings]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The model and all values of each arm."""
    engines = values.get("engine", ())
    for what, names in (("models", models), ("engines", engines)):
        if len(names) > 2:
            raise BadInput(f"Two {what} are compared, not {len(names)}: {', '.join(names)}.")
    for index, settings in enumerate(own):
        arm = {**values, **({"engine": (engines[min(index, len(engines) - 1)],)} if engines else {}), **settings}
        # Engine options of an arm add to the common ones.
        if pairs := (*values.get("engine_option", ()), *settings.get("engine_option", ())):
            arm["engine_option"] = COMPARISON["engine_option"].kind.collect(pairs)
        yield arm.pop("model", models[min(index, len(models) - 1)]), arm


def arm_labels(a: Plan | GenerationPlan, b: Plan | GenerationPlan) -> tuple[str, str]:
    """What tells the arms apart, or the model where nothing does."""
    told = []
    for one, other in ((a, b), (b, a)):
        differing = [
            _value(getattr(one, name)) if name in ("model", "engines") else f"{name}={_value(getattr(one, name))}"
            for name in type(a).__slots__
            if getattr(one, name) != getattr(other, name)
        ]
        told.append(", ".join(differing) or one.model)
    return told[0], told[1]


def _value(value: Any) -> str:
    if isinstance(value, tuple) and value:
        return " ".join(_value(one) if not isinstance(one, tuple) else "=".join(one) for one in value)
    return "default" if value in (None, ()) else str(value)


def validate_comparison(a: Plan, b: Plan, time_s: float, margin: float) -> None:
    """Refuse what cannot be compared before anything is loaded."""
    COMPARISON["margin"].validate(margin)
    if not 0 < time_s < math.inf:
        raise BadInput(f"The time must be more than 0 seconds and finite, not {time_s:g}.")
    served = [plan.rates for plan in (a, b) if "server" in plan.scenarios]
    if served and (len(served) < 2 or a.rates != b.rates):
        raise BadInput(
            "Arms of the scenario server get the same requests: give both -s server and the same --rate, or "
            "compare what each can serve with inferlab capacity."
        )


def comparison_title(a: Plan, b: Plan, labels: tuple[str, str]) -> str:
    """How a comparison is listed: its arms, and their model where these do not name it."""
    about = f"{a.model}: " if a.model == b.model and a.model not in labels else ""
    return f"{about}{labels[0]} / {labels[1]}"


def split(a: P, b: P) -> list[tuple[P, P]]:
    """Plans of one core count, batch size and so on each, B's at the place of A's."""
    lists = _SWEPT[type(a)]
    if any(len(getattr(a, name)) != len(getattr(b, name)) for name in lists):
        raise BadInput(f"Both arms of a comparison need equally many {_listed(lists)}.")
    places = itertools.product(*(range(len(getattr(a, name))) for name in lists))
    return [(_at(a, place), _at(b, place)) for place in places]


def _listed(lists: Sequence[str]) -> str:
    *others, last = (_WORDS.get(name, name.replace("_", " ")) for name in lists)
    return f"{', '.join(others)} and {last}"


def _at(plan: P, place: Sequence[int]) -> P:
    values = zip(_SWEPT[type(plan)], place, strict=True)
    changes: dict[str, Any] = {name: (getattr(plan, name)[number],) for name, number in values}
    return replace(plan, **changes)


class Comparing(Generic[C]):
    """A sweep of comparisons on its way; each is given to `save` with those before it when it ends."""

    def __init__(
        self,
        listener: Listener,
        save: Callable[[Sequence[C], Sequence[ComparisonFailure], int], object] = lambda *_: None,
        before: Sequence[C] = (),
    ) -> None:
        self._listener = listener
        self._save_all: Callable[[Sequence[C], Sequence[ComparisonFailure], int], object] = save
        #: What was cut short is measured again.
        self.results: list[C] = [result for result in before if not result.interrupted]
        self.failures: list[ComparisonFailure] = []
        self._of = 1

    def run(self, pairs: Sequence[tuple[P, P]], compare: Callable[[P, P], C]) -> bool:
        """Compare what has no result yet, and say whether it was interrupted: Ctrl-C keeps what there is."""
        self._of = len(self.results) + len(pairs)
        interrupted = False
        for one, other in pairs:
            try:
                comparison = compare(one, other)
            except InferlabError as error:
                self.failures.append(ComparisonFailure(**_place(one), message=str(error)))
                continue
            except KeyboardInterrupt:
                interrupted = True
                break
            self._save([*self.results, comparison])
            self.results.append(comparison)
            if comparison.interrupted:
                interrupted = True
                break
        if self.failures and self.results:
            self._save(self.results)
        return interrupted

    def listen(self, event: Event) -> None:
        """Pass on what is told of one comparison, with how much of the whole is done."""
        done = len(self.results) + len(self.failures)
        if event.fraction is not None:
            event = replace(event, fraction=(done + event.fraction) / self._of)
        elif event.code == "comparing" and self._of > 1:
            self._listener(Event("comparison", {"number": done + 1, "of": self._of}))
        self._listener(event)

    def _save(self, results: Sequence[C]) -> None:
        """Save all results, of which those that were known before are in the store."""
        self._save_all(results, self.failures, len(self.results))


def without_result(pairs: Sequence[tuple[Plan, Plan]], results: Sequence[Comparison]) -> list[tuple[Plan, Plan]]:
    """The pairs that have no result yet, in their order; each result belongs to one pair.

    Pairs that leave the fewest numbers open choose first: what is left open may be what another pair names.
    """
    left = [comparison.cells[0] for comparison in results if comparison.cells]
    done: set[int] = set()
    for index in sorted(range(len(pairs)), key=lambda index: list(_place(pairs[index][0]).values()).count(None)):
        place = _place(pairs[index][0])
        for cell in left:
            if all(value in (None, getattr(cell, name)) for name, value in place.items()):
                left.remove(cell)
                done.add(index)
                break
    return [pair for index, pair in enumerate(pairs) if index not in done]


def _place(plan: Plan | GenerationPlan) -> dict[str, int | None]:
    return {"num_cores": plan.num_cores[0], "batch_size": plan.batch_sizes[0]}
