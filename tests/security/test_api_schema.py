"""Requests made up from the description of the HTTP API: no fault of ours, no answer that is not described."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from inferlab.records import EngineInfo
from inferlab.store import open_store
from inferlab.store.formats import content_of
from inferlab.web import faults
from inferlab.web.api import router
from inferlab.web.api.common import PREFIX
from inferlab.web.desk import Desk
from inferlab.workspace.engines import Engines
from inferlab.workspace.workspace import Workspace
from tests.helpers.profiles import a_profile

#: It answers for as long as somebody listens.
_ENDLESS = f"{PREFIX}/jobs/events"
_KNOWN = (
    EngineInfo("onnxruntime", "ready", "1", ("onnx",), ("layer_times",)),
    EngineInfo("deepsparse", "missing", problem="not there"),
)
_CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


class _Place:
    """An app without pages on a store with one of everything; nothing that is queued is ever measured."""

    def __init__(self, workspace: Workspace) -> None:
        workspace.engines = Engines(_KNOWN)
        self.app = FastAPI(openapi_url=f"{PREFIX}/openapi.json")
        self.app.include_router(router(Desk(workspace, None)), prefix=PREFIX)
        faults.handle(self.app)
        self.described = schemathesis.openapi.from_asgi(f"{PREFIX}/openapi.json", self.app)
        project = workspace.create_project("p", "", workspace.analyse("demo:mlp"))
        profile = a_profile()
        entry = workspace.store.add_document(
            "profile", profile.model.source, content_of(profile), project_id=project.id
        )
        job = workspace.store.jobs.add("install", None, {"engine": "deepsparse"})
        self.ids = {
            "project_id": project.id,
            "entry_id": entry,
            "job_id": job.id,
            "upload_id": workspace.sources.new_upload(),
        }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Place]:
    home = tmp_path_factory.mktemp("fuzzed")
    with pytest.MonkeyPatch.context() as patched, open_store(str(home / "lab.db")) as store:
        for name in ("INFERLAB_MODELS", "INFERLAB_CACHE", "XDG_DATA_HOME"):
            patched.setenv(name, str(home / name))
        # Nothing of what is made up leaves this machine.
        patched.setenv("INFERLAB_PUBLIC_DOWNLOADS", "1")
        patched.setenv("HF_HUB_OFFLINE", "1")
        (home / "allowed").mkdir()
        yield _Place(Workspace(store, [Path(home / "allowed")], most_upload_bytes=10_000))


def _operations() -> list[tuple[str, str]]:
    """Every method of every address that the API describes."""
    app = FastAPI()
    app.include_router(router(None), prefix=PREFIX)
    paths = app.openapi()["paths"]
    return [(path, method) for path, methods in paths.items() for method in methods if path != _ENDLESS]


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize(("path", "method"), _operations())
def test_every_answer_is_one_that_is_described(
    place: _Place, path: str, method: str, mode: GenerationMode
) -> None:
    operation = place.described[path][method]

    @settings(
        max_examples=8,
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(checks=list(_CHECKS))
        # And once more where what is named is there.
        named = [name for name in place.ids if name in case.path_parameters]
        if named and not path.endswith("/events"):
            case.path_parameters.update({name: place.ids[name] for name in named})
            case.call_and_validate(checks=list(_CHECKS))

    try:
        ask()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "nothing can be asked there"
