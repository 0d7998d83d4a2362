"""ResNet-50 and a BERT on every engine: the sync median over that of a bare loop of the same engine."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import side_by_side as side
from inferlab.engines import registry
from inferlab.errors import BadInput

MODELS = ("demo:resnet50", "demo:bert_3layer")
ENGINES = ("onnxruntime", "openvino", "deepsparse")


def main(rounds: int = 9) -> None:
    """Compare with one thread on one core and with two on two, where the machine has them."""
    for model in MODELS:
        for engine in ENGINES:
            try:
                compare(model, engine, rounds)
            except BadInput as error:
                print(f"{model} on {engine}: {error}")


def compare(source: str, engine: str, rounds: int) -> None:
    """Measure one model on one engine, with 1 and 2 cores."""
    interpreter = registry.launch(engine).interpreter
    for cores in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            model, inputs = side.inputs_file(source, Path(folder))
            copy = Path(folder) / "model.onnx"

            def bare(model: Path = model, inputs: Path = inputs, copy: Path = copy, cores: int = cores) -> float:
                shutil.copyfile(model, copy)
                call = "iobinding" if engine == "onnxruntime" else "run"
                request: dict[str, Any] = {
                    "engine": engine,
                    "call": call,
                    "cpus": list(range(cores)),
                    "threads": cores,
                    "time_s": 2,
                }
                return side.bare(interpreter, model=str(copy), inputs=str(inputs), **request)["median_ms"]

            def ours(cores: int = cores) -> float:
                result = side.inferlab(source, "-e", engine, "-s", "sync", "-ncores", str(cores), time_s=2)
                return float(result["benchmark_result"]["median"])

            name = f"{source}, {engine}, {cores} core{'s' if cores > 1 else ''}, inferlab / bare loop"
            side.report(name, side.ratios(ours, bare, rounds), "0.97 to 1.03")


if __name__ == "__main__":
    main()
