"""Search for a recipe that reaches a goal: make, look at the loss, and time only what may be worth it.

Recipes are tried cheapest first; what comes next depends on what became of those before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from inferlab.errors import InferlabError
from inferlab.optimizing.pareto import keeps_loss, mark_candidates, may_reach, reaches
from inferlab.records import Event, Listener
from inferlab.records.optimization import CHANNEL, Candidate, Goal, Interval, Pruning, Quantization, Recipe, Scheme

# Of the whole time: a first look at the speed of each, a longer one where the first leaves the goal open, and the
# longest where it seems to be reached, which is a better use of the time than to go on.
_SHORT, _LONG, _LONGEST = 1 / 16, 1 / 4, 1 / 2
_OVER = "time ran out"
_TOO_LOSSY = "it loses more than allowed"
_TOO_LARGE = "it is not small enough"
#: Shares of zeros of the whole model, one threshold for all layers.
_SPARSITIES = (0.5, 0.7, 0.8, 0.9, 0.95)
#: Budgets of the estimate in multiples of the loss that is allowed: what layers lose alone does not simply add up.
_BUDGETS = (1.0, 3.0)
_CHANNELS = (0.1, 0.25, 0.5)
#: So many sensitive layers stay as they are, until the loss is kept.
_SENSITIVE = (1, 2, 4, 8)
# What keeps the loss alone may lose too much together with INT8: then so many weaker ones are tried.
_COMBINATIONS = 2
#: What is known to make an engine abort.
_REFUSED: dict[tuple[str, Scheme], str] = {("deepsparse", "dynamic"): "DeepSparse aborts on dynamic INT8"}
_LABELS: dict[Scheme, str] = {
    "fp16": "FP16",
    "weights": "INT8 weights",
    "dynamic": "INT8 dynamic",
    "static": "INT8 static",
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """A recipe to try, or the reason why it is left out."""

    label: str
    recipe: Recipe
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """What the attempts depend on."""

    engine: str
    goal: Goal
    #: What all recipes have in common.
    base: Recipe
    #: The engine computes faster where weights are zero.
    gains_from_zeros: bool


T = TypeVar("T")
#: Yields attempts and is sent what became of each.
Attempts = Generator[Attempt, Candidate, T]


def attempts_in(space: SearchSpace) -> Attempts[None]:
    """All attempts in their order."""
    yield _quantized(space, "fp16")
    yield _quantized(space, "weights")
    if space.goal.size_ratio is not None:
        yield _quantized(space, "weights", bits=4)
    yield _quantized(space, "dynamic")
    static = yield from _static(space)
    pruned = yield from _pruned(space)
    yield from _both(space, pruned, static)
    channels = yield from _channels(space)
    yield from _both(space, channels, static)


def _quantized(space: SearchSpace, scheme: Scheme, bits: int = 8) -> Attempt:
    recipe = replace(space.base, quantization=Quantization(scheme, bits=bits))
    label = "4-bit weights" if bits == 4 else _LABELS[scheme]
    return Attempt(label, recipe, _REFUSED.get((space.engine, scheme), ""))


def _static(space: SearchSpace) -> Attempts[Quantization | None]:
    """Static INT8 of all layers, or of all but a few sensitive ones: what keeps the loss, if anything does."""
    attempt = _quantized(space, "static")
    outcome = yield attempt
    if keeps_loss(outcome, space.goal):
        return attempt.recipe.quantization
    for count in _SENSITIVE if outcome.loss is not None else ():
        kept = Quantization("static", keep_sensitive=count)
        outcome = yield Attempt(f"INT8 static, {count} sensitive kept", replace(space.base, quantization=kept))
        if keeps_loss(outcome, space.goal):
            return kept
    return None


def _pruned(space: SearchSpace) -> Attempts[list[Attempt]]:
    """Zeros of rising shares, then as the estimate chooses them: those that keep the loss, the strongest first."""
    levels = [(f"{share:.0%} pruned", Pruning(share, "global")) for share in _SPARSITIES]
    budgets = [factor * space.goal.max_loss for factor in _BUDGETS]
    chosen = [
        (f"pruned within {budget:.2g} by layer", Pruning(scope="layers", budget=budget)) for budget in budgets
    ]
    if not space.gains_from_zeros:
        reason = f"{space.engine} computes no faster where weights are zero"
        yield Attempt("pruned", replace(space.base, pruning=levels[0][1]), reason)
        return []
    kept = yield from _rising(space, levels)
    return [*(yield from _rising(space, chosen)), *kept]


def _channels(space: SearchSpace) -> Attempts[list[Attempt]]:
    levels = [(f"{share:.0%} of the channels cut", Pruning(share, pattern=CHANNEL)) for share in _CHANNELS]
    return (yield from _rising(space, levels))


def _rising(space: SearchSpace, levels: Sequence[tuple[str, Pruning]]) -> Attempts[list[Attempt]]:
    """Prune more and more while the loss is kept: what kept it, the strongest first."""
    kept: list[Attempt] = []
    for label, pruning in levels:
        outcome = yield Attempt(label, replace(space.base, pruning=pruning))
        if not keeps_loss(outcome, space.goal):
            break
        kept.insert(0, Attempt(label, outcome.recipe))
    return kept


def _both(space: SearchSpace, pruned: Sequence[Attempt], static: Quantization | None) -> Attempts[None]:
    """Pruned and quantised, where each alone keeps the loss."""
    for attempt in pruned[:_COMBINATIONS] if static is not None else ():
        assert attempt.recipe.pruning is not None
        # Its levels as they are: they came from the whole model, or from profiles.
        pruning = replace(attempt.recipe.pruning, scope="layers", sparsity=None, budget=None)
        recipe = replace(space.base, pruning=pruning, quantization=static)
        outcome = yield Attempt(f"{attempt.label}, INT8 static", recipe)
        if keeps_loss(outcome, space.goal):
            return


@dataclass(frozen=True, slots=True)
class BuiltCopy:
    """A model that was made of a recipe."""

    recipe: Recipe
    #: Where it is; whoever made it knows what that means.
    path: str
    size_bytes: int
    #: None where its outputs tell nothing.
    loss: float | None
    accuracy: float | None = None


@dataclass(frozen=True, slots=True)
class Speed:
    """How much faster than the original a copy is; without a speed-up it does not count, for a reason."""

    speedup: float | None
    interval: Interval | None
    level: float | None = None
    reason: str = ""
    interrupted: bool = False


class Bench(Protocol):
    """Makes models and times them."""

    def make(self, recipe: Recipe) -> BuiltCopy:
        """Carry out a recipe, or raise why not."""

    def time(self, copy: BuiltCopy, seconds: float, goal: float | None) -> Speed:
        """Compare a copy with the original, interleaved; it may end early where its interval excludes the goal."""

    def discard(self, copy: BuiltCopy) -> None:
        """Forget a copy that is not needed any more."""


@dataclass(frozen=True, slots=True)
class SearchState:
    """What a search tried, and how it ended."""

    candidates: tuple[Candidate, ...]
    complete: bool
    interrupted: bool
    seconds: float


def search(
    space: SearchSpace,
    original_bytes: int,
    bench: Bench,
    time_s: float,
    listener: Listener,
    clock: Callable[[], float],
) -> Iterator[SearchState]:
    """Try one recipe after the other until one surely reaches the goal, all were tried, or the time is over.

    What is known so far comes after each. What loses too much, or is too large, is timed only after all others and
    only if the goal was not reached, to show what more would cost. Ctrl-C ends it with what there is.
    """
    state = _Search(space, original_bytes, bench, time_s, listener, clock)
    try:
        for _ in state.steps():
            yield state.found()
    except KeyboardInterrupt:
        yield replace(state.found(), complete=False, interrupted=True)


class _Search:
    """A search on its way."""

    def __init__(
        self,
        space: SearchSpace,
        original_bytes: int,
        bench: Bench,
        time_s: float,
        listener: Listener,
        clock: Callable[[], float],
    ) -> None:
        self._space, self._original_bytes = space, original_bytes
        self._bench, self._time_s, self._listener, self._clock = bench, time_s, listener, clock
        self._began = clock()
        self.candidates: list[Candidate] = []
        #: By the place of their candidate, copies that may be timed in the end.
        self._waiting: dict[int, BuiltCopy] = {}
        self._complete = False

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._clock() - self._began

    @property
    def _goal(self) -> Goal:
        return self._space.goal

    @property
    def _over(self) -> bool:
        return self.seconds >= self._time_s

    def found(self) -> SearchState:
        """What is known by now."""
        candidates = mark_candidates(self.candidates, self._goal, self._original_bytes)
        return SearchState(candidates, self._complete, False, self.seconds)

    def steps(self) -> Iterator[None]:
        """Try the attempts up to the goal; where it is not reached, time what was put off."""
        attempts = attempts_in(self._space)
        attempt: Attempt | None = next(attempts)
        while attempt is not None:
            outcome = self._try(attempt)
            yield
            if self._over or reaches(outcome, self._goal, self._original_bytes):
                return
            attempt = _next(attempts, outcome)
        yield from self._time_the_rest()
        self._complete = not self._over
        yield

    def _try(self, attempt: Attempt) -> Candidate:
        place = len(self.candidates)
        self.candidates.append(_untried(attempt))
        if attempt.reason:
            return self.candidates[place]
        self._tell(place)
        try:
            copy = self._bench.make(attempt.recipe)
        except InferlabError as error:
            self.candidates[place] = replace(self.candidates[place], reason=str(error))
            return self.candidates[place]
        made = replace(
            self.candidates[place],
            recipe=copy.recipe,
            loss=copy.loss,
            accuracy=copy.accuracy,
            size_bytes=copy.size_bytes,
        )
        # Kept at once: Ctrl-C may come while it is timed.
        self.candidates[place] = made
        if not may_reach(made, self._goal, self._original_bytes):
            lossy = not keeps_loss(made, self._goal)
            self.candidates[place] = replace(made, reason=_TOO_LOSSY if lossy else _TOO_LARGE)
            self._waiting[place] = copy
        else:
            self._time(place, copy)
            self._bench.discard(copy)
        return self.candidates[place]

    def _time(self, place: int, copy: BuiltCopy) -> None:
        """Time it shortly, and again for longer where that leaves open whether it reaches the goal."""
        for part in (_SHORT, _LONG, _LONGEST):
            known = self.candidates[place]
            if known.speedup is not None and not self._open(known):
                return
            if part == _LONGEST and (known.speedup or 0.0) < (self._goal.speedup or 0.0):
                return
            if self._over:
                self.candidates[place] = replace(known, reason=known.reason or _OVER)
                return
            seconds = min(part * self._time_s, self._time_s - self.seconds)
            try:
                speed = self._bench.time(copy, seconds, self._goal.speedup)
            except InferlabError as error:
                self.candidates[place] = replace(known, reason=str(error))
                return
            if speed.speedup is None or not (speed.interrupted and known.speedup is not None):
                self.candidates[place] = _timed(known, speed)
            if speed.interrupted:
                raise KeyboardInterrupt
            if speed.speedup is None:
                return

    def _open(self, candidate: Candidate) -> bool:
        """Whether a longer comparison may tell if it reaches the goal."""
        goal, size = self._goal, self._original_bytes
        return may_reach(candidate, goal, size) and not reaches(candidate, goal, size)

    def _time_the_rest(self) -> Iterator[None]:
        """Time what was put off, the least lossy first, so that the front shows it."""
        for place in sorted(self._waiting, key=self._lossiness):
            if self._over:
                return
            self._tell(place)
            self._time(place, self._waiting[place])
            yield

    def _tell(self, place: int) -> None:
        self._listener(Event("trying", {"number": place + 1, "label": self.candidates[place].label}))
        self._listener(Event("searching", {}, min(1.0, self.seconds / self._time_s)))

    def _lossiness(self, place: int) -> float:
        loss = self.candidates[place].loss
        return float("inf") if loss is None else loss


def _next(attempts: Attempts[None], outcome: Candidate) -> Attempt | None:
    try:
        return attempts.send(outcome)
    except StopIteration:
        return None


def _untried(attempt: Attempt) -> Candidate:
    return Candidate(attempt.label, attempt.recipe, None, None, None, None, reason=attempt.reason)


def _timed(candidate: Candidate, speed: Speed) -> Candidate:
    reason = "; ".join(part for part in (candidate.reason, speed.reason) if part)
    return replace(
        candidate, speedup=speed.speedup, speedup_interval=speed.interval, level=speed.level, reason=reason
    )
