"""The virtual environments of engines whose packages cannot live beside ours: made, found, removed."""

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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from inferlab.errors import BadInput, InferlabError
from inferlab.machine import cpu_info
from inferlab.records import Event, Listener, ignore
from inferlab.settings import cache_folder
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
class EnvironmentSpec:
    """What an engine's own environment is made of, and where it can be made."""

    name: str
    version: str
    requirements: tuple[str, ...]
    #: The engine's class in the child, as in Launch.
    reference: Mapping[str, str]
    #: A module that must import, and a name in it: the proof that the packages work here.
    proof: tuple[str, str]
    #: Supported versions of Python, the preferred one first.
    python_versions: tuple[str, ...]
    systems: tuple[str, ...] = ("Linux",)
    machines: tuple[str, ...] = ("x86_64", "aarch64")
    #: What the CPU must have, by the names in /proc/cpuinfo: without it the packages end by SIGILL.
    instruction_sets: tuple[str, ...] = ()
    #: Packages that are installed first, without what they themselves ask for.
    without_dependencies: tuple[str, ...] = ()
    size_bytes: int = 0
    licence: str = ""
    #: What the user agrees to, in a few sentences.
    licence_summary: str = ""

    @property
    def folder(self) -> Path:
        """Where the environment is when it is complete."""
        return _root() / f"{self.name}-{self.version}"


@dataclass(frozen=True, slots=True)
class _Installation:
    """One attempt: what is made, where it is made, who listens, and the lock that is held meanwhile."""

    spec: EnvironmentSpec
    part: Path
    lock: int
    listener: Listener
    lines: list[str] = field(default_factory=list)

    def tell(self, step: str, detail: str = "") -> None:
        self.listener(Event("install", {"name": self.spec.name, "step": step, "detail": detail}))


SPECS: dict[str, EnvironmentSpec] = {
    "deepsparse": EnvironmentSpec(
        name="deepsparse",
        version="1.8.0",
        # 1.9.0 refuses to install. Its own requirements leave NumPy open, but it is built for 1.x.
        requirements=("deepsparse==1.8.0", "numpy<2", "onnx<1.15"),
        reference={"builtin": "deepsparse", "class": "DeepSparse"},
        proof=("deepsparse", "Engine"),
        python_versions=("3.11", "3.10", "3.9", "3.8"),
        size_bytes=500_000_000,
        licence="Neural Magic DeepSparse Community License",
        licence_summary=(
            "DeepSparse is proprietary: it may be used to evaluate it in development and testing, not in "
            "production and not commercially. It reached its end of life in June 2025 and gets no more fixes. "
            "The whole licence: https://github.com/neuralmagic/deepsparse/blob/main/LICENSE"
        ),
    ),
    "executor": EnvironmentSpec(
        name="executor",
        version="1.4.2",
        requirements=("numpy<2", "onnx<1.17", "pyyaml", "schema", "packaging", "tqdm", "py-cpuinfo"),
        reference={"builtin": "executor", "class": "Executor"},
        proof=("intel_extension_for_transformers.neural_engine_py", "Model"),
        python_versions=("3.11", "3.10", "3.9", "3.8"),
        machines=("x86_64",),
        instruction_sets=("avx512f", "avx512bw", "avx512vl", "avx512dq"),
        # What the package asks for (torch, transformers, …) its Neural Engine does not need.
        without_dependencies=("intel-extension-for-transformers==1.4.2",),
        size_bytes=600_000_000,
        licence="Apache License 2.0",
        licence_summary=(
            "The Neural Engine of Intel Extension for Transformers is free software under the Apache License 2.0. "
            "Intel no longer develops it: version 1.4.2 is its last, and it gets no more fixes."
        ),
    ),
}


def spec_of(name: str) -> EnvironmentSpec:
    """The environment of an engine that has one of its own."""
    if name in SPECS:
        return SPECS[name]
    raise BadInput(
        f"Engine '{name}' has no environment of its own to install or remove. "
        f"Those that have: {', '.join(sorted(SPECS))}. See: inferlab engines"
    )


def interpreter_of(name: str) -> Path | None:
    """The interpreter of an engine's complete environment; None where there is none."""
    spec = spec_of(name)
    python = _python_in(spec.folder)
    try:
        made_of = (spec.folder / _MARKER).read_text(encoding="utf-8")
    except OSError:
        return None
    return python if made_of == _recipe(spec) and os.access(python, os.X_OK) else None


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
    base = find_python(spec, python)
    try:
        with _locked(spec, listener) as lock:
            ready = interpreter_of(name)
            if ready and not reinstall:
                return ready  # another process made it while we waited
            return _make(_Installation(spec, _part(spec), lock, listener), base)
    except OSError as error:
        what = "the disk is full" if error.errno == errno.ENOSPC else str(error)
        raise BadInput(f"Engine '{name}' could not be installed in {_root()}: {what}.") from error


def remove(name: str) -> list[Path]:
    """Remove an engine's environments, those of other versions and half-made ones too; returns their folders."""
    spec = spec_of(name)
    with _locked(spec, ignore):
        found = [path for path in sorted(_root().glob(f"*{name}-*")) if _belongs(path, name)]
        if not found:
            raise BadInput(f"Engine '{name}' is not installed, so there is nothing to remove.")
        for folder in found:
            _delete(folder)
        return found


def find_python(spec: EnvironmentSpec, given: str | None = None) -> str:
    """An interpreter that the engine supports: the given one, else ours, else one on the path."""
    if given is not None:
        version, problem = _probe(given)
        if problem:
            raise BadInput(f"{given} cannot make an environment: {problem}.")
        if version not in spec.python_versions:
            raise BadInput(f"{given} is Python {version}, but {spec.name} needs {_versions_text(spec)}.")
        return given
    problems = []
    for candidate in (sys.executable, *(f"python{version}" for version in spec.python_versions)):
        version, problem = _probe(candidate)
        if not problem and version in spec.python_versions:
            return candidate
        if problem and version in spec.python_versions:
            problems.append(f" ({candidate} was found, but {problem})")
    raise BadInput(
        f"Engine '{spec.name}' needs {_versions_text(spec)}, and none was found{''.join(problems)}. "
        f"Give one with: inferlab engines install {spec.name} --python PATH"
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
    free_bytes = shutil.disk_usage(_root()).free
    if free_bytes < spec.size_bytes:
        raise BadInput(
            f"Engine '{spec.name}' needs about {spec.size_bytes / 1e6:.0f} MB in {_root()}, "
            f"and {free_bytes / 1e6:.0f} MB are free."
        )
    try:
        _delete(work.part)  # what an installation that was killed left
        work.tell("making the environment", str(spec.folder))
        _run(work, [base, "-I", "-m", "venv", str(work.part)])
        pip = [str(_python_in(work.part)), "-I", "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
        if spec.without_dependencies:
            _run(work, [*pip, "--no-deps", *spec.without_dependencies])
        _run(work, [*pip, *spec.requirements])
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
        raise BadInput(f"Engine '{work.spec.name}' could not be installed: {_complaint(work.lines, code)}")


def _complaint(lines: list[str], code: int) -> str:
    """What pip said last, its errors if it named any."""
    text = [line for line in lines if line]
    if any("No space left on device" in line for line in text):
        return "the disk is full."
    errors = [line for line in text if line.startswith("ERROR:")]
    said = shorten("\n".join(errors or text[-5:]))
    return f"pip said: {said}" if said else f"pip ended with code {code}."


def _check(work: _Installation) -> None:
    """Start the engine's child in the new environment and really import the engine's package there."""
    spec = work.spec
    start = Launch(spec.name, spec.reference, interpreter=str(_python_in(work.part)), isolated=True)
    try:
        with Worker(start, patience_s=_CHECK_PATIENCE_S) as worker:
            missing = worker.ask("describe", proof=spec.proof).data["missing"]
    except InferlabError as error:
        raise BadInput(f"Engine '{spec.name}' was installed, but does not start here: {error}") from error
    if missing:
        raise BadInput(f"Engine '{spec.name}' was installed without {', '.join(missing)}.")


@contextlib.contextmanager
def _locked(spec: EnvironmentSpec, listener: Listener) -> Iterator[int]:
    """Let one process at a time change an engine's environments; gives the lock's file descriptor."""
    import fcntl

    _root().mkdir(parents=True, exist_ok=True)
    with (_root() / f".{spec.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            listener(
                Event("install", {"name": spec.name, "step": "waiting for another installation", "detail": ""})
            )
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _delete(folder: Path) -> None:
    """Remove a folder, its marker first, so that a half-removed environment never counts as complete."""
    (folder / _MARKER).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def _clean_environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in _STRAY_VARIABLES}
    return {**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}


def _root() -> Path:
    return cache_folder().absolute() / "environments"


def _part(spec: EnvironmentSpec) -> Path:
    return spec.folder.with_name(f".{spec.folder.name}.part")


def _belongs(path: Path, name: str) -> bool:
    """Whether a folder is one of this engine's environments: its name, a dash, a version."""
    return path.is_dir() and re.fullmatch(rf"\.?{re.escape(name)}-\d[^-]*", path.name) is not None


def _python_in(folder: Path) -> Path:
    return folder / "bin" / "python"


def _recipe(spec: EnvironmentSpec) -> str:
    return "\n".join([*spec.without_dependencies, *spec.requirements]) + "\n"


def _versions_text(spec: EnvironmentSpec) -> str:
    newest, oldest = spec.python_versions[0], spec.python_versions[-1]
    return f"Python {newest}" if newest == oldest else f"Python {oldest} to {newest}"
