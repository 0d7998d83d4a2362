"""What entries are marked with where nobody says: the commit and the branch, of the CI service or of git."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from inferlab.errors import BadInput
from inferlab.options.plan import LABELS

#: Names that series and gates know.
COMMIT, BRANCH = "commit", "branch"
#: Labels in place of those that are found here, as commit=abc,branch=main; empty for none.
VARIABLE = "INFERLAB_LABELS"
# Of GitHub, GitLab, Jenkins, CircleCI, Buildkite, Azure, Bitbucket, Travis and Drone. A fork may call its branch
# main, too: on GitHub none of these is the source branch of a pull request.
_COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT", "CIRCLE_SHA1", "BUILDKITE_COMMIT", "BUILD_SOURCEVERSION",
             "BITBUCKET_COMMIT", "TRAVIS_COMMIT", "DRONE_COMMIT_SHA")  # fmt: skip
_BRANCHES = ("GITHUB_REF_NAME", "CI_COMMIT_REF_NAME", "BRANCH_NAME", "GIT_BRANCH", "CIRCLE_BRANCH",
              "BUILDKITE_BRANCH", "BUILD_SOURCEBRANCHNAME", "BITBUCKET_BRANCH", "TRAVIS_BRANCH",
              "DRONE_BRANCH")  # fmt: skip
# On GitLab, the number of the merge request that the pipeline is for.
_MERGE_REQUEST = "CI_MERGE_REQUEST_IID"
_GIT_S = 2.0
# A detached HEAD has no branch.
_DETACHED = "HEAD"


def entry_labels(
    given: Sequence[tuple[str, str]] = (), environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> tuple[tuple[str, str], ...]:
    """What an entry is marked with: what is given, and of the rest what the CI service or git says."""
    known = os.environ if environment is None else environment
    found = _named(known[VARIABLE]) if VARIABLE in known else _of_ci(known) or _of_git(folder)
    kind = LABELS["label"].kind
    kept: dict[str, str] = {}
    for name, value in found.items():
        try:
            kind.limited("", (name, value))
        except BadInput:
            continue  # a branch may be called whatever git allows
        kept[name] = value
    return tuple(sorted({**kept, **dict(given)}.items()))


def _named(text: str) -> dict[str, str]:
    option = LABELS["label"]
    try:
        return dict(option.read([part for part in text.split(",") if part.strip()]))
    except ValueError as error:
        raise BadInput(f"{VARIABLE}: {error}") from None


def _of_ci(environment: Mapping[str, str]) -> dict[str, str]:
    commit = next((environment[name] for name in _COMMITS if environment.get(name)), "")
    branch = next((environment[name] for name in _BRANCHES if environment.get(name)), "")
    if number := environment.get(_MERGE_REQUEST):
        branch = f"merge-requests/{number}"
    branch = branch.removeprefix("refs/heads/").removeprefix("origin/")
    return {name: text for name, text in ((COMMIT, commit), (BRANCH, branch)) if text}


def _of_git(folder: Path | None) -> dict[str, str]:
    """Of the folder's repository; nothing where it is none, or git is not there."""
    command = ["git", "rev-parse", "HEAD", "--abbrev-ref", "HEAD"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_GIT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return {}
    lines = done.stdout.split()
    if done.returncode or len(lines) != 2:
        return {}
    commit, branch = lines
    return {COMMIT: commit, **({} if branch == _DETACHED else {BRANCH: branch})}
