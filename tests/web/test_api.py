"""The HTTP API of a really started server, as a program would use it."""

from __future__ import annotations

import csv
import io
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from inferlab import machine
from inferlab.model import reading
from tests.helpers.http_calls import (
    ABSENT,
    LONG,
    QUICK,
    cancel,
    ended,
    events,
    job_of,
    measured,
    refused,
    running,
    uploaded,
)
from tests.helpers.web_server import Server, until


@pytest.fixture(scope="module", autouse=True)
def nothing_waits(http: httpx.Client) -> None:
    """Other tests of this server may have left jobs behind."""
    for job in http.get("/jobs").json():
        http.post(f"/jobs/{job['id']}/cancel")
    until(lambda: not http.get("/jobs").json(), "a job of another test goes on")


@pytest.fixture(scope="module")
def model() -> bytes:
    """A small model as a file."""
    return reading.build_demo("mlp", lambda event: None).read_bytes()


@pytest.fixture(scope="module")
def project(http: httpx.Client, model: bytes) -> str:
    """The id of a project of an uploaded model."""
    source = uploaded(http, "small.onnx", model)
    made = http.post("/projects", json={"source": source, "name": " Small  one ", "description": "of a test"})
    assert made.status_code == 201, made.text
    assert made.headers["location"] == f"/api/v1/projects/{made.json()['id']}"
    return str(made.json()["id"])


@pytest.fixture(scope="module")
def entry(http: httpx.Client, project: str) -> str:
    """The id of a benchmark of two core counts."""
    return measured(http, project, {**QUICK, "num_cores": [1, 2]})


# The machine and its engines.


def test_the_system_is_described(http: httpx.Client, server: Server) -> None:
    found = http.get("/system").json()
    assert (found["store"], found["folders"]) == (str(server.store), [str(server.folder)])
    assert found["node"] == server.environment["INFERLAB_NODE"]
    assert found["physical_cores"] >= found["usable_cores"] >= 1
    assert found["most_upload_bytes"] == 4 * 2**30


def test_engines_say_what_they_can_do_and_what_is_agreed_to_before_they_are_installed(http: httpx.Client) -> None:
    found = {one["name"]: one for one in http.get("/engines").json()}
    ready, missing = found["onnxruntime"], found["deepsparse"]
    assert (ready["state"], ready["kinds"], ready["licence"]) == ("ready", ["onnx"], None)
    assert "layer_times" in ready["capabilities"]
    assert missing["licence"]["name"] == "Neural Magic DeepSparse Community License"
    assert missing["remedy"] in ("", "inferlab engines install deepsparse")


def test_nothing_is_installed_without_agreement(http: httpx.Client) -> None:
    address = "/engines/deepsparse/install"
    for body in ({}, {"agree": False}, {"agree": "yes"}):
        assert "agree" in refused(http.post(address, json=body), 422)
    assert "no environment of its own" in refused(
        http.post("/engines/onnxruntime/install", json={"agree": True}), 400
    )
    assert "There is no engine 'x'" in refused(http.post("/engines/x/install", json={"agree": True}), 404)
    assert http.get("/jobs").json() == []


def test_an_installation_waits_in_the_queue_and_can_be_cancelled(http: httpx.Client, project: str) -> None:
    if not next(one for one in http.get("/engines").json() if one["name"] == "deepsparse")["can_install"]:
        pytest.skip("it cannot be installed on this machine")
    first = running(http, project, LONG)
    waiting = http.post("/engines/deepsparse/install", json={"agree": True})
    assert waiting.status_code == 202
    job = waiting.json()
    assert (job["kind"], job["status"], job["position"]) == ("install", "queued", 1)
    assert job["asked"]["engines"] == ["deepsparse"]
    assert [one["id"] for one in http.get("/jobs").json()] == [first, job["id"]]
    cancel(http, job["id"])
    cancel(http, first)
    assert [one["id"] for one in http.get("/jobs", params={"recent": 2}).json()] == [first, job["id"]]
    for each in (first, job["id"]):
        assert http.delete(f"/jobs/{each}").status_code == 204
        assert "There is no job" in refused(http.get(f"/jobs/{each}"), 404)


def test_the_example_of_the_documentation_runs_and_prints_what_it_says(server: Server) -> None:
    page = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    here = code.replace("http://127.0.0.1:8765", server.url)
    environment = {**os.environ, "INFERLAB_TOKEN": server.token}
    run = subprocess.run([sys.executable, "-c", here], capture_output=True, text=True, env=environment)
    printed = run.stdout.splitlines()
    assert printed[:1] == re.findall(r"# -> (.*)$", code, re.M), run.stderr
    assert [line.partition(":")[0] for line in printed[1:]] == ["batch 1", "batch 8"]


# Models and projects.


def test_a_project_is_made_of_an_upload_and_shows_no_path_of_the_server(
    http: httpx.Client, server: Server, project: str
) -> None:
    found = http.get(f"/projects/{project}")
    assert str(server.home) not in found.text
    about = found.json()
    assert (about["name"], about["description"]) == ("Small one", "of a test")
    model = about["model"]
    assert (model["kind"], model["file_name"], model["source"][:7]) == ("onnx", "small.onnx", "upload:")
    listed = http.get("/projects")
    assert str(server.home) not in listed.text
    assert project in [one["id"] for one in listed.json()]
    choices = {one["name"]: one["reason"] for one in http.get(f"/projects/{project}/engines").json()}
    assert (choices["onnxruntime"], choices["fake"]) == ("", "")
    assert choices["torch"]


def test_the_architecture_of_a_project_says_what_it_takes(http: httpx.Client, project: str) -> None:
    found = http.get(f"/projects/{project}/theory").json()
    assert found["flops"]["flops"] > 0
    assert (found["performance"], found["loss"]["method"]) == (None, "approximated")


def test_a_project_changes_its_name_and_keeps_the_rest(http: httpx.Client) -> None:
    made = http.post("/projects", json={"source": "demo:mlp", "name": "One", "description": "D"}).json()
    changed = http.patch(f"/projects/{made['id']}", json={"name": "Two"}).json()
    assert (changed["name"], changed["description"]) == ("Two", "D")
    assert "needs a name" in refused(http.patch(f"/projects/{made['id']}", json={"name": "  "}), 400)
    assert http.delete(f"/projects/{made['id']}").status_code == 204
    assert "There is no project" in refused(http.get(f"/projects/{made['id']}"), 404)


def test_a_removed_project_takes_its_running_job_and_its_upload_with_it(
    http: httpx.Client, server: Server, model: bytes
) -> None:
    source = uploaded(http, "gone.onnx", model)
    made = http.post("/projects", json={"source": source, "name": "Gone"}).json()
    upload = source.removeprefix("upload:")
    assert "is made of this upload" in refused(http.delete(f"/uploads/{upload}"), 409)
    running(http, made["id"], LONG)
    assert http.delete(f"/projects/{made['id']}").status_code == 204
    assert not (server.home / "models" / upload).exists()
    # The runner ends it and goes on with what comes next.
    until(lambda: not http.get("/jobs").json(), "the job went on without its project")


def test_a_file_that_is_no_model_is_refused_by_its_name(http: httpx.Client, server: Server) -> None:
    source = uploaded(http, "notes.onnx", b"not a model at all")
    said = refused(http.post("/models/analyse", json={"source": source}), 400)
    assert "notes.onnx" in said
    assert str(server.home) not in said
    assert refused(http.post("/projects", json={"source": source, "name": "No"}), 400) == said
    assert http.delete(f"/uploads/{source[7:]}").status_code == 204
    assert "no such upload" in refused(http.post("/models/analyse", json={"source": source}), 404)


def test_a_pickle_is_never_opened(http: httpx.Client, tmp_path: Path) -> None:
    import pickle

    trap = tmp_path / "sprung"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (trap,))

    source = uploaded(http, "model.pt", pickle.dumps(Trap()))
    assert "pickle" in refused(http.post("/models/analyse", json={"source": source}), 400)
    assert not trap.exists()


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../secret.onnx", "deep/../../secret.onnx", "link.onnx", "linked", "~/x.onnx", "held"],
)
def test_a_path_outside_the_folders_is_refused_and_nothing_is_said_about_it(
    http: httpx.Client, server: Server, model: bytes, path: str
) -> None:
    (server.home / "outside").mkdir(exist_ok=True)
    secrets = [server.home / "secret.onnx", server.home / "outside" / "model.onnx"]
    for secret in secrets:
        secret.write_bytes(model)
    for folder in ("deep", "held"):
        (server.folder / folder).mkdir(exist_ok=True)
    links = {"link.onnx": secrets[0], "linked": server.home / "outside", "held/model.onnx": secrets[1]}
    for name, target in links.items():
        if not (server.folder / name).is_symlink():
            (server.folder / name).symlink_to(target)
    said = refused(http.post("/models/analyse", json={"source": path}), 400)
    assert "is not below a folder from which models may be opened" in said


def test_a_path_below_a_folder_is_opened_and_the_folder_listed(
    http: httpx.Client, server: Server, model: bytes
) -> None:
    (server.folder / "fine").mkdir(exist_ok=True)
    (server.folder / "fine" / "own.onnx").write_bytes(model)
    assert http.post("/models/analyse", json={"source": "fine/own.onnx"}).json()["file_name"] == "own.onnx"
    listed = http.get("/folders", params={"path": "fine"}).json()
    assert listed["files"] == [{"name": "own.onnx", "size_bytes": len(model)}]
    assert "is not below a folder" in refused(http.get("/folders", params={"path": "/etc"}), 400)


# Benchmarks.


def test_progress_is_told_until_the_end_and_the_card_has_what_was_measured(
    http: httpx.Client, server: Server, project: str
) -> None:
    queued = http.post(f"/projects/{project}/benchmarks", json={**QUICK, "batch_sizes": [1, 2]})
    told = list(events(http, f"/jobs/{queued.json()['id']}/events"))
    assert [name for name, _ in told] == ["progress"] * (len(told) - 1) + ["end"]
    job = told[-1][1]
    assert (job["status"], job["fraction"], job["position"], job["failure"]) == ("done", 1.0, None, "")
    assert job["log"]
    found = http.get(f"/benchmarks/{job['entry_id']}")
    assert str(server.home) not in found.text
    card = found.json()
    assert (card["entry"]["kind"], card["entry"]["status"], card["entry"]["title"]) == (
        "benchmark",
        "done",
        "small.onnx",
    )
    assert (card["core_counts"], card["batch_sizes"]) == ([1], [1, 2])
    (arm,) = card["arms"]
    assert (arm["engine"], len(arm["cells"])) == ("fake", 2)
    for cell in arm["cells"]:
        numbers = cell["numbers"]
        assert numbers["items_per_second"]["value"] > 0
        assert numbers["ms_per_item"]["value"] == numbers["ms_per_batch"]["value"] / cell["batch_size"]
        assert {"low", "high", "level"} <= numbers["ms_per_batch"].keys()
        assert (cell["output_check"]["status"], cell["wrong"]) == ("unchecked", False)
        assert "unchecked" in [one["code"] for one in cell["findings"]]


def test_every_iteration_of_a_cell_can_be_had(http: httpx.Client, entry: str) -> None:
    cells = http.get(f"/benchmarks/{entry}").json()["arms"][0]["cells"]
    address = f"/benchmarks/{entry}/iterations"
    found = http.get(address, params={"num_cores": 2, "batch_size": 1}).json()
    numbers = next(cell for cell in cells if cell["num_cores"] == 2)["numbers"]
    assert len(found["latencies_ms"]) == len(found["begins_s"]) == numbers["iterations"]
    assert found["median_ms"] == numbers["ms_per_batch"]["value"]
    for wrong in ({"num_cores": 3, "batch_size": 1}, {"num_cores": 2, "batch_size": 1, "arm": 1}):
        assert "has no arm" in refused(http.get(address, params=wrong), 404)


def test_benchmarks_are_listed_by_pages_newest_first(http: httpx.Client, project: str, entry: str) -> None:
    newer = measured(http, project, QUICK)
    address = f"/projects/{project}/benchmarks"
    (first,) = http.get(address, params={"limit": 1}).json()
    assert first["id"] == newer
    older = http.get(address, params={"limit": 100, "before": newer}).json()
    assert newer not in [one["id"] for one in older]
    line = next(one for one in older if one["id"] == entry)
    assert [cell["num_cores"] for cell in line["cells"]] == [1, 2]
    assert all(cell["items_per_second"]["value"] > 0 for cell in line["cells"])


@pytest.mark.parametrize("ending", ["json", "csv", "html"])
def test_an_entry_is_exported_as_a_file(http: httpx.Client, entry: str, ending: str) -> None:
    found = http.get(f"/entries/{entry}/export", params={"format": ending})
    assert found.headers["content-disposition"] == f'attachment; filename="small.onnx-{entry}.{ending}"'
    if ending == "json":
        assert [one["engine"] for one in found.json()["results"]] == ["fake", "fake"]
    elif ending == "csv":
        assert [one["num_cores"] for one in csv.DictReader(io.StringIO(found.text))] == ["1", "2"]
    else:
        assert found.text.lower().startswith("<!doctype html>")


def test_a_benchmark_is_also_a_command_line(http: httpx.Client, entry: str) -> None:
    found = http.get(f"/entries/{entry}/command").json()["command"]
    assert found.startswith("inferlab benchmark ")
    assert "-e fake" in found


def test_a_benchmark_is_measured_again_removed_and_put_back(http: httpx.Client, project: str, entry: str) -> None:
    again = ended(http, http.post(f"/entries/{entry}/rerun"))
    assert again["status"] == "done"
    card = http.get(f"/benchmarks/{again['entry_id']}").json()
    assert (card["core_counts"], again["entry_id"] != entry) == ([1, 2], True)
    assert http.delete(f"/entries/{again['entry_id']}").status_code == 204
    assert "has nothing with the id" in refused(http.get(f"/benchmarks/{again['entry_id']}"), 404)
    restored = http.post(f"/entries/{again['entry_id']}/restore").json()
    assert (restored["id"], restored["project_id"]) == (again["entry_id"], project)
    assert http.get(f"/benchmarks/{again['entry_id']}").json() == card
    assert "too long ago" in refused(http.post(f"/entries/{again['entry_id']}/restore"), 404)


def test_engines_are_compared_in_turns_with_a_verdict(http: httpx.Client, project: str) -> None:
    found = measured(http, project, {"num_cores": [1, None], "time_s": 0.5, "compare_engine": "fake"})
    card = http.get(f"/benchmarks/{found}").json()
    assert [arm["engine"] for arm in card["arms"]] == ["onnxruntime", "fake"]
    duel, of_all_cores = card["duels"]
    assert (duel["num_cores"], of_all_cores["num_cores"]) == (1, len(machine.cores()))
    assert duel["paired"] and duel["verdict"] in ("faster", "slower", "same", "inconclusive")
    assert duel["speedup"]["value"] == pytest.approx(1 / duel["ratio"]["value"])
    (line,) = [one for one in http.get(f"/projects/{project}/benchmarks").json() if one["id"] == found]
    assert (line["kind"], line["ratios"][0]["verdict"]) == ("comparison", duel["verdict"])


def test_a_benchmark_is_compared_with_one_that_was_measured_before(
    http: httpx.Client, project: str, entry: str
) -> None:
    found = measured(http, project, {"engine": "fake", "time_s": 0.3, "against": entry})
    card = http.get(f"/benchmarks/{found}").json()
    assert card["entry"]["against"] == entry
    assert [(duel["num_cores"], duel["paired"]) for duel in card["duels"]] == [(1, False), (2, False)]


def test_what_cannot_be_measured_is_refused_with_a_sentence(http: httpx.Client, project: str) -> None:
    address = f"/projects/{project}/benchmarks"
    impossible = {
        "cores were asked for": {"num_cores": [1000]},
        "Choose at least one core count and one batch size.": {"num_cores": []},
        "more than 0 seconds": {"time_s": 0},
        "Both sides of the comparison are": {"compare_engine": "onnxruntime"},
        "cannot be chosen: it runs": {"engine": "torch"},
        "combinations": {"batch_sizes": list(range(1, 300))},
    }
    for said, form in impossible.items():
        assert said in refused(http.post(address, json=form), 400)
    assert "has nothing with the id" in refused(http.post(address, json={"against": ABSENT}), 404)


def test_an_engine_that_is_a_file_cannot_be_named(http: httpx.Client, server: Server, project: str) -> None:
    trap = server.folder / "trap.py"
    sprung = server.folder / "sprung"
    trap.write_text(f"open({str(sprung)!r}, 'w')\nclass Trap: pass\n")
    engine = f"{trap}:Trap"
    forms = (
        ("benchmarks", {"engine": engine}),
        ("benchmarks", {"engine": "fake", "compare_engine": engine}),
        ("profiles", {"engine": engine}),
        ("profiles", {"engine": engine, "performance": False}),
    )
    for what, form in forms:
        said = refused(http.post(f"/projects/{project}/{what}", json=form), 400)
        assert said.startswith(f"There is no engine '{engine}'. Known engines: onnxruntime,")
    assert http.get("/jobs").json() == []
    assert not sprung.exists()


def test_what_a_file_measured_on_the_command_line_is_shown_but_not_measured_again(
    http: httpx.Client, server: Server, model: bytes
) -> None:
    file = server.folder / "mine.py"
    file.write_text("from inferlab_child.engines.fake import Fake\n\n\nclass Mine(Fake):\n    pass\n")
    (server.folder / "mine.onnx").write_bytes(model)
    options = ("-t", "0.2", "-w", "0", "--processes", "1", "-s", "sync")
    server.command("benchmark", str(server.folder / "mine.onnx"), "-e", f"{file}:Mine", *options)
    made = http.post("/projects", json={"source": "mine.onnx", "name": "Mine"}).json()
    lines = http.get(f"/projects/{made['id']}/benchmarks", params={"limit": 200}).json()
    line = next(one for one in lines if one["cells"][0]["engine"] == f"{file}:Mine")
    assert http.get(f"/benchmarks/{line['id']}").json()["arms"][0]["cells"][0]["status"] == "done"
    assert "There is no engine" in refused(http.post(f"/entries/{line['id']}/rerun"), 400)


# Profiles.


def test_a_model_is_profiled_listed_compared_removed_and_put_back(
    http: httpx.Client, server: Server, project: str
) -> None:
    form = {"loss": False, "roofline": False, "num_cores": 1, "time_s": 0.3, "performance_name": "first"}
    found = measured(http, project, form, "profiles")
    line = next(one for one in http.get(f"/projects/{project}/profiles").json() if one["id"] == found)
    assert (line["performance"]["name"], line["performance"]["num_cores"]) == ("first", 1)
    assert "ms_interval" in line["performance"]
    whole = http.get(f"/profiles/{found}", params={"budget": 0.5})
    assert str(server.home) not in whole.text
    profile = whole.json()
    assert sum(one["ms"] for one in profile["performance"]["layers"]) == pytest.approx(
        profile["performance"]["ms_per_batch"]
    )
    assert profile["estimate"]["budget"] == 0.5
    losses = http.get(f"/profiles/{found}/loss", params={"budget": 0.5}).json()
    assert (losses["performance"], losses["estimate"]["gained"]) == (None, "parameters")
    diff = http.get(f"/profiles/{found}/diff", params={"against": found}).json()
    assert (diff["ratio"]["value"], diff["differences"]) == (1.0, [])
    assert len(diff["rows"]) == len(profile["performance"]["layers"])
    assert "is a profile, not a benchmark" in refused(http.get(f"/benchmarks/{found}"), 404)
    assert http.delete(f"/entries/{found}").status_code == 204
    assert http.post(f"/entries/{found}/restore").json()["kind"] == "profile"
    assert http.get(f"/profiles/{found}", params={"budget": 0.5}).json() == profile
    again = ended(http, http.post(f"/entries/{found}/rerun"))["entry_id"]
    assert again != found
    assert http.get(f"/profiles/{again}").json()["performance"]["num_cores"] == 1


def test_a_profile_is_named_by_its_id_and_never_by_a_file(http: httpx.Client, server: Server, entry: str) -> None:
    (server.home / "leak.json").write_text("{}")
    for name in ("leak.json", "..%2Fleak.json", str(server.home / "leak.json").replace("/", "%2F")):
        assert "leak.json is not" not in refused(http.get(f"/profiles/{name}"), 404)
    assert "is a benchmark, not a profile" in refused(http.get(f"/profiles/{entry}"), 404)
    for params in ({"loss": "leak.json"}, {"loss": entry}):
        refused(http.get(f"/profiles/{entry}", params=params), 404)
    refused(http.get(f"/profiles/{entry}/diff", params={"against": "leak.json"}), 404)


def test_losses_are_measured_on_data_that_was_uploaded(http: httpx.Client, project: str) -> None:
    (tensor,) = http.get(f"/projects/{project}").json()["model"]["inputs"]
    size = [8 if isinstance(one, str) else one for one in tensor["dims"]]
    file = io.BytesIO()
    rows: dict[str, Any] = {tensor["name"]: np.ones(size, np.float32)}
    np.savez(file, **rows)
    source = uploaded(http, "data.npz", file.getvalue())
    form = {"performance": False, "data": source, "loss_name": "mine", "time_s": 0.3}
    found = measured(http, project, form, "profiles")
    loss = http.get(f"/profiles/{found}").json()["loss"]
    assert (loss["name"], loss["items"]) == ("mine", 8)
    address = f"/projects/{project}/profiles"
    assert "no such upload" in refused(http.post(address, json={**form, "data": f"upload:{ABSENT}"}), 404)
    assert "is not below a folder" in refused(http.post(address, json={**form, "data": "/etc/passwd"}), 400)


# Jobs.


def test_a_running_job_is_cancelled_keeps_what_is_measured_and_is_resumed(
    http: httpx.Client, project: str
) -> None:
    job = running(http, project, LONG)
    entry = job_of(http, job)["entry_id"]
    assert "Cancel it first" in refused(http.delete(f"/jobs/{job}"), 409)
    assert "Cancel it first" in refused(http.delete(f"/entries/{entry}"), 409)
    assert "only one that was cut off" in refused(http.post(f"/jobs/{job}/resume"), 409)
    assert http.get(f"/benchmarks/{entry}").json()["entry"]["status"] == "pending"
    cancel(http, job)
    assert http.get(f"/benchmarks/{entry}").json()["entry"]["status"] == "cancelled"
    resumed = http.post(f"/jobs/{job}/resume").json()
    assert (resumed["status"], resumed["entry_id"], resumed["cancelling"]) == ("queued", entry, False)
    until(lambda: job_of(http, job)["status"] == "running", "the job did not go on")
    cancel(http, job)


def test_a_job_whose_runner_is_killed_says_interrupted_and_can_be_resumed(
    http: httpx.Client, server: Server, project: str
) -> None:
    job = running(http, project, {**QUICK, "time_s": 1.0})
    (runner,) = server.runners()
    os.kill(runner, signal.SIGKILL)
    *_, (name, cut) = events(http, f"/jobs/{job}/events")
    assert (name, cut["status"]) == ("end", "interrupted")
    assert http.post(f"/jobs/{job}/resume").status_code == 200
    *_, (name, done) = events(http, f"/jobs/{job}/events")
    assert (name, done["status"], done["entry_id"]) == ("end", "done", cut["entry_id"])
    assert http.get(f"/benchmarks/{done['entry_id']}").json()["entry"]["status"] == "done"


def test_the_queue_is_told_whenever_it_changes(http: httpx.Client, project: str) -> None:
    first = running(http, project, LONG)
    with httpx.Client(
        base_url=http.base_url, headers=http.headers, timeout=http.timeout, trust_env=False
    ) as other:
        told = events(other, "/jobs/events")
        name, now = next(told)
        assert (name, [one["id"] for one in now["jobs"]]) == ("queue", [first])
        second = http.post(f"/projects/{project}/benchmarks", json=LONG).json()["id"]
        for _, now in told:
            if len(now["jobs"]) == 2:
                break
        assert [(one["id"], one["position"]) for one in now["jobs"]] == [(first, 0), (second, 1)]
        assert {one["id"] for one in http.get(f"/projects/{project}/jobs").json()} >= {first, second}
        for each in (second, first):
            cancel(http, each)
        for _, now in told:
            if not now["jobs"]:
                break


def test_two_projects_can_be_worked_on_at_once(http: httpx.Client, server: Server) -> None:
    made: list[httpx.Response] = []

    def make(name: str) -> None:
        with server.client() as own:
            made.append(own.post("/projects", json={"source": "demo:mlp", "name": name}))

    threads = [threading.Thread(target=make, args=(f"T{number}",)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [one.status_code for one in made] == [201] * 4
    for one in made:
        assert http.delete(f"/projects/{one.json()['id']}").status_code == 204


def test_an_entry_has_a_readable_name_and_can_be_renamed(http: httpx.Client) -> None:
    project = http.post("/projects", json={"source": "demo:mlp", "name": "Mlp", "input_shapes": "[1,64]"}).json()
    assert project["input_shapes"] == "[1,64]"
    said = refused(http.patch(f"/projects/{project['id']}", json={"input_shapes": "[1,64"}), 400)
    assert said.startswith("The input shapes '[1,64' cannot be read")
    entry = measured(http, project["id"], QUICK)
    lines = {line["id"]: line for line in http.get(f"/projects/{project['id']}/benchmarks").json()}
    assert lines[entry]["name"] == "mlp on Fake (scripted), 1 core, batch 1"
    assert (
        http.patch(f"/entries/{entry}", json={"name": " Before  the change "}).json()["name"]
        == "Before the change"
    )
    assert http.get(f"/benchmarks/{entry}").json()["entry"]["name"] == "Before the change"
    assert refused(http.patch(f"/entries/{entry}", json={"name": ""}), 400) == "The benchmark needs a name."
    assert http.patch(f"/entries/{ABSENT}", json={"name": "x"}).status_code == 404
    http.delete(f"/projects/{project['id']}")
