"""Projects as a user makes, names, searches and deletes them."""

from __future__ import annotations

import os
import pickle
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from inferlab.records import Model
from inferlab.store import open_store
from tests.helpers.http_calls import LONG, cancel, running
from tests.helpers.odd_models import odd_model
from tests.helpers.onnx_files import small_model
from tests.helpers.web_server import Server, ended, left_the_machine, new_server, requested, until
from tests.helpers.web_user import User


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for these tests alone: others fill the list of projects."""
    found = new_server(tmp_path_factory.mktemp("projects"), ("--max-upload", "1M"))
    found.start()
    yield found
    ended(found)


@pytest.fixture
def user(browser: webdriver.Chrome, own: Server) -> User:
    return User(browser, own.login)


def chosen(user: User, source: str) -> None:
    """Open the first step with a model that is analysed."""
    user.open(f"/new?source={source}")
    user.see("model", "Parameters")


def profiling(user: User, time_s: str = "0.2") -> None:
    """Go from a chosen model to its profiles, with as little to measure as there can be."""
    user.click("next")
    user.see("project-name")
    user.click("next")
    user.see("engine")
    user.type("time", time_s)
    user.click("roofline")


def test_an_empty_start_page_leads_by_a_demo_model_to_its_profile(
    browser: webdriver.Chrome, serving: Callable[..., Server]
) -> None:
    user = User(browser, serving().login)
    user.open("/")
    user.click("demo:digits")
    assert user.at("/new") == "/new?source=demo%3Adigits"
    assert "image: float32 [batch, 1, 8, 8]" in user.read("model", "Parameters")
    user.click("next")
    assert user.value("project-name") == "digits"
    user.type("project-name", "My digits")
    user.type("project-description", "A first look")
    user.click("next")
    user.see("engine")
    assert user.is_on("performance-switch")
    assert user.is_on("loss-switch")
    assert (user.value("performance-name"), user.value("loss-name")) == ("baseline", "baseline")
    assert user.value("batch-size") == "1"
    user.type("time", "0.2")
    user.click("roofline")
    user.click("run")
    user.see("stage")
    assert re.fullmatch(r"/new\?job=[a-z2-7]{10}", user.at("/new?job="))
    user.see("complete")
    # Greyed out, with nothing left to do but to look at it.
    assert not user.can_click("performance-name")
    assert not any(user.sees(name) for name in ("run", "back", "cancel", "next"))
    user.click("complete")
    place = user.at("/projects/")
    assert re.fullmatch(r"/projects/[a-z2-7]{10}/performance/[a-z2-7]{10}", place)
    user.open("/")
    line = user.read(f"project-{place.split('/')[2]}")
    assert [part in line for part in ("My digits", "A first look", "demo:digits", "118 KiB", "29.9 k")] == [
        True
    ] * 5
    assert left_the_machine(requested(browser)) == []


def test_what_belongs_to_a_model_may_be_uploaded_after_it(user: User, own: Server, tmp_path: Path) -> None:
    path = small_model(tmp_path / "late.onnx", external=True)
    user.open("/new")
    user.see("drop-zone")
    user.give("files", path)
    told = user.read("model-problem")
    assert "The model keeps weights in 'late.onnx.data', which is missing from the upload." in told
    assert str(own.home) not in told
    user.give("files", f"{path}.data")
    assert "x: float32 [batch, 16]" in user.read("model", "Parameters")
    # Another model begins an upload of its own.
    user.give("files", small_model(tmp_path / "other.onnx", width=8))
    assert "x: float32 [batch, 8]" in user.read("model", "[batch, 8]")
    until(
        lambda: [file.name for file in (own.home / "models").glob("*/*.onnx*")] == ["other.onnx"],
        "what was uploaded before was not removed",
    )
    user.click("cancel")
    until(lambda: not list((own.home / "models").glob("*")), "what was uploaded for nothing is still there")


def test_an_error_goes_with_its_cause_and_the_keyboard_goes_on_in_the_next_step(user: User) -> None:
    chosen(user, "demo:mlp")
    user.click("next")
    focused = "return document.activeElement.dataset.testid"
    until(lambda: user.browser.execute_script(focused) == "project-name", "the name has not the focus")
    user.press("project-name", Keys.CONTROL + "a", Keys.DELETE)
    user.click("next")
    user.see("problem", "The project needs a name")
    user.press("project-name", "M")
    user.miss("problem")
    user.click("next")
    until(
        lambda: user.browser.execute_script("return document.activeElement.closest('.il-profile-form') !== null"),
        "no field of the profiles has the focus",
    )


def test_a_model_whose_shapes_cannot_be_guessed_is_profiled_with_those_that_are_given(
    user: User, own: Server
) -> None:
    odd_model(own.folder / "odd.onnx")
    chosen(user, "odd.onnx")
    profiling(user)
    user.click("loss-switch")
    user.click("run")
    assert "does not say how many dimensions its input 'x' has" in user.read("trouble")
    user.type("input-shapes", "[1,18")
    user.click("run")
    assert "The input shapes '[1,18' cannot be read" in user.read("problem")
    user.type("input-shapes", "[1,19]")
    user.click("run")
    user.see("stage")
    user.see("complete")
    user.miss("run")
    user.click("complete")
    project = user.at("/projects/").split("/")[2]
    assert user.read("shapes") == "Input shapes\nx 1×19"
    user.open(f"/projects/{project}/performance/flops")
    assert user.read("shapes") == "Input shapes\nx 1×19"
    assert user.read("flops").splitlines()[1] == "190 FLOP"
    user.open(f"/projects/{project}/loss")
    assert user.read("shapes") == "Input shapes\nx 1×19"
    user.open(f"/projects/{project}/benchmarks")
    user.click("add-benchmark")
    assert user.value("input-shapes") == "[1,19]"
    user.type("input-shapes", "[2,19]")
    assert "has a batch of 2, but the batch size is 1" in user.read("error", "batch")
    user.type("input-shapes", "[1,19]")
    assert "1 combination, about" in user.read("estimate", "1 combination")
    user.miss("error")


def test_why_there_is_no_loss_profile_is_told_until_shapes_are_given(user: User, own: Server) -> None:
    odd_model(own.folder / "odd.onnx")
    with own.client() as http:
        made = http.post("/projects", json={"source": "odd.onnx", "name": "Odd"}).json()
    assert made["input_shapes"] == ""
    user.open(f"/projects/{made['id']}/loss")
    assert "does not say how many dimensions its input 'x' has" in user.read("no-loss")
    user.open(f"/projects/{made['id']}/settings")
    user.type("input-shapes", "x=[1,19]")
    user.click("save")
    with own.client() as http:
        until(lambda: http.get(f"/projects/{made['id']}/profiles").json(), "shapes were not saved")
    user.open(f"/projects/{made['id']}/loss")
    assert user.read("shapes") == "Input shapes\nx 1×19"


def test_data_is_uploaded_in_the_dialog_and_offered_by_its_name_afterwards(
    user: User, own: Server, tmp_path: Path
) -> None:
    with own.client() as http:
        project = http.post("/projects", json={"source": "demo:mlp", "name": "Mlp"}).json()["id"]
    np.savez(tmp_path / "mine.npz", input=np.zeros((4, 64), np.float32))
    (tmp_path / "notes.txt").write_text("nothing")
    user.open(f"/projects/{project}/loss")
    user.click("add-profile")
    user.see("data")
    user.give("data-file", tmp_path / "notes.txt")
    assert "notes.txt is not an .npz file" in user.read("data-problem", "npz")
    user.give("data-file", tmp_path / "mine.npz")
    until(lambda: user.value("data") == "mine.npz", "the upload is not shown by its name")
    user.miss("data-problem")
    user.click("add")
    user.miss("profile-dialog")
    user.click("add-profile")
    assert user.value("data") == ""
    user.click("data-known")
    user.click("data-mine.npz")
    until(lambda: user.value("data") == "mine.npz", "what was uploaded before was not taken")
    (file,) = (own.home / "models").glob("*/mine.npz")
    with open_store(str(own.store)) as store:
        jobs = until(
            lambda: [one for one in store.jobs.recent() if one.project_id == project], "the profile never ended"
        )
        (job,) = jobs
        assert job.content["wanted"]["data_file"] == str(file)
    with own.client() as http:
        assert http.delete(f"/uploads/{file.parent.name}").status_code == 204
        assert http.delete(f"/projects/{project}").status_code == 204
    assert not file.exists()


def test_a_model_of_several_files_is_uploaded_and_goes_with_its_project(
    user: User, own: Server, tmp_path: Path
) -> None:
    path = small_model(tmp_path / "tiny net.onnx", external=True)
    user.open("/new")
    assert not user.can_click("next")
    user.see("drop-zone")
    user.give("files", path, f"{path}.data")
    assert "x: float32 [batch, 16]" in user.read("model", "Parameters")
    user.click("next")
    assert user.value("project-name") == "tiny net"
    user.click("next")
    user.click("performance-switch")
    user.see("run")
    user.click("loss-switch")
    user.miss("run")
    user.click("complete")
    project_id = user.at("/projects/").split("/")[2]
    assert user.place == f"/projects/{project_id}/performance/flops"
    assert sorted(file.name for file in (own.home / "models").glob("*/*")) == [
        "tiny net.onnx",
        "tiny net.onnx.data",
    ]
    user.open(f"/projects/{project_id}/settings")
    user.click("delete")
    user.see("confirm-delete")
    assert not user.can_click("confirm-delete")
    user.type("confirm-name", "tiny net")
    user.click("confirm-delete")
    until(lambda: user.place == "/", "it stayed at the project")
    assert list((own.home / "models").glob("*")) == []


def test_a_file_that_is_no_model_says_so_and_leaves_nothing(user: User, own: Server, tmp_path: Path) -> None:
    whole = small_model(tmp_path / "whole.onnx").read_bytes()
    (tmp_path / "cut.onnx").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "weights.pt").write_bytes(pickle.dumps({"a": 1}))
    user.open("/new")
    user.see("drop-zone")
    user.give("files", tmp_path / "cut.onnx")
    user.see("model-problem", "cut.onnx")
    assert not user.can_click("next")
    user.give("files", tmp_path / "weights.pt")
    user.see("model-problem", "pickled checkpoint")
    user.give("files", tmp_path / "whole.onnx")
    user.see("model", "Parameters")
    assert user.can_click("next")
    user.click("cancel")
    until(lambda: user.place == "/", "it stayed")
    until(lambda: not list((own.home / "models").glob("*")), "what was uploaded for nothing is still there")


def test_files_are_dropped_and_those_that_miss_the_zone_do_not_take_the_page_away(user: User) -> None:
    user.open("/new")
    user.see("drop-zone")
    assert not _dropped(user, "document.body")
    assert user.sees("drop-zone") and not user.sees("model-problem")
    _dropped(user, "document.querySelector('[data-testid=drop-zone]')")
    user.see("model-problem", "dropped.onnx is not an ONNX model")
    # What was wrong with a file does not stand below another way to name a model.
    user.click("way-demo")
    user.miss("model-problem")
    user.click("demo-mlp")
    user.see("model", "Parameters")
    user.click("way-upload")
    user.see("drop-zone")
    assert user.sees("model")


def _dropped(user: User, target: str) -> bool:
    """Let a file fall there; whether the browser would open it by itself."""
    script = """
    const carried = new DataTransfer();
    carried.items.add(new File(["no model at all"], "dropped.onnx"));
    const event = new DragEvent("drop", {dataTransfer: carried, bubbles: true, cancelable: true});
    return %s.dispatchEvent(event);
    """
    return bool(user.browser.execute_script(script % target))


def test_an_upload_beyond_the_limit_is_refused_before_it_is_sent(user: User, tmp_path: Path) -> None:
    user.open("/new")
    user.see("drop-zone", "up to 1 MiB")
    user.give("files", small_model(tmp_path / "large.onnx", width=600))
    user.see("upload-problem", "an upload may have 1 MiB")
    assert not any("uploads" in address for address in requested(user.browser))


def test_a_path_is_found_by_browsing_the_allowed_folder(user: User, own: Server) -> None:
    (own.folder / "nets").mkdir(exist_ok=True)
    small_model(own.folder / "nets" / "seen.onnx")
    user.open("/new")
    user.click("way-path")
    user.click("pick-nets")
    user.click("pick-seen.onnx")
    user.see("model", "Parameters")
    assert user.value("path") == str(own.folder / "nets" / "seen.onnx")
    user.type("path", "/etc/passwd")
    user.click("analyse-path")
    user.see("model-problem", "is not below a folder from which models may be opened")
    assert not user.can_click("next")


def test_what_cannot_be_fetched_says_why(user: User) -> None:
    user.open("/new")
    user.click("way-address")
    user.type("address", "http://127.0.0.1:9/model.onnx")
    user.click("analyse-address")
    user.see("model-problem", "127.0.0.1 is refused: it is not an address of the public internet.")


def test_going_back_keeps_every_entry(user: User) -> None:
    chosen(user, "demo:mlp")
    user.click("next")
    user.type("project-name", "Kept")
    user.type("project-description", "as it was")
    user.click("next")
    user.type("performance-name", "one core")
    user.type("num-cores", "1")
    user.type("batch-size", "4")
    user.click("int8")
    user.click("loss-switch")
    user.click("back")
    assert (user.value("project-name"), user.value("project-description")) == ("Kept", "as it was")
    user.click("back")
    user.see("model", "demo:mlp")
    user.click("next")
    user.click("next")
    kept = [user.value(name) for name in ("performance-name", "num-cores", "batch-size")]
    assert (kept, user.is_on("int8"), user.is_on("loss-switch")) == (["one core", "1", "4"], True, False)


def test_a_project_without_a_name_is_not_made(user: User) -> None:
    chosen(user, "demo:mlp")
    user.click("next")
    user.type("project-name", " ")
    user.click("next")
    user.see("problem", "The project needs a name.")
    assert user.sees("project-name")


def test_profiling_is_found_again_and_cancelled_and_run_again_in_one_project(user: User, own: Server) -> None:
    chosen(user, "demo:mlp_medium")
    profiling(user, "300")
    user.click("run")
    place = user.at("/new?job=")
    user.see("left", "left")
    user.open("/")
    user.open(place)
    user.see("stage", "Profiling performance")
    user.click("cancel")
    user.see("trouble", "Cancelled")
    assert user.value("time") == "300"
    user.type("time", "0.2")
    user.click("run", "Run again")
    user.miss("trouble")
    user.see("complete")
    user.miss("run")
    with open_store(str(own.store)) as store:
        assert [line.project.name for line in store.projects.lines()].count("mlp_medium") == 1


def test_a_failure_shows_its_cause_and_its_log_and_the_project_is_there(user: User, own: Server) -> None:
    path = small_model(own.folder / "changing.onnx")
    chosen(user, str(path))
    profiling(user)
    small_model(path, width=8)
    user.click("run")
    user.see("trouble", "has changed since the project 'changing' was made")
    assert user.can_click("run")
    user.click("log")
    user.see("job-log")
    user.click("close-log")
    user.miss("job-log")
    user.click("complete")
    assert user.at("/projects/").endswith("/performance/flops")


def test_a_project_gets_another_name_and_other_tabs_show_it(user: User, own: Server) -> None:
    with open_store(str(own.store)) as store:
        project_id = store.projects.add("Before", "", _model("a")).id
    user.open("/")
    user.see(f"project-{project_id}", "Before")
    first = user.browser.current_window_handle
    user.browser.switch_to.new_window("tab")
    user.open(f"/projects/{project_id}/settings")
    assert "sha256:aaaa" in user.read("facts")
    user.type("project-name", "")
    user.click("save")
    user.see("problem", "The project needs a name.")
    user.type("project-name", "After")
    user.type("project-description", "renamed")
    user.click("save")
    until(lambda: "After" in user.browser.title, "the frame has the old name")
    user.browser.switch_to.window(first)
    assert "renamed" in user.read(f"project-{project_id}", "After")


def test_many_projects_are_searched_by_their_words(user: User, own: Server) -> None:
    with open_store(str(own.store)) as store:
        ids = [store.projects.add(f"needle {n}", "hay", _model("b")).id for n in range(25)]
    user.open("/")
    user.type("search-projects", "NEEDLE hay 24")
    user.see(f"project-{ids[24]}")
    user.miss(f"project-{ids[0]}")
    user.type("search-projects", "needle")
    user.miss(f"project-{ids[0]}")
    user.click("more-projects")
    user.see(f"project-{ids[0]}")


def test_what_the_command_line_measured_becomes_a_project(user: User, own: Server) -> None:
    own.command("benchmark", "demo:mlp", "-e", "fake", "-t", "0.1", "-w", "0", "--processes", "1")
    user.open("/")
    user.click("file-demo:mlp")
    assert user.at("/new") == "/new?source=demo%3Amlp"
    user.see("model", "demo:mlp")


def test_the_queue_is_shown_and_its_jobs_are_cancelled_and_resumed(user: User, own: Server) -> None:
    with own.client() as http:
        project_id = http.post("/projects", json={"source": "demo:mlp", "name": "Queued"}).json()["id"]
        first = running(http, project_id, LONG)
        second = http.post(f"/projects/{project_id}/benchmarks", json=LONG).json()["id"]
        user.open("/")
        user.see(f"job-{first}", "Running benchmark")
        user.see(f"job-{second}", "1 job before it in the queue")
        user.click(f"cancel-{first}")
        user.miss(f"job-{first}")
        user.see(f"job-{second}", "Running benchmark")
        # The process that measures dies: another is started, which finds what it left.
        (runner,) = own.runners()
        os.kill(runner, signal.SIGKILL)
        user.see(f"job-{second}", "interrupted")
        user.click(f"resume-{second}")
        user.see(f"job-{second}", "Running benchmark")
        cancel(http, second)
        user.miss(f"job-{second}")


def test_an_engine_is_installed_only_where_its_licence_is_agreed_to(user: User) -> None:
    user.open("/")
    user.see("engine-row-onnxruntime", "ready")
    user.click("install-deepsparse")
    user.see("licence", "Neural Magic DeepSparse Community License")
    assert not user.can_click("install")
    user.click("agree")
    until(lambda: user.can_click("install"), "agreeing changes nothing")


def test_the_optimization_page_predicts_without_any_profile_and_says_what_it_lacks(
    user: User, own: Server
) -> None:
    chosen(user, "demo:mlp")
    user.click("next")
    user.click("next")
    user.click("performance-switch")
    user.click("loss-switch")
    user.click("complete")
    project_id = user.at("/projects/").split("/")[2]
    user.open(f"/projects/{project_id}/optimization")
    assert "original" in user.read("versions")
    assert user.read("estimated-speedup").endswith("–")
    user.see("estimate-note", "No layer was timed yet")
    # The first and the last layer are not pruned unless the user says so; here there is no other.
    user.see("editor-count", "2 layers, 2 switched on")
    user.see("estimate-note", "only approximated")
    assert user.read("estimated-zeros").split("\n")[1] == "78.8 %"


def _model(digit: str) -> Model:
    return Model("onnx", "nowhere.onnx", "/nowhere.onnx", digit * 64, (), (), 1000, 17, 100)
