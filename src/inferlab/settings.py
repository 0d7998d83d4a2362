"""Where inferlab keeps its files and what the user configured: environment first, then the configuration file."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

from inferlab.codec import read_text
from inferlab.errors import BadInput


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
