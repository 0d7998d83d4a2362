"""Make an INT8 copy of a Hugging Face folder, which the engine torch runs in INT8."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from inferlab.errors import BadInput

# What a tokenizer or image processor needs; weights and code are not copied.
_COMPANIONS = ("*.json", "*.txt", "*.model", "*.jinja")
_PATIENCE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Quantized:
    """An INT8 copy that was written, loaded again and compared with the original."""

    path: str
    #: Linear layers and embeddings that became INT8.
    layers: int
    #: The weights' bytes, and those of the original.
    size_bytes: int
    original_bytes: int
    #: The RMS of the outputs' difference over the RMS of the original's outputs, of the worst output.
    error: float


def quantize(folder: str | os.PathLike[str], out_folder: str | os.PathLike[str]) -> Quantized:
    """Write an INT8 copy of a Hugging Face folder: linear layers (dynamic quantisation) and embeddings.

    The copy has safetensors and config.json like the original, and runs on the engine torch.
    """
    from inferlab.model.reading import need_torch, weight_files
    from inferlab.worker import run_task

    source, out = Path(folder), Path(out_folder)
    if not (source / "config.json").is_file():
        raise BadInput(f"{source} has no config.json, so it is not a Hugging Face folder.")
    if not out.absolute().parent.is_dir():
        raise BadInput(
            f"The folder {out.absolute().parent} does not exist. Make it first, or choose another place."
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} is there already and not empty. Choose another folder, or remove it first.")
    weights = weight_files(source)
    # Beside it, so that the last step is a rename and a half-written folder is never seen.
    scratch = Path(tempfile.mkdtemp(prefix=".inferlab-int8-", dir=out.absolute().parent))
    try:
        arguments = {"source": str(source.resolve()), "out": str(scratch)}
        answer = run_task(need_torch(), "quantize", arguments, patience_s=_PATIENCE_S)
        for pattern in _COMPANIONS:
            for file in source.glob(pattern):
                if file.name != "config.json" and not file.name.endswith(".index.json"):
                    shutil.copyfile(file, scratch / file.name)
        scratch.chmod(0o755)
        scratch.replace(out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Quantized(
        path=str(out),
        layers=answer["layers"],
        size_bytes=sum(file.stat().st_size for file in weight_files(out)),
        original_bytes=sum(file.stat().st_size for file in weights),
        error=answer["error"],
    )
