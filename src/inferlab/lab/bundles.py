"""A benchmark as one file that others can measure again: its entry, its model and inputs, and what measured it."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from inferlab.codec import dumps, parse_json, restored
from inferlab.engines.registry import describe, launch
from inferlab.engines.specs import spec_of
from inferlab.errors import BadInput, InferlabError
from inferlab.files import Scratch, whole_file
from inferlab.fleet.parcels import PIECE_BYTES, Packed, Parcel, find, pack_file, pack_model, place, unpack
from inferlab.lab.lookup import Lookup, read_unchanged_model
from inferlab.measure.stats import engine_version
from inferlab.model.download import inside
from inferlab.model.reading import read_model
from inferlab.records import Event, Listener, Machine, Outcome, Plan, ignore, is_release
from inferlab.store.exchange import MOST_LINE_BYTES
from inferlab.store.store import Store
from inferlab.units import size
from inferlab.version import __version__

_FORMAT = "inferlab-bundle/1"
_FAMILY = "inferlab-bundle/"
_CONTENTS, _ENTRY, _MODEL, _INPUTS = "bundle.json", "entry.jsonl", "model", "inputs"
# A list of a few files: what is longer was made to fill memory.
_MOST_CONTENTS_BYTES = 4 << 20
# Every machine makes these the same, so they need not travel.
_MADE_HERE = "demo:"
_LISTING = (
    "import importlib.metadata as m\n"
    "print('\\n'.join(sorted({d.metadata['Name'] + '==' + d.version for d in m.distributions()})))"
)
_LISTING_S = 60.0


@dataclass(frozen=True, slots=True)
class EngineLock:
    """What one engine of a benchmark was, so that the same can be installed elsewhere."""

    version: str
    versions: Mapping[str, str]
    #: A list that `pip install -r` takes, within the bundle; empty where the environment is gone.
    environment: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a bundle says of itself; the entry beside it holds the plan and all samples."""

    format: str
    inferlab_version: str
    entry: str
    model_source: str
    model_digest: str
    #: None where the model is not in the bundle.
    model: Parcel | None
    inputs: Parcel | None
    engines: Mapping[str, EngineLock]
    machines: tuple[Machine, ...]


def write_bundle(
    store: Store, entry_id: str, path: Path, with_model: bool = True, listener: Listener = ignore
) -> Bundle:
    """Write a benchmark of the store as a file that `open_bundle` takes, whole or not at all."""
    stored = Lookup(store).saved_benchmark(entry_id)
    plan, model = stored.benchmark.plan, stored.benchmark.model
    packed: dict[str, Packed] = {}
    if with_model and not plan.model.startswith(_MADE_HERE):
        packed[_MODEL] = pack_model(read_unchanged_model(stored.benchmark, listener))
    if plan.input_file:
        packed[_INPUTS] = pack_file(plan.input_file)
    listener(Event("packing", {"size_bytes": sum(one.parcel.size_bytes for one in packed.values())}))
    locks, texts = _locks(stored.benchmark.outcomes)
    bundle = Bundle(
        _FORMAT,
        __version__,
        stored.id,
        model.source,
        model.digest,
        packed[_MODEL].parcel if _MODEL in packed else None,
        packed[_INPUTS].parcel if _INPUTS in packed else None,
        locks,
        tuple(dict.fromkeys(run.machine for outcome in stored.benchmark.outcomes for run in outcome.runs)),
    )
    try:
        with whole_file(path.resolve()) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_CONTENTS, dumps(bundle))
            with archive.open(_ENTRY, "w", force_zip64=True) as member:
                for line in store.export([stored.id]):
                    member.write(line)
            for name, text in texts.items():
                archive.writestr(name, text)
            for folder, one in packed.items():
                _put(archive, folder, one)
    except OSError as error:
        raise BadInput(f"The bundle could not be written to {path}: {error.strerror or error}.") from error
    return bundle


def _put(archive: zipfile.ZipFile, folder: str, packed: Packed) -> None:
    for file, source in zip(packed.parcel.files, packed.sources, strict=True):
        # Weights hardly shrink, and take long to.
        member = zipfile.ZipInfo(f"{folder}/{file.name}")
        with source.open("rb") as read, archive.open(member, "w", force_zip64=True) as write:
            shutil.copyfileobj(read, write, PIECE_BYTES)


def _locks(outcomes: tuple[Outcome, ...]) -> tuple[dict[str, EngineLock], dict[str, str]]:
    """What each engine was, and the lists of what is installed beside it, by their names in the bundle."""
    locks: dict[str, EngineLock] = {}
    texts: dict[str, str] = {}
    for outcome in outcomes:
        engine = outcome.cell.engine
        if engine in locks or not outcome.runs:
            continue
        run = outcome.runs[0]
        text = _installed(engine, run.versions)
        name = f"environments/{re.sub(r'[^A-Za-z0-9.=-]+', '_', engine)}.txt" if text else ""
        locks[engine] = EngineLock(engine_version(run), dict(run.versions), name)
        if text:
            texts[name] = text
    return locks, texts


def _installed(engine: str, measured: Mapping[str, str]) -> str:
    """What is installed where an engine runs, one requirement a line; empty where that cannot be asked."""
    try:
        command = [launch(engine).interpreter, "-I", "-c", _LISTING]
        listed = subprocess.run(command, capture_output=True, text=True, timeout=_LISTING_S, check=True).stdout
    except (InferlabError, OSError, subprocess.SubprocessError):
        return ""
    found = dict(line.split("==", 1) for line in listed.splitlines() if "==" in line)
    changed = [
        f"# Measured with {name} {version}; the environment has {found[name]} since."
        for name, version in measured.items()
        if name in found and found[name] != version
    ]
    lines = [f"{name}=={version}" for name, version in sorted(found.items()) if name != "inferlab"]
    return "\n".join([*changed, *lines]) + "\n"


def open_bundle(
    store: Store, path: Path, source: str | None = None, listener: Listener = ignore
) -> tuple[Bundle, Plan]:
    """Take the entry of a bundle into the store and its files into the cache; returns what measures the same here.

    A bundle may come from anybody: nothing that it names is run, and no other host is asked for its model, which
    is `source` where the bundle does not hold it.
    """
    with _opened(path) as archive:
        bundle = _contents(archive)
        if bundle.model is None and source is None and not bundle.model_source.startswith(_MADE_HERE):
            raise BadInput(
                f"The bundle {path} does not hold its model, {bundle.model_source}. Name it: "
                f"inferlab rerun {path} --model MODEL"
            )
        places = {
            folder: _placed(archive, folder, parcel, listener)
            for folder, parcel in ((_MODEL, bundle.model), (_INPUTS, bundle.inputs))
            if parcel is not None
        }
        named = source or str(places.get(_MODEL, bundle.model_source))
        if read_model(named, listener).digest != bundle.model_digest:
            raise BadInput(f"{named} is not the model that the bundle {path} was measured with.")
        _take_entry(store, archive)
    stored = Lookup(store).saved_benchmark(bundle.entry)
    if stored.benchmark.model.digest != bundle.model_digest:
        raise BadInput(f"The bundle {path} contradicts itself: its entry was measured with another model.")
    return bundle, _measurable(stored.benchmark.plan, named, places.get(_INPUTS))


def with_releases(plan: Plan, bundle: Bundle) -> Plan:
    """The plan with the releases of engines that the bundle was measured with, where this machine has others."""
    versions = {engine: lock.version for engine, lock in bundle.engines.items()}
    return replace(plan, engines=tuple(release_of(engine, versions.get(engine, "")) for engine in plan.engines))


def release_of(engine: str, version: str) -> str:
    """The engine in this version: as it is named where this machine has it so, else its release."""
    if not version or is_release(engine) or describe(engine).version == version:
        return engine
    # A build's own mark, as in 2.13.0+cpu, is no part of what can be installed.
    named = f"{engine}=={version.partition('+')[0]}"
    spec_of(named)  # refuses an engine that has no releases
    return named


def _measurable(plan: Plan, model: str, inputs: Path | None) -> Plan:
    """The plan on this machine, without what would run files or ask hosts that the bundle names."""
    for engine in plan.engines:
        if ".py" in engine:
            raise BadInput(f"The bundle was measured with the program {engine}, which it does not hold.")
    if plan.input_file and inputs is None:
        raise BadInput("The bundle does not hold the inputs that it was measured with.")
    own = Plan(model)
    return replace(
        plan,
        model=model,
        input_file=str(inputs) if inputs else None,
        **{name: getattr(own, name) for name in ("cluster", "on", "nodes", "wait_s", "prices")},
    )


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except InferlabError:
        raise
    except OSError as error:
        raise BadInput(f"The bundle {path} cannot be read: {error.strerror or error}.") from error
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        ValueError,
        LookupError,
        TypeError,
        RuntimeError,  # encrypted, or compressed in a way that is not known here
    ) as error:
        said = str(error) or type(error).__name__
        raise BadInput(f"{path} is not a complete bundle of inferlab export ({said}).") from error


def _contents(archive: zipfile.ZipFile) -> Bundle:
    if archive.getinfo(_CONTENTS).file_size > _MOST_CONTENTS_BYTES:
        raise ValueError(f"its {_CONTENTS} is too long")
    content = parse_json(archive.read(_CONTENTS))
    name = content.get("format") if isinstance(content, dict) else None
    if not str(name).startswith(_FAMILY):
        raise ValueError("it does not say that it is one")
    if name != _FORMAT:
        raise ValueError(f"its format is {name}, this inferlab reads {_FORMAT}: use a newer one")
    bundle = restored(Bundle, content)
    for parcel in (bundle.model, bundle.inputs):
        for file in parcel.files if parcel else ():
            if not inside(file.name) or file.size_bytes < 0:
                raise ValueError(f"{file.name!r:.40} is not a file within it")
        if parcel and parcel.main and not inside(parcel.main):
            raise ValueError(f"{parcel.main!r:.40} leads out of its folder")
    return bundle


def _placed(archive: zipfile.ZipFile, folder: str, parcel: Parcel, listener: Listener) -> Path:
    """Where a parcel of the bundle is here; it is written where it is not there yet."""
    if (known := find(parcel)) is not None:
        return known
    target = place(parcel).parent
    target.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(target).free
    if parcel.size_bytes > free:
        raise BadInput(
            f"The bundle holds {size(parcel.size_bytes)} for {target}, where {size(free)} are free. Make room."
        )
    listener(Event("unpacking", {"size_bytes": parcel.size_bytes}))
    pieces = _pieces(archive, folder, parcel)
    return unpack(parcel, lambda: next(pieces, b""))


def _pieces(archive: zipfile.ZipFile, folder: str, parcel: Parcel) -> Iterator[bytes]:
    for file in parcel.files:
        with archive.open(f"{folder}/{file.name}") as member:
            while piece := member.read(min(PIECE_BYTES, file.size_bytes)):
                yield piece


def _take_entry(store: Store, archive: zipfile.ZipFile) -> None:
    """Import the entry, by a file of our own."""
    if archive.getinfo(_ENTRY).file_size > 2 * MOST_LINE_BYTES:
        raise ValueError(f"its {_ENTRY} is too long")
    scratch = Scratch()
    try:
        file = Path(scratch.path) / _ENTRY
        with archive.open(_ENTRY) as read, file.open("wb") as write:
            shutil.copyfileobj(read, write, PIECE_BYTES)
        store.import_file(file)
    finally:
        scratch.remove()
