"""How a model is deployed as it was measured: where its streams run, and what its engine says of its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from inferlab import machine
from inferlab.engines import registry
from inferlab.errors import InferlabError
from inferlab.measure import streams
from inferlab.measure.setup import Job
from inferlab.worker import Worker


@dataclass(frozen=True, slots=True)
class Deployment:
    """All that is needed to write the program that runs a model as it was measured."""

    model_path: str
    #: For each process, the CPUs of each of its streams.
    children: tuple[tuple[tuple[int, ...], ...], ...]
    mode: str
    #: Name, type and shape of every input.
    inputs: tuple[tuple[str, str, tuple[int, ...]], ...]
    #: Python that defines load(cpus) and stream(model), from the engine; empty where it has none.
    engine_code: str
    #: The batch size that the model fixes, where a rewritten copy was measured.
    fixed_batch: int | None


def deployment(job: Job, layout: streams.Layout | None = None) -> Deployment:
    """How to deploy it, as laid out; by default one request at a time on the cell's cores.

    The part that is the engine's own is asked of the engine.
    """
    cell = job.cell
    if layout is None:
        cpus = machine.choose_cpus(cell.num_cores, cell.thread_pinning)
        layout = streams.lay_out("auto", "sync", cpus, cell.num_cores, 1, ())
    launch = registry.launch(cell.engine)
    request: dict[str, Any] = {
        "model": job.model.path,
        "kind": job.model.kind,
        "groups": [list(group) for group in layout.children[0]],
        "layout": "one" if layout.shared else "each",
        "threads": layout.threads,
        "cores": layout.cores_each,
        "scheduler": streams.SCHEDULERS[cell.scenario],
        "pinning": cell.thread_pinning,
        "batch_size": cell.batch_size,
        "shapes": {name: list(shape) for name, shape in cell.shapes},
        "options": dict(cell.engine_options),
    }
    try:
        with Worker(launch, patience_s=job.patience_s) as worker:
            code = str(worker.ask("deployment", **request).data["code"])
    except InferlabError:  # an engine of the user's own that cannot say it is no reason to lose the result
        code = ""
    return Deployment(
        model_path=job.model.path,
        children=tuple(layout.children),
        mode=layout.mode,
        inputs=tuple((name, str(value.dtype), value.shape) for name, value in job.inputs[0].items()),
        engine_code=code,
        fixed_batch=job.rewrite_batch[0] if job.rewrite_batch else None,
    )
