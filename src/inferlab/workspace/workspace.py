"""What the pages and the HTTP API call: projects, the queue, and views of what was measured."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from inferlab.errors import BadInput, Conflict, InferlabError, NotThere
from inferlab.lab import Lab, read_model
from inferlab.model.generative import names_genai_folder, read_generative
from inferlab.model.reading import locate
from inferlab.profiling.diff import LayerDiff, diff
from inferlab.profiling.gains import check_calibration, with_estimate
from inferlab.records import Kind, Listener, Model, Plan, ignore
from inferlab.records.generation import GenerativeModel
from inferlab.records.optimization import Recipe
from inferlab.records.profile import BUDGET, Profile, ProfileOptions
from inferlab.store.entries import BENCHMARK, Entry, Project, QueuedJob, Stored
from inferlab.store.formats import GENERATION, MADE_OF_GENERATIONS, record_of
from inferlab.store.store import Store
from inferlab.workspace import requests
from inferlab.workspace.engines import Engines, can_install, licence_of, title
from inferlab.workspace.entries import Trash
from inferlab.workspace.requests import (
    BenchmarkRequest,
    GenerationComparisonRequest,
    GenerationRecommendationRequest,
    InstallRequest,
    JobRequest,
    OptimizationRequest,
    ProfileRequest,
    Side,
    TokenRequest,
    benchmark_request,
    checked_name,
    checked_shapes,
    plans_of,
    profile_request,
    token_request,
)
from inferlab.workspace.sources import Sources
from inferlab.workspace.versions import (
    ORIGINAL,
    Basis,
    VersionRequest,
    Versions,
    discard,
    levels_of,
    newest_losses,
    path_of,
    renewed,
    version_request,
    with_all_layers,
)

#: The kinds of entries that the benchmarks page shows.
CARDS = (BENCHMARK, "comparison", "capacity", "recommendation", GENERATION, *MADE_OF_GENERATIONS)
#: Why a model that only generates has none of these.
ONLY_GENERATES = (
    "This model generates tokens: it has no profiles, versions and benchmarks of single calls. Add a generation "
    "on its page of benchmarks."
)
_LONGEST_DESCRIPTION = 2000


class Workspace:
    """A store as the pages see it; safe to share between threads."""

    def __init__(self, store: Store, folders: Sequence[Path] = (), most_upload_bytes: int = 4 << 30) -> None:
        self.store = store
        self.sources = Sources(folders, most_upload_bytes)
        self.engines = Engines()
        self.versions = Versions(store)
        self.trash = Trash(store)
        #: By the digests of models that were analysed.
        self._generative: dict[str, GenerativeModel | None] = {}

    # Projects.

    def analyse(self, source: str, listener: Listener = ignore) -> Model:
        """Find a model and read what it is; the source may be an upload, an allowed path, or a name to fetch."""
        resolved = self.sources.resolve(source)
        try:
            model, generative = read_any(resolved, listener)
        except BadInput as error:
            # An uploaded file is known by its name, not by where we put it.
            raise type(error)(self.sources.without_folder(str(error))) from error
        if Path(resolved).is_dir():
            # The model in it may be a link that leads out of the allowed folders.
            self.sources.below(model.path)
        self._generative[model.digest] = generative
        return model

    def generative(self, model: Model) -> GenerativeModel | None:
        """What a model that was analysed is as one that generates tokens; None where it does not."""
        if model.digest not in self._generative:
            self._generative[model.digest] = read_any(model.source)[1]
        return self._generative[model.digest]

    def create_project(self, name: str, description: str, model: Model, input_shapes: str = "") -> Project:
        """Make a project of a model that was analysed, with what its architecture says of it.

        `input_shapes` are those of all its jobs that name no others; without any, shapes are guessed.
        """
        shapes = checked_shapes(input_shapes, model) or ""
        project = self.store.projects.add(
            checked_name(name, "project"), _described(description), model, shapes, self.generative(model)
        )
        self.sources.adopt(model.path)
        self._count(project)
        return project

    def change_project(
        self, project_id: str, name: str, description: str, input_shapes: str | None = None
    ) -> Project:
        """Give a project another name and description, and where they are given, other input shapes."""
        before = self.store.projects.get(project_id)
        shapes = before.input_shapes if input_shapes is None else checked_shapes(input_shapes, before.model) or ""
        project = self.store.projects.change(
            project_id, checked_name(name, "project"), _described(description), shapes
        )
        if shapes != before.input_shapes:
            for entry in self.profiles(project_id):
                if entry.project_id == project_id and _is_theory(entry):
                    self.store.remove(entry.id)
            self._count(project)
        return project

    def _count(self, project: Project) -> None:
        """Save what the architecture of a project's model says at its input shapes."""
        if project.only_generates:
            return
        # A model whose shapes cannot be guessed is still a project; `theory` says what is wrong with it.
        with contextlib.suppress(InferlabError):
            _in_theory(Lab(self.store, project_id=project.id), project)

    def remove_project(self, project_id: str) -> None:
        """Remove a project with all that was measured in it, and its model where that was uploaded."""
        for job in self.store.jobs.alive():
            if job.project_id == project_id:
                self.store.jobs.cancel(job.id)
        owned = self.owns_model(self.store.projects.get(project_id))
        versions = [
            version for version in self.versions.of_project(project_id) if version.entry.project_id == project_id
        ]
        removed = self.store.projects.remove(project_id)
        if owned:
            self.sources.discard(removed.model.path)
        for version in versions:
            discard(version.path)

    def owns_model(self, project: Project) -> bool:
        """Whether a project's model was uploaded for it alone, so that it goes with it."""
        path = project.model.path
        sharing = [line for line in self.store.projects.lines() if line.project.model.path == path]
        return self.sources.is_uploaded(path) and len(sharing) < 2

    # The queue.

    def queue(self, project_id: str | None, request: JobRequest) -> QueuedJob:
        """Put a job at the end of the queue."""
        return self.store.jobs.add(requests.kind_of(request), project_id, requests.to_content(request))

    def add_benchmark(self, project_id: str, request: BenchmarkRequest) -> QueuedJob:
        """Queue a benchmark or a comparison."""
        self.refuse_generating(project_id)
        side = self._side(project_id, request.version)
        request = replace(request, plan=self._with_shapes(project_id, request.plan))
        self.engines.refuse(request.plan.engines[0], side.model)
        rival = side
        if request.compare_engine:
            rival = self._side(project_id, request.compare_version)
            self.engines.refuse(request.compare_engine, rival.model)
        if request.against:
            request = self._like(request, request.against)
        return self.queue(project_id, benchmark_request(request, side, rival))

    def add_generation(self, project_id: str, request: TokenRequest) -> QueuedJob:
        """Queue what generates tokens; without an engine on the usual one, a recommendation on all that can."""
        project = self.store.projects.get(project_id)
        model = project.generative
        if model is None:
            raise BadInput(f"The model of '{project.name}' does not generate tokens: add a benchmark instead.")
        if not isinstance(request, GenerationComparisonRequest) and not request.plan.engines:
            ready = tuple(choice.name for choice in self.engines.choices(model) if not choice.reason)
            if not ready:
                raise BadInput("No engine here can generate with this model. See: inferlab engines")
            engines = ready if isinstance(request, GenerationRecommendationRequest) else ready[:1]
            request = replace(request, plan=replace(request.plan, engines=engines))
        for engine in dict.fromkeys(name for plan in plans_of(request) for name in plan.engines):
            self.engines.refuse(engine, model)
        return self.queue(project_id, token_request(request, model))

    def _with_shapes(self, project_id: str, plan: Plan) -> Plan:
        """The plan with the project's input shapes where it has none."""
        project = self.store.projects.get(project_id)
        return replace(plan, input_shapes=project.input_shapes) if plan.input_shapes is None else plan

    def refuse_generating(self, project_id: str) -> None:
        """Refuse what a model that only generates does not have."""
        project = self.store.projects.get(project_id)
        if project.only_generates:
            raise BadInput(ONLY_GENERATES)

    def _side(self, project_id: str, version_id: str | None) -> Side:
        """A project's model as it is, or a version of it."""
        project = self.store.projects.get(project_id)
        if version_id is None:
            return Side(project.model, ORIGINAL)
        return Side(self.versions.model(version_id, project_id), self.versions.get(version_id).name)

    def add_profile(self, project_id: str, request: ProfileRequest) -> QueuedJob:
        """Queue profiles."""
        self.refuse_generating(project_id)
        request = replace(request, plan=self._with_shapes(project_id, request.plan))
        return self.queue(project_id, self.checked_profile(self._side(project_id, request.version).model, request))

    def checked_profile(self, model: Model, request: ProfileRequest) -> ProfileRequest:
        """The job that is asked for; refuses what cannot be profiled, before there is a project."""
        # Without times no engine is asked, but a file with one must not even be named.
        engine = request.plan.engines[0]
        self.engines.named(engine)
        if request.wanted.performance:
            self.engines.refuse(engine, model, profiling=True)
        wanted = replace(request.wanted, data_file=self._data_file(request.wanted.data_file))
        return profile_request(replace(request, wanted=wanted), model)

    def add_version(self, project_id: str, request: VersionRequest) -> QueuedJob:
        """Queue an optimised version of a project's model."""
        self.refuse_generating(project_id)
        model = self.store.projects.get(project_id).model
        for engine in request.engines:
            self.engines.refuse(engine, model)
        plan = self._with_shapes(project_id, request.plan)
        request = replace(request, plan=plan, data=self._data_file(request.data))
        levels: dict[str, float] = {}
        recipe: Recipe | None = None
        try:
            basis = self.read_basis(project_id, request.performance, request.loss)
            if request.as_estimated:
                recipe = basis.estimated(request)
                check_calibration(recipe, request.data)
            levels = levels_of(request, basis) if request.prunes else {}
            request = replace(request, performance=basis.performance_id, loss=basis.loss_id)
        except InferlabError:
            # Nothing can be predicted of this model, which is not needed to change its precision.
            if request.prunes or request.performance or request.loss or request.as_estimated:
                raise
        return self.queue(project_id, version_request(request, model, levels, recipe))

    def as_profiled(self, performance_id: str | None, request: VersionRequest) -> VersionRequest:
        """The request on the engine, the cores, the batch size and the data of a profile, where there is one."""
        performance = self.profile_as_kept(performance_id).performance if performance_id else None
        if performance is None or performance_id is None:
            return request
        plan, data = request.plan, request.data
        try:
            profiled = self.request_of(performance_id)
            if isinstance(profiled, ProfileRequest):
                plan, data = profiled.plan, profiled.wanted.data_file
        except InferlabError:
            # It was made on the command line: nobody knows the other options.
            pass
        plan = replace(plan, num_cores=(performance.num_cores,), batch_sizes=(performance.batch_size,))
        return replace(request, plan=plan, engines=(performance.engine,), data=data)

    def _data_file(self, source: str | None) -> str | None:
        """Where a data file lies that a request names."""
        return source if source in (None, "", "demo:digits") else self.sources.file(str(source))

    def add_installation(self, engine: str) -> QueuedJob:
        """Queue the installation of an engine, to whose licence the user agreed."""
        licence_of(engine)
        info = self.engines.named(engine)
        if info.state == "ready":
            raise Conflict(f"{title(engine)} is installed already.")
        if not can_install(info):
            raise BadInput(f"{title(engine)} cannot be installed here: {info.problem}.")
        return self.queue(None, InstallRequest(engine))

    def rerun(self, entry_id: str) -> QueuedJob:
        """Queue what made an entry once more, under the same conditions."""
        entry = self.store.entry(entry_id)
        request = self.request_of(entry.id)
        for engine in dict.fromkeys(name for plan in plans_of(request) for name in plan.engines):
            # It may have been measured on the command line with an engine that is a file.
            self.engines.named(engine)
        if isinstance(request, OptimizationRequest):
            request = renewed(request)
        return self.queue(self._project_of(entry), request)

    def position(self, job: QueuedJob) -> int:
        """How many jobs go before this one; 0 where it runs or is the next."""
        waiting = [queued.id for queued in self.store.jobs.alive()]
        return waiting.index(job.id) if job.id in waiting else 0

    def request_of(self, entry_id: str) -> JobRequest:
        """What made an entry, as it can be asked for again."""
        job = self.store.jobs.of_entries([entry_id]).get(entry_id)
        if job is not None:
            return requests.request_of(job)
        entry = self.store.get(entry_id)
        if isinstance(entry, Stored):
            return BenchmarkRequest(entry.benchmark.plan, entry.against)
        if entry.kind.startswith(GENERATION) and (request := requests.of_result(record_of(entry))) is not None:
            return request
        raise BadInput(
            f"The request of {entry.id} is not stored, because it was made on the command line or imported. Start "
            "a new one."
        )

    def command(self, entry_id: str) -> str:
        """The command line that measures the same."""
        return requests.command_of(self.request_of(entry_id))

    # What was measured.

    def cards(self, project_id: str, limit: int = 10, before: str | None = None) -> list[Entry]:
        """A page of benchmarks and comparisons, newest first; `before` is the last id of the page before."""
        return self.store.history(limit, before, project_id=project_id, kinds=CARDS)

    def profiles(self, project_id: str) -> list[Entry]:
        """All profiles of a project, newest first, without opening them."""
        return self.store.history(1000, project_id=project_id, kinds=("profile",))

    def profile(self, entry_id: str, loss_id: str | None = None, budget: float | None = None) -> Profile:
        """A profile with its estimate for a budget, by the losses of another profile where that is named.

        Without a budget it is the one that the profile was made with.
        """
        profile = self.profile_as_kept(entry_id)
        own = loss_id is None or loss_id == entry_id
        if own and budget is None and profile.estimate is not None:
            # As it was kept, perhaps verified; of a deep model it would take as long as all the rest.
            return profile
        if not own and loss_id is not None:
            profile = replace(profile, loss=self.profile_as_kept(loss_id).loss)
        return with_estimate(profile, BUDGET if budget is None else budget)

    def loss_profile(self, entry_id: str, budget: float = BUDGET) -> Profile:
        """The losses of a profile alone, with what pruning by them within a budget does to the parameters."""
        return with_estimate(replace(self.profile_as_kept(entry_id), performance=None), budget)

    def theory(self, project_id: str) -> Profile:
        """What the architecture of a project's model says, or raises why it says nothing."""
        project = self.store.projects.get(project_id)
        if project.only_generates:
            raise BadInput(ONLY_GENERATES)
        counted = [profile for profile in self.profiles(project_id) if profile.brief.get("flops") is not None]
        own = [entry for entry in counted if entry.model_digest == project.model.digest]
        # The one that the project began with, else the oldest.
        first = [entry for entry in own if _is_theory(entry)] or own
        return self.profile(first[-1].id) if first else _in_theory(Lab(), project)

    def read_basis(self, project_id: str, performance_id: str | None = None, loss_id: str | None = None) -> Basis:
        """The profiles of a project's model that a version is predicted by; without ids the newest."""
        digest = self.store.projects.get(project_id).model.digest
        # Profiles of versions stand beside them.
        known = [profile for profile in self.profiles(project_id) if profile.model_digest == digest]
        for profile_id in filter(None, (performance_id, loss_id)):
            if profile_id not in {profile.id for profile in known}:
                raise NotThere(f"{profile_id} is not a profile of this project's model.")
        first = performance_id or next((profile.id for profile in known if profile.brief.get("performance")), None)
        second = loss_id or newest_losses(known)
        losses = self.profile_as_kept(second) if second else self.theory(project_id)
        if losses.loss is not None and losses.loss.left_out:
            losses = replace(losses, loss=with_all_layers(losses.loss, self.theory(project_id).loss))
        if first != second:
            timed = self.profile_as_kept(first).performance if first else None
            losses = replace(losses, performance=timed)
        return Basis(losses, first, second)

    def layer_diff(self, entry_id: str, other_id: str) -> LayerDiff:
        """How the layers of a profile compare with another's."""
        return diff(self.profile_as_kept(other_id), self.profile_as_kept(entry_id))

    def rename(self, entry_id: str, name: str) -> Entry:
        """Call an entry something else."""
        entry = self.store.entry(entry_id)
        job = self.store.jobs.of_entries([entry.id]).get(entry.id)
        if job is not None and job.alive:
            # It is written again and again until it is whole.
            raise Conflict("This is being measured. Rename it when it is done.")
        self.store.rename(entry.id, checked_name(name, entry.kind))
        return self.store.entry(entry.id)

    def remove(self, entry_id: str) -> str:
        """Remove an entry; for some minutes `trash.put_back` undoes it. Returns its whole id."""
        entry = self.store.entry(entry_id)
        whole = entry.id
        job = self.store.jobs.of_entries([whole]).get(whole)
        if job is not None and job.alive:
            raise Conflict("This is being measured. Cancel it first.")
        model_path = path_of(entry)
        for running in self.store.jobs.alive() if model_path else ():
            if model_path in {plan.model for plan in plans_of(requests.request_of(running))}:
                raise Conflict("This version is being measured, or waits for it. Cancel that first.")
        return self.trash.remove(whole)

    def profile_as_kept(self, entry_id: str) -> Profile:
        """A profile as it was saved."""
        # By its whole id: what looks like the name of a file would be opened.
        return Lab(self.store).saved_profile(self.store.entry(entry_id).id)

    def remove_upload(self, upload_id: str) -> None:
        """Remove the files of an upload of which no project was made."""
        folder = self.sources.folder(upload_id)
        for line in self.store.projects.lines():
            if Path(line.project.model.path).parent == folder:
                raise Conflict(f"The project '{line.project.name}' is made of this upload. Remove the project.")
        self.sources.give_up(upload_id)

    def _project_of(self, entry: Entry) -> str | None:
        """The project that an entry belongs to, or one of its model."""
        if entry.project_id is not None:
            return entry.project_id
        return next(
            (
                line.project.id
                for line in self.store.projects.lines()
                if line.project.model.digest == entry.model_digest
            ),
            None,
        )

    def _like(self, request: BenchmarkRequest, entry_id: str) -> BenchmarkRequest:
        """The request with the conditions of a benchmark measured before, so that both can be compared."""
        stored = self.store.get(entry_id)
        if not isinstance(stored, Stored):
            raise BadInput(f"{stored.id} is a {stored.kind}: only a benchmark can be compared with.")
        cells, plan = [outcome.cell for outcome in stored.benchmark.outcomes], stored.benchmark.plan
        first = cells[0]
        same = replace(
            request.plan,
            num_cores=tuple(dict.fromkeys(cell.num_cores for cell in cells)),
            batch_sizes=tuple(dict.fromkeys(cell.batch_size for cell in cells)),
            scenarios=(first.scenario,),
            num_streams=(None,) if first.scenario == "sync" else plan.num_streams[:1],
            rates=(first.rate,),
            sequence_lengths=(first.sequence_length,),
            input_shapes=plan.input_shapes or "",
        )
        return replace(request, against=stored.id, plan=same)


def _described(text: str) -> str:
    stripped = text.strip()
    if len(stripped) > _LONGEST_DESCRIPTION:
        raise BadInput(
            f"The description has {len(stripped)} characters; at most {_LONGEST_DESCRIPTION} are allowed."
        )
    return stripped


def _is_theory(profile: Entry) -> bool:
    """Whether nothing of a profile was measured."""
    loss = profile.brief.get("loss") or {}
    return not profile.brief.get("performance") and loss.get("method", "approximated") == "approximated"


def _in_theory(lab: Lab, project: Project) -> Profile:
    """The FLOPS profile and the approximated loss profile, which take no measuring."""
    model, shapes = project.model, project.input_shapes or None
    plan = Plan(model.source, engines=(_home(model),), input_shapes=shapes)
    return lab.profile(plan, ProfileOptions(performance=False, loss=False))


def _home(model: Model) -> str:
    """An engine that reads this kind of model."""
    return {"onnx": "onnxruntime", "openvino": "openvino"}.get(model.kind, "torch")


def read_any(name: str, listener: Listener = ignore) -> tuple[Model, GenerativeModel | None]:
    """What a model is, and where it generates tokens, what it is as such.

    One that only generates, such as a GGUF file, has no inputs that could be given to it at once.
    """
    if names_genai_folder(name):
        generative = read_generative(name, listener)
        return as_model(generative), generative
    try:
        model = read_model(name, listener)
    except BadInput as refusal:
        try:
            generative = read_generative(name, listener)
        except BadInput as error:
            raise error if _is_gguf(name) else refusal from None
        return as_model(generative), generative
    return model, _generates(model, name, listener)


def _is_gguf(name: str) -> bool:
    try:
        return locate(name).kind == "gguf"
    except BadInput:
        return False


def _generates(model: Model, name: str, listener: Listener) -> GenerativeModel | None:
    """What a model is as one that generates; a graph without past values is not even looked at."""
    past = any("past" in spec.name.lower() for spec in model.inputs)
    if model.kind != "transformers" and not (model.kind == "onnx" and past):
        return None
    try:
        generative = read_generative(name, listener)
    except BadInput:
        return None
    return generative if generative.digest == model.digest else None


def as_model(generative: GenerativeModel) -> Model:
    """A model that only generates, as projects have models: without inputs and outputs."""
    return Model(
        kind=generative.kind if generative.kind in get_args(Kind) else "onnx",  # type: ignore[arg-type]
        source=generative.source,
        path=generative.path,
        digest=generative.digest,
        inputs=(),
        outputs=(),
        size_bytes=generative.size_bytes,
        parameters=generative.parameters,
        precision=generative.precision,
    )
