"""How long `inferlab profile demo:resnet50 --no-loss` takes on each engine, loading and start included."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

_ENGINES = ("onnxruntime", "openvino", "deepsparse")


def main() -> None:
    """Print the seconds of one run on each engine; DeepSparse measures ten levels of pruning besides."""
    inferlab = str(Path(sys.executable).parent / "inferlab")
    for engine in _ENGINES:
        began = time.perf_counter()
        command = [inferlab, "profile", "demo:resnet50", "-e", engine, "--no-loss", "--no-save", "-q"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        print(f"{engine:12} {time.perf_counter() - began:6.1f} s  (aim: at most 25)", flush=True)


if __name__ == "__main__":
    main()
