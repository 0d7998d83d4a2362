"""The virtual environments of engines whose packages cannot live beside ours: made, listed, removed.

And the releases of a package that pip can install into one, from the index or folders that it is configured with.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

from inferlab.engines.specs import PYTHON_VERSIONS, SPECS, EnvironmentSpec, root, spec_of
from inferlab.errors import BadInput, InferlabError
from inferlab.machine import cpu_info
from inferlab.records import Event, Listener, engine_name, ignore, is_release
from inferlab.worker import Launch, Worker, shorten

# Written into a complete environment, with what it was made of; without it the folder is rubbish.
_MARKER = "inferlab-complete.txt"
_PROBE_TIMEOUT_S = 30
_CHECK_PATIENCE_S = 120.0
# Variables that would make Python or pip look, or install, outside the new environment.
_STRAY_VARIABLES = (
    "PYTHONHOME",
    "PYTHONPATH",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_PYTHON",
    "__PYVENV_LAUNCHER__",
)
_PIP_STEPS = {
    "Collecting": "collecting",
    "Processing": "collecting",  # from a local folder
    "Downloading": "downloading",
    "Using cached": "taking from the cache",
    "Building wheel": "building",
    "Installing collected packages:": "installing",
}


@dataclass(frozen=True, slots=True)
class _Installation:
    """One attempt: what is made, where it is made, who listens, and the lock that is held meanwhile."""

    spec: EnvironmentSpec
    part: Path
    lock: int
    listener: Listener
    lines: list[str] = field(default_factory=list)

    def tell(self, step: str, detail: str = "") -> None:
        self.listener(Event("install", {"name": self.spec.label, "step": step, "detail": detail}))


def interpreter_of(name: str) -> Path | None:
    """The interpreter of an engine's complete environment; None where there is none."""
    spec = spec_of(name)
    python = _python_in(spec.folder)
    try:
        made_of = (spec.folder / _MARKER).read_text(encoding="utf-8")
    except OSError:
        return None
    return python if made_of == _recipe(spec) and os.access(python, os.X_OK) else None


def launch(spec: EnvironmentSpec, interpreter: Path) -> Launch:
    """How to start a child in an engine's environment."""
    return Launch(spec.label, spec.reference, interpreter=str(interpreter), isolated=True, trusted=spec.trusted)


def why_not_here(name: str) -> str:
    """Why the engine cannot run on this kind of machine; empty if it can."""
    spec = spec_of(name)
    system, machine = platform.system(), platform.machine()
    if system not in spec.systems or machine not in spec.machines:
        places = f"{'/'.join(spec.systems)} ({', '.join(spec.machines)})"
        return f"it runs only on {places}, and this is {system} ({machine})"
    info = cpu_info()
    lacking = [name for name in spec.instruction_sets if name not in info.get("flags", "").split()]
    if not lacking:
        return ""
    name = info.get("model name", "unknown")
    return f"it needs the CPU instructions {', '.join(lacking)}, which this CPU ({name}) does not have"


def refuse_elsewhere(name: str) -> None:
    """Refuse to install an engine that could not run here."""
    if reason := why_not_here(name):
        raise BadInput(f"Engine '{name}' cannot be installed: {reason}.")


def install(name: str, python: str | None = None, listener: Listener = ignore, reinstall: bool = False) -> Path:
    """Make an engine's environment and return its interpreter; one that is complete is left as it is.

    It is made in a folder beside its place and renamed when it works, so that an interrupted or failed
    installation changes nothing.
    """
    spec = spec_of(name)
    refuse_elsewhere(name)
    ready = interpreter_of(name)
    if ready and not reinstall:
        return ready
    base = find_python(_with_wheels(spec, python), python)
    try:
        with _locked(spec.name, spec.label, listener) as lock:
            ready = interpreter_of(name)
            if ready and not reinstall:
                return ready  # another process made it while we waited
            return _make(_Installation(spec, _part(spec), lock, listener), base)
    except OSError as error:
        what = "the disk is full" if error.errno == errno.ENOSPC else str(error)
        raise BadInput(f"Engine '{name}' could not be installed in {root()}: {what}.") from error


def _with_wheels(spec: EnvironmentSpec, python: str | None) -> EnvironmentSpec:
    """A release's environment, on those Pythons alone that it has wheels for."""
    if not spec.package:
        return spec

    preferred = _probe(python)[0] if python else ""
    preferred = preferred or f"{sys.version_info.major}.{sys.version_info.minor}"
    return replace(spec, python_versions=pythons_with(spec, preferred))


@dataclass(frozen=True, slots=True)
class InstalledEnvironment:
    """An environment that is complete."""

    engine: str
    folder: Path
    size_bytes: int
    #: In seconds since 1970.
    last_used: float


def installed() -> list[InstalledEnvironment]:
    """All environments that are complete, with their sizes, releases of engines among them."""
    complete = [(label, spec_of(label).folder) for label in installed_engines()]
    return [
        InstalledEnvironment(label, folder, _size_bytes(folder), (folder / _MARKER).stat().st_mtime)
        for label, folder in complete
    ]


def installed_engines() -> list[str]:
    """The engines whose environments are complete, releases as NAME==VERSION."""
    folders = sorted(path.name for path in root().glob("*-*") if (path / _MARKER).exists())
    releases = [f"{name}=={version}" for name, _, version in (folder.rpartition("-") for folder in folders)]
    return [label for label in (*SPECS, *releases) if _is_complete(label)]


def _is_complete(label: str) -> bool:
    try:
        return interpreter_of(label) is not None
    except BadInput:  # a plug-in that is gone, or an older version of an engine that has one
        return False


def remove(name: str) -> list[Path]:
    """Remove an engine's environments, all versions and half-made ones, or a release's; returns their folders."""
    if not _folders_of(name):
        spec_of(name)  # it says which engines have one
        raise BadInput(f"Engine '{name}' is not installed, so there is nothing to remove.")
    with _locked(engine_name(name), name, ignore):
        folders = _folders_of(name)
        for folder in folders:
            _delete(folder)
        return folders


def find_python(spec: EnvironmentSpec, path: str | None = None) -> str:
    """An interpreter that the engine supports: the given one, else ours, else one on the path."""
    if path is not None:
        version, problem = _probe(path)
        if problem:
            raise BadInput(f"{path} cannot make an environment: {problem}.")
        if version not in spec.python_versions:
            raise BadInput(f"{path} is Python {version}, but {spec.label} needs {_versions_text(spec)}.")
        return path
    problems = []
    for candidate in (sys.executable, *(f"python{version}" for version in spec.python_versions)):
        version, problem = _probe(candidate)
        if not problem and version in spec.python_versions:
            return candidate
        if problem and version in spec.python_versions:
            problems.append(f" ({candidate} was found, but {problem})")
    raise BadInput(
        f"Engine '{spec.label}' needs {_versions_text(spec)}, and none was found{''.join(problems)}. "
        f"Give one with: inferlab engines install {spec.label} --python PATH"
    )


def _probe(python: str) -> tuple[str, str]:
    """An interpreter's version, and why it cannot make environments; run, because a shim may exist and fail."""
    code = "import sys; print('%d.%d' % sys.version_info[:2], flush=True); import venv, ensurepip"
    try:
        done = subprocess.run(
            [python, "-I", "-c", code],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            env=_clean_environment(),
        )
    except subprocess.TimeoutExpired:
        return "", f"it did not answer in {_PROBE_TIMEOUT_S} s"
    except OSError as error:
        return "", f"it does not run ({error.strerror})"
    version = done.stdout.strip()
    if done.returncode == 0 and re.fullmatch(r"\d+\.\d+", version):
        return version, ""
    if version and "No module named" in done.stderr:
        return version, "it lacks venv or ensurepip (on Debian and Ubuntu: the package python3-venv)"
    return "", f"it does not run ({shorten(done.stderr, 200) or f'exit code {done.returncode}'})"


def _make(work: _Installation, base: str) -> Path:
    spec = work.spec
    free_bytes = shutil.disk_usage(root()).free
    if free_bytes < spec.size_bytes:
        raise BadInput(
            f"Engine '{spec.label}' needs about {spec.size_bytes / 1e6:.0f} MB in {root()}, "
            f"and {free_bytes / 1e6:.0f} MB are free."
        )
    try:
        _delete(work.part)  # what an installation that was killed left
        work.tell("making the environment", str(spec.folder))
        _run(work, [base, "-I", "-m", "venv", str(work.part)])
        pip = [str(_python_in(work.part)), "-I", "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
        if spec.without_dependencies:
            _run(work, [*pip, "--no-deps", *spec.without_dependencies])
        _run(work, [*pip, *(["--only-binary", spec.package] if spec.package else []), *spec.requirements])
        work.tell("checking")
        _check(work)
        (work.part / _MARKER).write_text(_recipe(spec), encoding="utf-8")
        _delete(spec.folder)
        work.part.rename(spec.folder)
    except BaseException:
        _delete(work.part)
        raise
    work.tell("done", str(spec.folder))
    return _python_in(spec.folder)


def _run(work: _Installation, command: list[str]) -> None:
    """Run a step to its end, telling its progress; it keeps the lock, even if we are killed meanwhile."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=_clean_environment(),
        start_new_session=True,
        pass_fds=[work.lock],
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            work.lines.append(line.strip())
            for start, step in _PIP_STEPS.items():
                if work.lines[-1].startswith(start):
                    work.tell(step, work.lines[-1].removeprefix(start).strip())
        code = process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    finally:
        process.stdout.close()
    if code != 0:
        raise BadInput(f"Engine '{work.spec.label}' could not be installed: {_complaint(work.lines, code)}")


def _complaint(lines: list[str], code: int) -> str:
    """What pip said last, its errors if it named any."""
    text = [line for line in lines if line]
    if any("No space left on device" in line for line in text):
        return "the disk is full."
    errors = [line for line in text if line.startswith("ERROR:")]
    complaint = shorten("\n".join(errors or text[-5:]))
    return f"pip said: {complaint}" if complaint else f"pip ended with code {code}."


def _check(work: _Installation) -> None:
    """Start the engine's child in the new environment and really import the engine's package there."""
    spec = work.spec
    try:
        with Worker(launch(spec, _python_in(work.part)), patience_s=_CHECK_PATIENCE_S) as worker:
            missing = worker.ask("describe", proof=spec.proof).data["missing"]
    except InferlabError as error:
        raise BadInput(f"Engine '{spec.label}' was installed, but does not start here: {error}") from error
    if missing:
        raise BadInput(f"Engine '{spec.label}' was installed without {', '.join(missing)}.")


@contextlib.contextmanager
def _locked(name: str, label: str, listener: Listener) -> Iterator[int]:
    """Let one process at a time change an engine's environments; gives the lock's file descriptor."""
    import fcntl

    root().mkdir(parents=True, exist_ok=True)
    with (root() / f".{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            listener(Event("install", {"name": label, "step": "waiting for another installation", "detail": ""}))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _delete(folder: Path) -> None:
    """Remove a folder, its marker first, so that a half-removed environment never counts as complete."""
    (folder / _MARKER).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def _clean_environment() -> dict[str, str]:
    kept_variables = {key: value for key, value in os.environ.items() if key not in _STRAY_VARIABLES}
    return {**kept_variables, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}


def _part(spec: EnvironmentSpec) -> Path:
    return spec.folder.with_name(f".{spec.folder.name}.part")


def _folders_of(name: str) -> list[Path]:
    """The environments of an engine, or of one of its releases, half-made ones too: a name, a dash, a version."""
    version = re.escape(spec_of(name).version) + r"(\.part)?" if is_release(name) else r"\d[^-]*"
    pattern = re.compile(rf"\.?{re.escape(engine_name(name))}-{version}")
    folders = root().iterdir() if root().is_dir() else ()
    return sorted(path for path in folders if path.is_dir() and pattern.fullmatch(path.name))


def _size_bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def note_use(name: str) -> None:
    """Remember that an environment is used now, so that pruning leaves it."""
    with contextlib.suppress(OSError):
        os.utime(spec_of(name).folder / _MARKER)


def unused_for(days: float) -> list[InstalledEnvironment]:
    """The releases that nobody used for so many days."""
    now = time.time()
    return [
        environment
        for environment in installed()
        if is_release(environment.engine) and now - environment.last_used >= days * 86400
    ]


def _python_in(folder: Path) -> Path:
    return folder / "bin" / "python"


def _recipe(spec: EnvironmentSpec) -> str:
    return "\n".join([*spec.without_dependencies, *spec.requirements]) + "\n"


def _versions_text(spec: EnvironmentSpec) -> str:
    newest, oldest = spec.python_versions[0], spec.python_versions[-1]
    return f"Python {newest}" if newest == oldest else f"Python {oldest} to {newest}"


# What pip can install.

_TIMEOUT_S = 120
_NEWEST_SHOWN = 3
_OFFLINE = re.compile(r"connection broken|Could not fetch URL|ConnectionError|timed out", re.I)
_AVAILABLE = re.compile(r"^Available versions:(.*)$", re.M)


def releases(package: str) -> tuple[str, ...]:
    """The final releases of a package with wheels for this machine and our Python, oldest first."""
    listed, reached = _listed(package)
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


def _listed(package: str, python_version: str = "") -> tuple[tuple[Version, ...], bool]:
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
