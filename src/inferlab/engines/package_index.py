"""Which releases of a package pip can install as wheels, from the index or folders that it is configured with."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from packaging.version import InvalidVersion, Version

from inferlab.engines.specs import PYTHON_VERSIONS, EnvironmentSpec
from inferlab.errors import BadInput
from inferlab.worker import shorten

_TIMEOUT_S = 120
_NEWEST_SHOWN = 3
_OFFLINE = re.compile(r"connection broken|Could not fetch URL|ConnectionError|timed out", re.I)
_AVAILABLE = re.compile(r"^Available versions:(.*)$", re.M)


def releases(package: str, python_version: str = "") -> tuple[str, ...]:
    """The final releases of a package with wheels for this machine and a Python, by default ours, oldest first."""
    listed, reached = _listed(package, python_version)
    if not listed and not reached:
        raise _unreachable(package)
    return tuple(str(version) for version in listed if not version.is_prerelease)


def pythons_with(spec: EnvironmentSpec, preferred: str) -> tuple[str, ...]:
    """The Pythons that have a wheel of a release: the preferred one alone where it has; refuses where none has."""
    listed, reached = _listed(spec.package, preferred)
    wanted_version = Version(spec.version)
    if wanted_version in listed:
        return (preferred,)
    if not listed and not reached:
        raise _unreachable(spec.package)
    others = [version for version in PYTHON_VERSIONS if version != preferred]
    with ThreadPoolExecutor() as pool:
        lists = list(pool.map(lambda version: _listed(spec.package, version), others))
    able = tuple(version for version, (there, _) in zip(others, lists, strict=True) if wanted_version in there)
    if able:
        return able
    if not reached or not all(answered for _, answered in lists):
        raise _unreachable(spec.package)
    newest = ", ".join(map(str, reversed(listed[-_NEWEST_SHOWN:])))
    hint = f"the newest are {newest}" if newest else f"Python {preferred} has none of {spec.package}"
    raise BadInput(
        f"Engine '{spec.label}' cannot be installed: there is no release {spec.version} of {spec.package} with a "
        f"wheel for this kind of machine; {hint}."
    )


def _listed(package: str, python_version: str) -> tuple[tuple[Version, ...], bool]:
    """The versions that pip lists, oldest first, and whether every place that it looked in answered."""
    command = [sys.executable, "-m", "pip", "index", "versions", package, "--pre", "--only-binary=:all:",
               "--retries", "1", "--disable-pip-version-check", "--no-input"]  # fmt: skip
    if python_version:
        command += ["--python-version", python_version]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return (), False
    if "No module named pip" in done.stderr:
        raise BadInput("Releases of engines are found with pip, which is missing here: python -m ensurepip")
    matched = _AVAILABLE.search(done.stdout)
    if matched is None and "No matching distribution" not in done.stderr and not _OFFLINE.search(done.stderr):
        raise BadInput(f"pip could not list the releases of {package}: {shorten(done.stderr, 300)}")
    names = [name.strip() for name in matched[1].split(",")] if matched else []
    return tuple(sorted(filter(None, map(_version, names)))), not _OFFLINE.search(done.stderr)


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _unreachable(package: str) -> BadInput:
    return BadInput(
        f"The package index did not answer, so that the releases of {package} are unknown. "
        "Try again when the network is there, or give pip a folder of wheels: PIP_FIND_LINKS=FOLDER"
    )
