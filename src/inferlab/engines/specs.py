"""What the environments of engines are made of, those of releases that are named as NAME==VERSION among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.version import InvalidVersion, Version

from inferlab.errors import BadInput
from inferlab.records import engine_name, is_release
from inferlab.settings import cache_folder

#: The entry points of engines that come with other packages.
GROUP = "inferlab.engines"
#: The class of each engine that comes with inferlab, in the child's module of the same name (with _ for -).
BUILTIN = {
    "onnxruntime": "OnnxRuntime",
    "openvino": "OpenVino",
    "torch": "Torch",
    "mnn": "Mnn",
    "llamacpp": "LlamaCpp",
    "openvino-genai": "OpenVinoGenai",
    "onnxruntime-genai": "OnnxRuntimeGenai",
    "deepsparse": "DeepSparse",
    "executor": "Executor",
    "fake": "Fake",
}
#: Pythons that the child runs on, the newest first.
PYTHON_VERSIONS = ("3.14", "3.13", "3.12", "3.11", "3.10", "3.9", "3.8")


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
    #: The distribution of a release that was named as NAME==VERSION; empty for engines of one version.
    package: str = ""
    #: A program of the user's own, as in Launch.
    trusted: bool = False

    @property
    def label(self) -> str:
        """The engine as the user names it."""
        return f"{self.name}=={self.version}" if self.package else self.name

    @property
    def folder(self) -> Path:
        """Where the environment is when it is complete."""
        return root() / f"{self.name}-{self.version}"


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


@dataclass(frozen=True, slots=True)
class _Package:
    """An engine of ours whose releases can be installed side by side."""

    name: str
    proof: tuple[str, str]
    size_bytes: int
    #: Releases before this one are built for NumPy 1, whatever they ask for.
    numpy_2_since: str = "0"


_PACKAGES = {
    "onnxruntime": _Package("onnxruntime", ("onnxruntime", "InferenceSession"), 300_000_000, "1.19"),
    "openvino": _Package("openvino", ("openvino", "Core"), 400_000_000),
    "torch": _Package("torch", ("torch", "Tensor"), 1_500_000_000, "2.3"),
    "mnn": _Package("MNN", ("MNN.nn", "load_module_from_file"), 200_000_000, "3.0"),
}
_PLUGIN_BYTES = 100_000_000


def spec_of(name: str) -> EnvironmentSpec:
    """The environment of an engine that has one of its own, or of a release such as onnxruntime==1.22.1."""
    if name in SPECS:
        return SPECS[name]
    if "==" in name:
        return _release_spec(name)
    raise BadInput(
        f"Engine '{name}' has no environment of its own to install or remove. "
        f"Those that have: {', '.join(sorted(SPECS))}, and releases such as onnxruntime==1.22.1. "
        "See: inferlab engines"
    )


def has_environment(name: str) -> bool:
    """Whether an engine lives in an environment of its own, there or not."""
    return name in SPECS or is_release(name)


def _release_spec(label: str) -> EnvironmentSpec:
    name, version = engine_name(label), label.partition("==")[2]
    try:
        parsed = Version(version)
    except InvalidVersion:
        parsed = None
    if parsed is None or version != version.strip():
        raise BadInput(f"Engine '{label}' names no version. Write it as {name.strip() or 'NAME'}==1.22.1.")
    if name in _PACKAGES:
        package = _PACKAGES[name]
        old = parsed < Version(package.numpy_2_since)
        return EnvironmentSpec(
            name,
            version,
            (f"{package.name}=={version}", "numpy<2" if old else "numpy"),
            {"builtin": name, "class": BUILTIN[name]},
            package.proof,
            PYTHON_VERSIONS,
            systems=("Linux", "Darwin"),
            machines=("x86_64", "aarch64", "arm64"),
            size_bytes=package.size_bytes,
            package=package.name,
        )
    point = plugins().get(name)
    if point is None or point.dist is None:
        names = ", ".join([*_PACKAGES, *plugins()])
        raise BadInput(f"Engine '{label}': versions can be chosen of {names}, not of '{name}'.")
    reference = plugin_reference(point)
    return EnvironmentSpec(
        name,
        version,
        (f"{point.dist.name}=={version}", "numpy"),
        reference,
        (reference["module"], reference["class"]),
        PYTHON_VERSIONS,
        size_bytes=_PLUGIN_BYTES,
        package=point.dist.name,
        trusted=True,
    )


def plugins() -> dict[str, metadata.EntryPoint]:
    """The engines of installed plug-ins by name; our own names are not theirs to take."""
    points: dict[str, metadata.EntryPoint] = {}
    for point in sorted(metadata.entry_points(group=GROUP), key=lambda point: point.name):
        if point.name not in BUILTIN and point.name not in SPECS:
            points.setdefault(point.name, point)
    return points


def plugin_reference(point: metadata.EntryPoint) -> dict[str, str]:
    """Where the class of a plug-in's engine is, as in Launch."""
    module, _, kind = point.value.partition(":")
    module, kind = module.strip(), kind.strip()
    if not all(part.isidentifier() for part in module.split(".")) or not kind.isidentifier():
        raise BadInput(
            f"Engine '{point.name}': its entry point is '{point.value}', which is not package.module:ClassName."
        )
    return {"module": module, "class": kind}


def root() -> Path:
    """The folder of all environments."""
    return cache_folder().absolute() / "environments"
