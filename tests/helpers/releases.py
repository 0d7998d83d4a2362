"""A plug-in engine with several releases, as wheels in a folder, and a quick way to install them from there."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

NAME, PACKAGE = "tempo", "tempo-engine"
# It sleeps instead of computing: on a busy machine too it gets the CPU as soon as its time is over, while one that
# waits for a deadline on the CPU loses it to others for as long as they like.
_MODULE = '''
import time
import numpy

LAYERS_US = {layers_us}
KERNELS = {kernels}
FACTOR = {factor}
BALLAST = bytearray({ballast_bytes})
LOAD_S = {load_s}


class Tempo:
    """Computes 4x in two layers, each of which takes its time."""

    packages = ("tempo-engine",)
    kinds = ("onnx",)
    capabilities = ("layer_times",)

    def load(self, model, options):
        time.sleep(LOAD_S)
        self._ballast = bytearray(BALLAST)
        return {{}}

    def bind(self, inputs, stream=0):
        (x,) = inputs.values()
        duration_s = sum(LAYERS_US) / 1e6

        def call():
            time.sleep(duration_s)
            return [numpy.float32(FACTOR) * x]

        return call

    def layer_times(self, inputs, seconds, imposed_sparsity=None):
        layers = [
            {{"name": name, "type": "MatMul", "kernel": kernel, "covers": [name], "fallback": False,
              "ns": 1000.0 * layer_us}}
            for name, kernel, layer_us in zip(("h", "y"), KERNELS, LAYERS_US)
        ]
        return {{"layers": layers, "wall_ns": 1000.0 * sum(LAYERS_US), "iterations": 10, "unnamed": "before"}}
'''
_METADATA = "Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
_ENTRY_POINTS = "[inferlab.engines]\ntempo = tempo_engine:Tempo\n"


def save_wheel(
    folder: Path,
    version: str,
    layers_us: tuple[float, float] = (500.0, 500.0),
    kernels: tuple[str, str] = ("gemm_a", "gemm_a"),
    factor: float = 4.0,
    ballast_bytes: int = 0,
    load_s: float = 0.0,
    tag: str = "py3-none-any",
) -> None:
    """Write one release of the engine as a wheel."""
    info = f"tempo_engine-{version}.dist-info"
    module = _MODULE.format(
        layers_us=layers_us, kernels=kernels, factor=factor, ballast_bytes=ballast_bytes, load_s=load_s
    )
    files = {
        "tempo_engine.py": module,
        f"{info}/METADATA": _METADATA.format(package=PACKAGE, version=version),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/entry_points.txt": _ENTRY_POINTS,
    }
    record = (
        "".join(f"{name},sha256={_digest(text)},{len(text.encode())}\n" for name, text in files.items())
        + f"{info}/RECORD,,\n"
    )
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"tempo_engine-{version}-{tag}.whl", "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, text)


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def save_two_layers(path: Path) -> Path:
    """y = 4x, in two layers whose outputs are h and y."""
    double = numpy_helper.from_array(2 * np.eye(4, dtype=np.float32), "W")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "W"], ["h"]), helper.make_node("MatMul", ["h", "W"], ["y"])],
        "two_layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [double],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@contextmanager
def local_releases(folder: Path) -> Iterator[Path]:
    """Inside it the plug-in is installed here, pip takes wheels from a folder alone, and the cache is a new one.

    Gives the folder of wheels. Environments are copies of one that has our NumPy: making them takes seconds each.
    """
    wheels, site = folder / "wheels", folder / "site"
    save_wheel(wheels, "1.0")
    with zipfile.ZipFile(wheels / "tempo_engine-1.0-py3-none-any.whl") as wheel:
        wheel.extractall(site)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", quick_python(folder / "quick", "numpy"))
        patch.syspath_prepend(str(site))
        patch.setenv("INFERLAB_CACHE", str(folder / "cache"))
        patch.setenv("PIP_CONFIG_FILE", "/dev/null")
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(wheels))
        yield wheels


def quick_python(folder: Path, *packages: str) -> str:
    """Our interpreter, but that it makes environments by copying one: our pip, which is as good as one that takes
    seconds to install, and links to further packages.
    """
    subprocess.run([sys.executable, "-I", "-m", "venv", "--without-pip", folder / "made"], check=True)
    ours, theirs = Path(sysconfig.get_path("purelib")), next((folder / "made").glob("lib/python*/site-packages"))
    for path in (*ours.glob("pip-*.dist-info"), ours / "pip"):
        shutil.copytree(path, theirs / path.name)
    for package in packages:
        for path in (*ours.glob(f"{package}-*.dist-info"), ours / package, ours / f"{package}.libs"):
            if path.exists():
                (theirs / path.name).symlink_to(path)
    shutil.rmtree(folder / "made" / "share", ignore_errors=True)
    python = folder / "python"
    copy, run = f'cp -a {folder / "made"} "$4"', f'exec {sys.executable} "$@"'
    python.write_text(f'#!/bin/sh\ncase "$*" in "-I -m venv "*) {copy};; *) {run};; esac\n')
    python.chmod(0o755)
    return str(python)
