"""Versions: optimised models of a project, where their files lie, and whether these are still what was made."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from inferlab.errors import BadInput, InferlabError, NotThere
from inferlab.lab import Lab, read_model
from inferlab.model.onnx_file import digest_of
from inferlab.optimizing.recipes import validate_version
from inferlab.options.optimization import VERSION as OPTIONS
from inferlab.profiling.channel_shares import best_shares
from inferlab.profiling.gains import best_gain, check_budget, estimated_recipe, int8_speedup, with_estimate
from inferlab.profiling.recipe_estimate import estimate_recipe
from inferlab.profiling.zeros import estimate, usual_weights
from inferlab.records import Model, Plan
from inferlab.records.optimization import (
    CHANNEL,
    Optimization,
    Pruning,
    Quantization,
    Recipe,
    Scheme,
    VersionOptions,
)
from inferlab.records.profile import BUDGET, Gain, LossProfile, Profile, RecipeEstimate
from inferlab.settings import versions_folder
from inferlab.store.entries import Entry
from inferlab.store.rows import new_id
from inferlab.store.store import Store
from inferlab.transform.patterns import parse_groups
from inferlab.workspace.requests import (
    ONE_BY_ONE,
    OptimizationRequest,
    checked_name,
    planned,
    request_field,
)

#: The kind of entry that a version is.
VERSION = "version"
#: What is shown in place of a version's name for the model as it is.
ORIGINAL = "original"
_ID = re.compile(r"[a-z2-7]{10}")
# Beside the files of a version that was removed; its age says when they go.
_REMOVED = ".removed"
_LONGEST_STEM = 60
FileState = Literal["there", "gone", "changed"]


@dataclass(frozen=True, slots=True)
class Version:
    """A version as lists show it."""

    entry: Entry
    name: str
    #: Where its file lies, and the digest that it had when it was made.
    path: str
    digest: str
    size_bytes: int
    parameters: int | None
    zero_fraction: float | None
    precision: str
    pattern: str
    scheme: str
    #: As `optimizing.records` has them, as JSON values.
    distance: Mapping[str, Any] | None
    measured: tuple[Mapping[str, Any], ...]
    problems: tuple[str, ...]
    interrupted: bool
    file: FileState = "there"

    @property
    def id(self) -> str:
        """Its name in the store."""
        return self.entry.id

    @property
    def trouble(self) -> str:
        """Why it cannot be measured or downloaded; empty where it can."""
        return {
            "there": "",
            "gone": f"The file of the version '{self.name}' is gone. Make it again from its recipe.",
            "changed": f"The file of the version '{self.name}' is no longer the one that was made. Make it again "
            "from its recipe.",
        }[self.file]


@dataclass(slots=True)
class Versions:
    """The versions in a store; safe to share between threads."""

    store: Store
    #: Digests of files that were read before, by the path, size and time of their parts.
    _digests: dict[tuple[object, ...], str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of_project(self, project_id: str) -> list[Version]:
        """All versions of a project, newest first; also those of its model that the command line made."""
        return [self._version(entry) for entry in self.entries(project_id)]

    def entries(self, project_id: str) -> list[Entry]:
        """The same, without a look at the files."""
        entries = self.store.history(1000, project_id=project_id, kinds=(VERSION,))
        return [entry for entry in entries if entry.brief.get("optimized")]

    def get(self, version_id: str) -> Version:
        """The version with this id."""
        return self._version(self._entry(version_id))

    def opened(self, version_id: str) -> Optimization:
        """All that is known of a version."""
        # By its whole id: what looks like the name of a file would be opened.
        return Lab(self.store).saved_optimization(self._entry(version_id).id)

    def model(self, version_id: str, project_id: str) -> Model:
        """The model of a project's version, to be measured; refused where it is not what was made."""
        version = self.get(version_id)
        if not self.store.projects.belongs(project_id, version.id):
            raise NotThere(f"{version_id} is not a version of this project.")
        return self.readable(version)

    @staticmethod
    def readable(version: Version) -> Model:
        """The model of a version; refused where it is not what was made."""
        if version.trouble:
            raise BadInput(version.trouble)
        return read_model(version.path)

    def _entry(self, version_id: str) -> Entry:
        entry = self.store.entry(version_id)
        if entry.kind != VERSION:
            raise NotThere(f"{version_id} is a {entry.kind}, not a version.")
        if not entry.brief.get("optimized"):
            raise NotThere(
                f"The version {version_id} was saved by another version of inferlab, and this one cannot read it."
            )
        return entry

    def _version(self, entry: Entry) -> Version:
        brief, optimized = entry.brief, entry.brief["optimized"]
        return Version(
            entry=entry,
            name=brief["name"],
            **optimized,
            **{name: brief[name] for name in ("pattern", "scheme", "distance", "interrupted")},
            measured=tuple(brief["measured"]),
            problems=tuple(brief["problems"]),
            file=self._state(optimized["path"], optimized["digest"]),
        )

    def _state(self, path: str, digest: str) -> FileState:
        file = Path(path)
        try:
            parts = [(part.name, part.stat().st_size, part.stat().st_mtime_ns) for part in files_of(file)]
            if not parts:
                return "gone"
            key = (path, *parts)
            with self._lock:
                digest_now = self._digests.get(key)
            if digest_now is None:
                digest_now = digest_of(file)
                with self._lock:
                    self._digests[key] = digest_now
        except (OSError, InferlabError):
            return "changed" if file.exists() else "gone"
        return "there" if digest_now == digest else "changed"


def version_names(entries: Iterable[Entry], by: Literal["digest", "path"] = "digest") -> dict[str, str]:
    """The names of versions by the digests of their models, or by their paths."""
    return {entry.brief["optimized"][by]: entry.brief["name"] for entry in entries}


def path_of(entry: Entry) -> str:
    """Where the model of an entry lies that is a version; empty for all others."""
    optimized = entry.brief.get("optimized") if entry.kind == VERSION else None
    return str(optimized["path"]) if optimized else ""


def files_of(model: Path) -> list[Path]:
    """The file of a version and, where its weights lie beside it, theirs."""
    return [file for file in (model, model.with_name(f"{model.name}.data")) if file.is_file()]


def new_file(name: str) -> Path:
    """Where a version of this name is written: a folder of its own."""
    stem = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[:_LONGEST_STEM]
    return _home() / new_id() / f"{stem or 'model'}.onnx"


def is_ours(path: str) -> bool:
    """Whether a file lies where versions of the pages do."""
    folder = Path(path).parent
    return folder.parent == _home() and bool(_ID.fullmatch(folder.name))


def discard(path: str) -> None:
    """Remove the files of a version by the path of its model; what lies elsewhere is the user's and stays."""
    if is_ours(path):
        shutil.rmtree(Path(path).parent, ignore_errors=True)


def mark_removed(path: str) -> None:
    """Let the files of a version go some time after it was removed, unless it is put back."""
    if is_ours(path) and Path(path).parent.is_dir():
        (Path(path).parent / _REMOVED).touch()


def unmark_removed(path: str) -> None:
    """Let the files of a version stay that was put back."""
    if is_ours(path):
        (Path(path).parent / _REMOVED).unlink(missing_ok=True)


def discard_removed(kept_s: float) -> None:
    """Remove the files of all versions that were removed so long ago, by whichever server."""
    for mark in _home().glob(f"*/{_REMOVED}"):
        try:
            old = time.time() - mark.stat().st_mtime > kept_s
        except OSError:
            continue
        if old:
            discard(str(mark.parent / "model"))


def _home() -> Path:
    """Links followed, as the paths of models are."""
    return versions_folder().resolve()


#: How zeros may lie in a weight, and what that is called.
PATTERNS = {
    "unstructured": "Unstructured",
    "block4": "Blocks of 4",
    "2:4": "2 of every 4",
    "channel": "Whole channels",
}
SCHEMES: dict[Scheme, str] = {
    "static": "INT8, static",
    "dynamic": "INT8, dynamic",
    "weights": "INT8 weights only",
    "fp16": "FP16",
}
# More engines than this are a slip of the finger.
_MOST_ENGINES = 8


@dataclass(frozen=True, slots=True)
class VersionRequest:
    """A version to be made: pruned, quantised, or both; then compared with the original on each engine."""

    name: str = request_field("Its name, up to 80 characters.", "")
    plan: Plan = ONE_BY_ONE
    sparsity: float | None = request_field("The sparsity of every layer but the first, the last and grouped ones.")
    levels: Mapping[str, float] = field(
        default_factory=dict, metadata={"help": "Or the sparsity by the name of the weight."}
    )
    budget: float | None = request_field("Or the loss that may be spent; the profiles choose the layers.")
    performance: str | None = request_field("The profile to take times from; null is the newest.")
    loss: str | None = request_field("The profile to take losses from; null is the newest.")
    pattern: str = request_field(
        "How zeros lie: unstructured, block4, N:M (such as 2:4) or channel.", "unstructured"
    )
    quantization: Scheme | None = field(
        default=None, metadata={"help": "static or dynamic INT8, weights only, or fp16."}
    )
    as_estimated: bool = request_field(OPTIONS["as_estimated"].help, False)
    engines: tuple[str, ...] = field(
        default=("onnxruntime",), metadata={"help": "Engines to measure on; an empty list only makes it."}
    )
    data: str | None = request_field(
        "An .npz of inputs, optionally with labels: `upload:ID`, an allowed path, or `demo:digits`. Ranges of "
        "static INT8 are found on it; without it, on generated inputs."
    )

    @property
    def prunes(self) -> bool:
        """Whether some weights become zero, as far as the request says it."""
        if self.as_estimated:
            return False
        prunes = self.sparsity is not None or self.budget is not None or bool(self.levels)
        return prunes or group_share(self.pattern) is not None


@dataclass(frozen=True, slots=True)
class Basis:
    """What the estimate for a version goes by: the profiles of the original."""

    profile: Profile
    #: Ids of the entries that times and losses were taken from; None where there are no times.
    performance_id: str | None
    loss_id: str | None

    @property
    def loss(self) -> LossProfile:
        """Its losses, measured or approximated."""
        if self.profile.loss is None or not self.profile.loss.layers:
            raise BadInput("No layer of this model can be pruned: nothing can be predicted, or made, by pruning.")
        return self.profile.loss

    def usual(self) -> list[str]:
        """The weights that are pruned unless a user says otherwise: not the first and last, nor grouped ones."""
        return usual_weights(self.loss.layers)

    def within(
        self, budget: float, weights: list[str] | None = None, pattern: str = "unstructured"
    ) -> dict[str, float]:
        """The shares of zeros that gain most within a budget of loss, of these weights or of the usual ones.

        Of whole channels it goes by the losses of their groups, where these were measured.
        """
        check_budget(budget)
        if pattern == CHANNEL and self.loss.groups:
            mixed = best_shares(self.profile.performance, self.loss, budget, weights)
            return dict(mixed.shares) if mixed else {}
        best = estimate(self.profile.performance, self.loss, budget, weights)
        return dict(best.levels) if best else {}

    def alike(self, sparsity: float, weights: list[str] | None = None) -> dict[str, float]:
        """The same sparsity for all weights."""
        return dict.fromkeys(self.usual() if weights is None else weights, sparsity)

    def predicted(
        self, levels: Mapping[str, float], pattern: str = "unstructured", scheme: Scheme | None = None
    ) -> RecipeEstimate:
        """What these shares of zeros, or of channels, in this precision would give."""
        known = {layer.weight for layer in self.loss.layers}
        for weight, level in levels.items():
            if weight not in known:
                raise BadInput(f"The model has no weight '{weight}' that could be pruned.")
            if not 0 <= level < 1:
                raise BadInput(f"The sparsity of {weight} must be 0 or more and below 1, not {level:g}.")
        return self.expected(
            Recipe(
                pruning=Pruning(scope="layers", pattern=pattern, layers=levels),
                quantization=None if scheme is None else Quantization(scheme),
            )
        )

    def expected(self, recipe: Recipe) -> RecipeEstimate:
        """What a recipe would give that names every weight with its level."""
        return estimate_recipe(recipe, self.profile.performance, self.loss)

    def estimated(self, request: VersionRequest) -> Recipe:
        """What makes the model that the profiles estimate, within their budget or the one that is asked."""
        if (
            request.levels
            or request.sparsity is not None
            or request.pattern != "unstructured"
            or request.quantization
        ):
            raise BadInput("as_estimated takes a budget at most: what else is done, the profile says.")
        budget = next((gain.budget for gain in self.profile.gains), BUDGET)
        return estimated_recipe(self.profile, budget if request.budget is None else request.budget)

    def best_gain(self, budget: float) -> Gain | None:
        """The fastest that the profiles estimate within a budget; None where nothing counts."""
        return best_gain(with_estimate(self.profile, budget))

    def unmeasured(self, levels: Mapping[str, float] | None = None) -> list[str]:
        """The weights whose losses were not measured, of those that these levels prune, or of all."""
        bare = dict.fromkeys(layer.weight for layer in self.loss.layers if not layer.losses)
        return [weight for weight in bare if levels is None or levels.get(weight, 0.0) > 0]

    def int8_speedup(self) -> float | None:
        """How many times as fast an INT8 copy was; None where none was timed."""
        return int8_speedup(self.profile.performance)


def with_all_layers(loss: LossProfile, theory: LossProfile | None) -> LossProfile:
    """The losses with the layers that were not measured too, which have none."""
    known = {layer.weight for layer in loss.layers}
    missing = [layer for layer in theory.layers if layer.weight not in known] if theory else []
    bare = [replace(layer, losses={}, accuracies={}, sensitivity=None) for layer in missing]
    return replace(loss, layers=tuple(sorted((*loss.layers, *bare), key=lambda layer: layer.index)))


def newest_losses(profiles: list[Entry]) -> str | None:
    """The newest profile whose losses were measured, else the first one, with those estimated from the weights."""
    methods = {profile.id: (profile.brief.get("loss") or {}).get("method") for profile in profiles}
    tried = [profile_id for profile_id, method in methods.items() if method not in (None, "approximated")]
    rough = [profile_id for profile_id, method in methods.items() if method == "approximated"]
    return next(iter([*tried, *reversed(rough)]), None)


def group_share(pattern: str) -> float | None:
    """The sparsity that a pattern of groups (2:4) makes; None where it can be chosen."""
    groups = None if pattern == CHANNEL else parse_groups(pattern)
    return None if groups is None else groups[0] / groups[1]


def levels_of(request: VersionRequest, basis: Basis) -> dict[str, float]:
    """The sparsity of every weight that is asked for."""
    choices = [
        choice for choice in (request.sparsity, request.budget, request.levels or None) if choice is not None
    ]
    if len(choices) > 1:
        raise BadInput("Give a sparsity, a loss budget, or the levels of layers: one of them.")
    if request.budget is not None:
        return basis.within(request.budget, pattern=request.pattern)
    if request.levels:
        basis.predicted(request.levels)
        return dict(request.levels)
    sparsity = request.sparsity if request.sparsity is not None else group_share(request.pattern)
    if sparsity is None or not 0 < sparsity < 1:
        raise BadInput("The sparsity must lie between 0 and 1, such as 0.8.")
    return basis.alike(sparsity)


def version_request(
    request: VersionRequest, model: Model, levels: Mapping[str, float], recipe: Recipe | None = None
) -> OptimizationRequest:
    """The job that makes a version with these shares of zeros, or by a recipe; refuses what cannot be made."""
    name = checked_name(request.name, "version")
    if len(request.engines) > _MOST_ENGINES:
        raise BadInput(f"A version is measured on {_MOST_ENGINES} engines at most.")
    if recipe is None:
        pruned = {weight: level for weight, level in levels.items() if level > 0}
        pruning = Pruning(scope="layers", pattern=request.pattern, layers=pruned) if pruned else None
        quantization = Quantization(request.quantization) if request.quantization else None
        recipe = Recipe(pruning=pruning, quantization=quantization)
    if recipe.pruning is None and recipe.quantization is None:
        raise BadInput("Nothing would change: no layer is pruned, and the precision stays. Choose something.")
    options = VersionOptions(
        recipe,
        str(new_file(name)),
        name,
        request.data,
        tuple(dict.fromkeys(request.engines)),
        request.plan.time_s,
        performance_id=request.performance,
        loss_id=request.loss,
    )
    validate_version(options)
    plan = planned(replace(request.plan, engines=options.engines[:1] or ("onnxruntime",)), model)
    return OptimizationRequest(plan, options)


def renewed(request: OptimizationRequest) -> OptimizationRequest:
    """The same once more, as a version of its own."""
    again = replace(request.asked, out=str(new_file(request.asked.name)))
    return OptimizationRequest(request.plan, again)


def free_name(name: str, taken: set[str]) -> str:
    """A name that no version has yet: this one, or with a number behind it."""
    if name not in taken:
        return name
    return next(free for number in range(2, len(taken) + 3) if (free := f"{name} ({number})") not in taken)
