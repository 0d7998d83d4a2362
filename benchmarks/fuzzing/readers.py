"""Every reader of files, called in this process as a command calls it: success, one sentence, or a fault."""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from unittest import mock

import click

from benchmarks.fuzzing import file_mutations, onnx_mutations
from inferlab.errors import BadInput, InferlabError
from inferlab.views import results

if TYPE_CHECKING:
    from inferlab.records import Model
    from inferlab.worker import Launch, Worker

Answer = Literal["success", "sentence"]
# A small share of what is read is drawn as well: a chart takes longer than all the rest.
_DRAWN = 20
_MOST_INPUT_BYTES = 2**26
# Below what the worker allows for a reader, so that an engine that hangs ends in a sentence too.
_ENGINE_S = 10.0


def kinds() -> tuple[str, ...]:
    """The kinds of files that are read."""
    return ("models", *file_mutations.kinds())


def mutation(kind: str, seed: int) -> tuple[str, bytes]:
    """The ending and the content of the mutation with this number."""
    if kind != "models":
        return file_mutations.mutate(kind, seed)
    models = onnx_mutations.seed_models()
    name = sorted(models)[seed % len(models)]
    return "onnx", onnx_mutations.mutate(models[name], seed // len(models))


def read(kind: str, path: Path, seed: int = 0) -> Answer:
    """Read a file; any other exception than those that end in a sentence and exit code 2 or 3 is a fault."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _READERS[kind](path, seed)
    except click.ClickException as error:
        _check_sentence(error.format_message())
        return "sentence"
    except InferlabError as error:
        if error.exit_code not in (2, 3):
            raise
        _check_sentence(str(error))
        return "sentence"
    return "success"


def _check_sentence(text: str) -> None:
    if not text.strip():
        raise AssertionError("nothing is said")


def _model(path: Path, seed: int) -> None:
    from inferlab.model.confined import in_this_process
    from inferlab.model.flops import count
    from inferlab.model.onnx_file import read_onnx, rewrite
    from inferlab.model.shapes import resolve
    from inferlab.transform.copies import stamp
    from inferlab.worker import time_limit

    with in_this_process(), quick_engines(), time_limit(_ENGINE_S):
        model = read_onnx(path, "model.onnx")
        shapes = resolve(model.inputs, None, None, {}).shapes
        count.costs(model, shapes)
        # Not by the number alone: that also says which model is mutated.
        turn = seed // len(onnx_mutations.seed_models())
        if turn % _DRAWN == 0:
            rewrite(model, path.parent / "out", (1, 2), 8, False, True)
            stamp(model, path.parent / "out", {"key": "value"})
        elif turn % _DRAWN in CHANGES:
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                CHANGES[turn % _DRAWN](model, Path(folder))


def _clean_up(model: Model, folder: Path) -> None:
    from inferlab.transform.cleanup import clean_up

    clean_up(model, folder)


def _quantize(model: Model, folder: Path) -> None:
    from inferlab.model.inputs import generate_data
    from inferlab.model.shapes import resolve
    from inferlab.records.optimization import Quantization
    from inferlab.transform.quantize import quantize

    shapes = resolve(model.inputs, None, None, {}).shapes
    quantize(model, generate_data(model.inputs, shapes, 1).sets, folder)
    quantize(model, (), folder / "weights", Quantization("weights", bits=4))


def _prune_channels(model: Model, folder: Path) -> None:
    from inferlab.model.onnx_file import parse_onnx
    from inferlab.transform.channels import prune_channels

    weights = [weight.name for weight in parse_onnx(Path(model.path)).graph.initializer if len(weight.dims) > 1]
    prune_channels(model, dict.fromkeys(weights[:4], 0.5), folder)


#: Each in its turn: an engine takes longer to answer than all the other readers.
CHANGES: dict[int, Callable[[Model, Path], None]] = {5: _clean_up, 10: _quantize, 15: _prune_channels}


@contextlib.contextmanager
def quick_engines() -> Iterator[None]:
    """Let whoever asks an engine ask the same process again and again, unconfined: starting one takes a second.

    Shapes are as the file has them: running a model to see them is another program's reader. Inputs are small:
    those that a model declares may take a quarter of the memory, which is more than a mutation may here.
    """
    from inferlab.model import inputs
    from inferlab.model.flops import count
    from inferlab.transform import channels, cleanup, quantize

    def refuse(*_: Any) -> Any:
        raise InferlabError("not traced here")

    with contextlib.ExitStack() as patched:
        for module in (count, channels):
            patched.enter_context(mock.patch.object(module, "trace", refuse))
        for module in (channels, cleanup):
            patched.enter_context(mock.patch.object(module, "run_task", _run_task))
        patched.enter_context(mock.patch.object(quantize, "Worker", _engine))
        patched.enter_context(mock.patch.object(inputs, "memory_limit", lambda: _MOST_INPUT_BYTES))
        yield


_engines: dict[str, Worker] = {}


def _run_task(
    launch: Launch, task: str, arguments: Mapping[str, Any], blocks: Sequence[Any] = (), *_: Any, **__: Any
) -> dict[str, Any]:
    with _engine(launch) as worker:
        return worker.ask("task", blocks, task=task, arguments=arguments).data


@contextlib.contextmanager
def _engine(launch: Launch, *_: Any, **__: Any) -> Iterator[Worker]:
    """An engine's process that goes on where nothing happened to it."""
    from inferlab.settings import CONFINEMENT
    from inferlab.worker import Worker

    if launch.name not in _engines:
        with mock.patch.dict(os.environ, {CONFINEMENT: "off"}):
            _engines[launch.name] = Worker(launch, patience_s=_ENGINE_S)
        atexit.register(_engines[launch.name].close)
    try:
        yield _engines[launch.name]
    except BaseException as error:
        # A refusal is an answer; after anything else it may be gone, or owe one.
        if not isinstance(error, BadInput):
            _engines.pop(launch.name).kill()
        raise


def _plan(path: Path, seed: int) -> None:
    from inferlab.cli.benchmark import command
    from inferlab.measure.cells import validate_plan
    from inferlab.options.plan import make_plan

    with command.make_context("benchmark", ["model.onnx", "--plan", str(path)]) as context:
        validate_plan(make_plan("model.onnx", context.params))


def _recipe(path: Path, seed: int) -> None:
    from inferlab.optimizing import recipes

    recipe = recipes.load(path)
    if recipes.loads(recipes.dump(recipe), "again") != recipe:
        raise AssertionError("a recipe that was written and read again is another one")


def _result(path: Path, seed: int) -> None:
    from inferlab import plotting
    from inferlab.measure.unpaired import compare_saved
    from inferlab.store.formats import PROFILES
    from inferlab.views import benchmark_file

    content = path.read_bytes()[:4000]
    if path.suffix == ".json" and b"inferlab-profile" in content:
        list(results.lines(PROFILES.load(str(path))))
        return
    if seed % _DRAWN == 0:
        plotting.plot(path)
    else:
        plotting._held(path, None)
    if b"inferlab-comparison" not in content:
        count = len(benchmark_file.read(path))
        first = benchmark_file.load(f"{path}#1")
        results.lines(compare_saved(first, benchmark_file.load(f"{path}#{count}"), 0.01))


def _export(path: Path, seed: int) -> None:
    from inferlab.store import open_store
    from inferlab.store.exchange import announced

    announced(path)
    target = path.parent / "target.db"
    if not target.exists():
        open_store(str(target)).close()
    with open_store(str(target)) as store:
        added = store.import_file(path)
        try:
            _show_all(store)
        finally:
            for entry in added:
                store.remove(entry)


def _store(path: Path, seed: int) -> None:
    from inferlab.store import inspect_store, open_store
    from inferlab.store.exchange import problems

    with inspect_store(str(path)) as database:
        list(problems(database))
    with open_store(str(path), make=False) as store:
        _show_all(store)
        list(store.export())


def _show_all(store: Any) -> None:
    from inferlab.views import history

    page = store.history(100)
    history.lines(page, datetime.now(UTC), 100)
    history.to_json(page, None)
    for entry in page:
        results.entry_lines(store.get(entry.id))


_READERS: dict[str, Callable[[Path, int], None]] = {
    "models": _model,
    "plans": _plan,
    "recipes": _recipe,
    "results": _result,
    "exports": _export,
    "stores": _store,
}

#: The command that reads a kind of file, for the share of them that is read by the command itself.
COMMANDS: dict[str, tuple[str, ...]] = {
    "models": ("benchmark", "{}", "--dry-run"),
    "plans": ("benchmark", "missing.onnx", "--plan", "{}", "--dry-run"),
    "recipes": ("optimize", "missing.onnx", "-o", "out.onnx", "--recipe", "{}"),
    "results": ("compare", "{}", "{}"),
    "exports": ("import", "{}", "--store", "target.db"),
    "stores": ("history", "--store", "{}"),
}
