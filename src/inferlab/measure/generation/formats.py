"""What an engine loads of a model that generates: the model, its weights in 32 bits, or a conversion of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from inferlab.engines import registry
from inferlab.measure.conversion import Conversion, converted
from inferlab.measure.generation.reference import GenerationJob, dequantized
from inferlab.measure.generation.weights import REFERENCE, is_converted, is_unpacked, runs_torch_weights
from inferlab.records import Listener

# The engine's options that decide what is written; others only how it is loaded.
_CONVERSION_OPTIONS = ("weights",)


@contextmanager
def engine_files(job: GenerationJob, listener: Listener) -> Iterator[tuple[Path, str]]:
    """The file or folder that the engine gets, and its kind; what is made for it is made once and cached."""
    cell, model = job.cell, job.model
    path, kind = Path(model.path), str(model.kind)
    with ExitStack() as stack:
        if runs_torch_weights(cell, model):
            kind = "transformers"
        if is_unpacked(cell, model):
            path, kind = stack.enter_context(dequantized(job, listener)), "transformers"
        if is_converted(cell, model):
            path, kind = stack.enter_context(_own_format(job, path, listener)), cell.engine
        yield path, kind


@contextmanager
def _own_format(job: GenerationJob, folder: Path, listener: Listener) -> Iterator[Path]:
    """The folder in the engine's own format that its child makes of a Hugging Face folder."""
    launch = registry.launch_generator(job.cell.engine)
    options: Mapping[str, str] = {
        key: value for key, value in job.cell.engine_options if key in _CONVERSION_OPTIONS
    }
    wanted = Conversion(
        launch=launch,
        source=folder,
        options=options,
        # Its transformers reads the folder.
        identity=[
            "generation",
            job.model.digest,
            registry.stamp(launch),
            registry.stamp(registry.launch_generator(REFERENCE)),
        ],
        conditions=[],
        patience_s=job.patience_s,
    )
    with converted(wanted, lambda file: 0.0, listener) as file:
        yield file.path.parent
