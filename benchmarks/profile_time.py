"""How long `inferlab profile demo:resnet50` takes to its estimate, and without losses on each engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_ENGINES = ("onnxruntime", "openvino", "deepsparse")
_PROFILE = [str(Path(sys.executable).parent / "inferlab"), "profile", "demo:resnet50", "--no-save"]


def main(*engines: str) -> None:
    """Print the seconds to the estimate of the default profile, then of one run on each engine, or on those named.

    Loading and start are included; DeepSparse measures ten levels of pruning besides.
    """
    print(f"{'to the estimate':16} {to_the_estimate():6.1f} s  (aim: at most 40)", flush=True)
    for engine in engines or _ENGINES:
        began = time.perf_counter()
        subprocess.run([*_PROFILE, "-e", engine, "--no-loss", "-q"], check=True, stdout=subprocess.DEVNULL)
        print(f"{engine:16} {time.perf_counter() - began:6.1f} s", flush=True)


def to_the_estimate() -> float:
    """The seconds until the default profile tells its estimate; it is interrupted then."""
    began = time.perf_counter()
    with subprocess.Popen(
        _PROFILE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "Estimated:" in line:
                seconds = time.perf_counter() - began
                process.send_signal(signal.SIGINT)
                process.communicate()
                return seconds
    raise SystemExit("the profile ended without an estimate")


if __name__ == "__main__":
    main(*sys.argv[1:])
