"""What the user and the surroundings configured: where files lie, limits, and the labels of what is measured.

The environment goes first, then the configuration file.
"""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inferlab.codec import read_text
from inferlab.errors import BadInput
from inferlab.options.plan import LABELS


def cache_folder() -> Path:
    """The folder for what can be made again: demo models, downloads, references, engine environments."""
    return _named("INFERLAB_CACHE") or _home("XDG_CACHE_HOME", ".cache")


def models_folder() -> Path:
    """The folder for models that were uploaded, which cannot be made again."""
    return _named("INFERLAB_MODELS") or _data_folder() / "models"


def versions_folder() -> Path:
    """The folder for versions of models that were made from the pages, one folder each."""
    return _data_folder() / "versions"


def token_file() -> Path:
    """The file with the token that the web page of this user asks for."""
    return _data_folder() / "token"


def config_file() -> Path:
    """The user's configuration file, whether or not it exists."""
    return _named("INFERLAB_CONFIG") or _home("XDG_CONFIG_HOME", ".config") / "config.toml"


def store_file() -> Path:
    """The file of the user's own store."""
    return _data_folder() / "lab.db"


def _data_folder() -> Path:
    return _home("XDG_DATA_HOME", ".local/share")


def _named(variable: str) -> Path | None:
    return Path(os.environ[variable]) if os.environ.get(variable) else None


def _home(variable: str, usual: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / usual) / "inferlab"


#: `off` leaves engines and readers of models unconfined.
CONFINEMENT = "INFERLAB_CONFINEMENT"
#: Set by `inferlab serve` for itself and its processes: what may be downloaded for those who ask over HTTP.
MOST_DOWNLOAD_BYTES = "INFERLAB_MAX_DOWNLOAD"
LONGEST_DOWNLOAD_S = "INFERLAB_DOWNLOAD_TIMEOUT"
PUBLIC_DOWNLOADS = "INFERLAB_PUBLIC_DOWNLOADS"


@dataclass(frozen=True, slots=True)
class DownloadLimits:
    """What a download may take; None: as much as it takes."""

    most_bytes: int | None = None
    longest_s: float | None = None
    #: Refuse addresses of this machine and of private networks.
    public_only: bool = False


def download_limits() -> DownloadLimits:
    """What downloads of this process are held to: nothing, for the user of the command line names them himself."""
    most, longest = os.environ.get(MOST_DOWNLOAD_BYTES), os.environ.get(LONGEST_DOWNLOAD_S)
    try:
        return DownloadLimits(
            None if not most else int(most),
            None if not longest else float(longest),
            os.environ.get(PUBLIC_DOWNLOADS, "") not in ("", "0"),
        )
    except ValueError as error:
        raise BadInput(
            f"{MOST_DOWNLOAD_BYTES} and {LONGEST_DOWNLOAD_S} must be numbers of bytes and of seconds."
        ) from error


def zoo_mirror() -> str | None:
    """The folder or URL that stands in for SparseZoo: `INFERLAB_ZOO`, else `zoo_mirror` in the configuration."""
    value = os.environ.get("INFERLAB_ZOO") or _configured().get("zoo_mirror")
    return None if value is None else str(value)


def offers_fake_engine() -> bool:
    """Whether the scripted engine is listed and offered with the others: tests and demonstrations set it."""
    return bool(os.environ.get("INFERLAB_FAKE_ENGINE"))


def _configured() -> dict[str, object]:
    path = config_file()
    try:
        return tomllib.loads(read_text(path, 1 << 20))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(
            f"The configuration file {path} cannot be read: {error}. Correct it or remove it."
        ) from error


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
    found = _in_variable(known[VARIABLE]) if VARIABLE in known else _of_ci(known) or _of_git(folder)
    kind = LABELS["label"].kind
    kept: dict[str, str] = {}
    for name, value in found.items():
        try:
            kind.limited("", (name, value))
        except BadInput:
            continue  # a branch may be called whatever git allows
        kept[name] = value
    return tuple(sorted({**kept, **dict(given)}.items()))


def _in_variable(text: str) -> dict[str, str]:
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
