"""The program that runs a model as it was measured: the engine's part, and the streams around it."""

from __future__ import annotations

from inferlab.measure.candidates import label
from inferlab.records.recommendation import Candidate, Deployment

_ONE = '''
def main():
    """One batch, to show that it runs."""
    infer = stream(load(CPUS))
    print([output.shape for output in infer(example())])
'''

_MANY = '''
def serve({what}, requests, replies):
    """One stream; None ends it."""
    infer = stream({model})
    for number, inputs in iter(requests.get, None):
        replies.put((number, infer(inputs)))


def main():
    """One batch for each stream, to show that it runs."""
{make}
    for one in streams:
        one.start()
    for number in range(len(streams)):
        requests.put((number, example()))
    for _ in streams:
        number, outputs = replies.get()
        print(number, [output.shape for output in outputs])
    for _ in streams:
        requests.put(None)
    for one in streams:
        one.join()
'''

_PROCESSES = """    context = multiprocessing.get_context("spawn")
    requests, replies = context.Queue(), context.Queue()
    streams = [context.Process(target=serve, args=(cpus, requests, replies)) for cpus in CPUS]"""
_THREADS = """    requests, replies = queue.Queue(), queue.Queue()
    streams = [threading.Thread(target=serve, args=(cpus, requests, replies)) for cpus in CPUS]"""
_NATIVE = """    requests, replies = queue.Queue(), queue.Queue()
    model = load(CPUS)
    streams = [threading.Thread(target=serve, args=(model, requests, replies)) for _ in range({count})]"""

#: The standard library's part beside the engine's own.
_IMPORTS = {
    "single": (),
    "processes": ("import multiprocessing",),
    "threads": ("import queue", "import threading"),
    "native": ("import queue", "import threading"),
}
_HOW = {
    "single": "one request at a time",
    "processes": "a process, a loaded model and CPUs of its own for each stream",
    "threads": "a thread, a loaded model and CPUs of its own for each stream",
    "native": "one loaded model that serves all streams",
}


def program(candidate: Candidate, deployment: Deployment) -> str:
    """Python that loads the model as it was measured and runs one batch on every stream."""
    if not deployment.engine_code:
        return _settings_only(candidate, deployment)
    imports, _, rest = deployment.engine_code.partition("\n\n")
    lines = sorted({*imports.splitlines(), *_IMPORTS[deployment.mode]})
    parts = [
        f'"""{label(candidate)}: {_HOW[deployment.mode]}."""\n\n' + "\n".join(lines) + "\n",
        rest.replace("\n\n\n", _constants(deployment), 1),
        _example(deployment),
        _ONE if deployment.mode == "single" else _streams(deployment),
        '\nif __name__ == "__main__":\n    main()\n',
    ]
    return "\n".join(parts)


def _constants(deployment: Deployment) -> str:
    fixed = deployment.fixed_batch
    note = (
        f"\n# The model fixes its batch size to {fixed}: this must be a copy for the batch size above."
        if fixed is not None
        else ""
    )
    return f"\n{note}\nMODEL = {deployment.model_path!r}\nCPUS = {_cpus(deployment)}\n\n\n"


def _cpus(deployment: Deployment) -> list[int] | list[list[int]]:
    """One list for the only loaded model, else one for each."""
    groups = [list(group) for child in deployment.children for group in child]
    return groups[0] if deployment.mode in ("single", "native") else groups


def _example(deployment: Deployment) -> str:
    lines = [
        f'        {name!r}: numpy.zeros({list(shape)}, "{dtype}"),' for name, dtype, shape in deployment.inputs
    ]
    return "\n".join(
        ["", "def example():", '    """A batch of zeros."""', "    return {", *lines, "    }", ""],
    )


def _streams(deployment: Deployment) -> str:
    count = sum(map(len, deployment.children))
    make = {"processes": _PROCESSES, "threads": _THREADS, "native": _NATIVE.format(count=count)}[deployment.mode]
    native = deployment.mode == "native"
    return _MANY.format(what="model" if native else "cpus", model="model" if native else "load(cpus)", make=make)


def _settings_only(candidate: Candidate, deployment: Deployment) -> str:
    """What is known of the settings where the engine does not say how it is set."""
    lines = [
        f"# {label(candidate)}: {_HOW[deployment.mode]}.",
        f"# Engine '{candidate.engine}' has no method deployment that writes the code, so set by hand:",
        f"MODEL = {deployment.model_path!r}",
        f"CPUS = {_cpus(deployment)}",
        f"THREADS = {max(1, candidate.num_cores // candidate.num_streams)}  # of one inference",
        f"STREAMS = {candidate.num_streams}",
        f"BATCH_SIZE = {candidate.batch_size}",
    ]
    return "\n".join(lines) + "\n"
