"""What entries are marked with: what is given, the CI service's variables, or git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from inferlab import benchmark
from inferlab.errors import BadInput
from inferlab.settings import entry_labels
from inferlab.store import open_store


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A repository with one commit on the branch trunk, and that commit."""
    folder = tmp_path_factory.mktemp("repository")
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init", "-q", "-b", "trunk"), ("commit", "-q", "--allow-empty", "-m", "m")):
        subprocess.run(["git", *who, *command], cwd=folder, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return folder, head.stdout.strip()


def test_git_says_the_commit_and_the_branch(repository: tuple[Path, str]) -> None:
    folder, commit = repository
    assert entry_labels((), {}, folder) == (("branch", "trunk"), ("commit", commit))


def test_a_detached_head_has_no_branch(repository: tuple[Path, str], tmp_path: Path) -> None:
    folder, commit = repository
    subprocess.run(["git", "worktree", "add", "-q", "--detach", tmp_path / "work"], cwd=folder, check=True)
    assert entry_labels((), {}, tmp_path / "work") == (("commit", commit),)


def test_outside_of_a_repository_there_are_none(tmp_path: Path) -> None:
    assert entry_labels((), {}, tmp_path) == ()


@pytest.mark.parametrize(
    ("variables", "labels"),
    [
        ({"GITHUB_SHA": "a1", "GITHUB_REF_NAME": "main"}, {"commit": "a1", "branch": "main"}),
        # A fork may call its branch main.
        ({"GITHUB_SHA": "a1", "GITHUB_REF_NAME": "7/merge", "GITHUB_HEAD_REF": "main"},
         {"commit": "a1", "branch": "7/merge"}),
        ({"CI_COMMIT_SHA": "b2", "CI_COMMIT_REF_NAME": "dev"}, {"commit": "b2", "branch": "dev"}),
        ({"CI_COMMIT_SHA": "b2", "CI_COMMIT_REF_NAME": "main", "CI_MERGE_REQUEST_IID": "5"},
         {"commit": "b2", "branch": "merge-requests/5"}),
        ({"GIT_COMMIT": "c3", "GIT_BRANCH": "origin/main"}, {"commit": "c3", "branch": "main"}),
        ({"INFERLAB_LABELS": "", "GITHUB_SHA": "a1"}, {}),
        ({"INFERLAB_LABELS": "rig=left,branch=x"}, {"rig": "left", "branch": "x"}),
        # What no label can be is left out.
        ({"GITHUB_SHA": "a\x1b1", "GITHUB_REF_NAME": "main"}, {"branch": "main"}),
    ],
)  # fmt: skip
def test_variables_of_ci_services_go_before_git(
    variables: dict[str, str], labels: dict[str, str], repository: tuple[Path, str]
) -> None:
    assert dict(entry_labels((), variables, repository[0])) == labels


def test_what_is_given_goes_before_all(repository: tuple[Path, str]) -> None:
    found = dict(entry_labels([("branch", "mine"), ("rig", "left")], {}, repository[0]))
    assert found == {"branch": "mine", "rig": "left", "commit": repository[1]}


def test_a_variable_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(BadInput, match="INFERLAB_LABELS: The label 'branch' is not of the form NAME=VALUE"):
        entry_labels((), {"INFERLAB_LABELS": "branch"})


def test_labels_mark_the_entry_and_are_no_part_of_the_cell(tmp_path: Path) -> None:
    path = str(tmp_path / "lab.db")
    plan = {"engine": "fake", "scenario": "sync", "time": 0.05, "warmup_time": 0.0, "processes": 1}
    for label in ({"branch": "main"}, {"branch": "dev"}):
        benchmark("demo:digits", store=path, label=label, **plan)  # type: ignore[arg-type]
    with open_store(path) as store:
        new, old = store.history()
    assert (new.labels, old.labels) == ({"branch": "dev"}, {"branch": "main"})
    assert new.cells[0].cell_id == old.cells[0].cell_id


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ({"a b": "c"}, "A label's name has up to 40 letters, digits and _ . -, unlike 'a b'."),
        ({"a": "x\ny"}, "The label a is one line of 1 to 200 characters"),
        (["a"], "label is a dictionary of texts"),
    ],
)
def test_labels_that_cannot_be_shown_are_refused(label: object, said: str) -> None:
    with pytest.raises(BadInput, match=said.replace(".", r"\.").replace("|", r"\|")):
        benchmark("demo:digits", store=False, label=label)  # type: ignore[arg-type]
