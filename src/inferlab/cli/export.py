"""inferlab export: a PyTorch model as ONNX, or entries of the store as a file that travels."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from inferlab.cli.command import Log, given_flags, opened, store_option
from inferlab.errors import BadInput
from inferlab.units import plural, size

_HELP = """Write a PyTorch model as ONNX, or entries of the store as a file.

\b
  inferlab export path/to/model-folder -o model.onnx        a model
  inferlab export abcdefghij -o results.jsonl.gz            an entry; without any ID, all of them
  inferlab export abcdefghij -o bundle.zip                  a benchmark that others can measure again

MODEL is a Hugging Face folder, hf:ORG/NAME, a torch.export program (.pt2) or a TorchScript file; what is written
is checked against eager PyTorch. An ID is one that inferlab history lists; -o then ends in .jsonl, or in .jsonl.gz
to compress, and inferlab import reads that file back. A bundle holds the entry, its model and inputs, and what was
installed beside each engine; inferlab rerun measures it on another machine."""
_TIMEOUT = "Seconds after which an export counts as hung."
_ENTRIES = (".jsonl", ".jsonl.gz")
_BUNDLE = ".zip"
# What only the one use takes, by parameter.
_OF_MODELS = ("opset", "exporter", "batch_size", "sequence_length", "static", "timeout")
_ID_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz234567")


@click.command("export", help=_HELP)
@click.argument("what", nargs=-1, metavar="MODEL | [ID]...")
@click.option("-o", "--output", required=True, metavar="FILE", help="The file to write; its folder must exist.")
@click.option("--opset", type=int, help="The ONNX opset; 17, or 18 where only the newer exporter can.")
@click.option(
    "--exporter",
    type=click.Choice(["auto", "dynamo", "torchscript"]),
    default="auto",
    show_default=True,
    help="Which of torch's exporters.",
)
@click.option("-b", "--batch_size", type=int, default=2, show_default=True, help="To trace with.")
@click.option("--sequence_length", type=int, default=16, show_default=True, help="To trace with.")
@click.option("--static", is_flag=True, help="Fix batch and sequence at the sizes traced with.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=3600.0, show_default=True, help=_TIMEOUT
)
@click.option("--no-model", is_flag=True, help="A bundle without its model, which is then named elsewhere.")
@store_option
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but the path.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    what: tuple[str, ...],
    output: str,
    no_model: bool,
    store_url: str | None,
    quiet: bool,
    **settings: Any,
) -> None:
    """Write a model, entries, or a bundle."""
    is_bundle = output.lower().endswith(_BUNDLE)
    if not is_bundle:
        _refuse_options(ctx, ("no_model",), f"bundles, files that end in {_BUNDLE}")
    if is_bundle:
        _refuse_options(ctx, _OF_MODELS, f"turning a model into ONNX, and {output} is a bundle")
        _export_bundle(ctx, what, Path(output), not no_model, store_url, quiet)
    elif output.lower().endswith(_ENTRIES):
        _refuse_options(ctx, _OF_MODELS, f"turning a model into ONNX, and {output} takes entries of the store")
        _export_entries(what, Path(output), store_url, quiet)
    else:
        _refuse_options(ctx, ("store_url",), "exporting entries, to a file that ends in .jsonl or .jsonl.gz")
        _export_model(_only_model(ctx, what), output, quiet, **settings)


def _refuse_options(ctx: click.Context, options: tuple[str, ...], use: str) -> None:
    for name, flag in given_flags(ctx).items():
        if name in options:
            raise BadInput(f"The option {flag} is for {use}.")


def _only_model(ctx: click.Context, what: tuple[str, ...]) -> str:
    if not what:
        raise click.UsageError("Missing argument 'MODEL'. For entries of the store, -o ends in .jsonl.", ctx)
    model, *more = what
    if more:
        raise click.UsageError(f"Got unexpected extra argument ({' '.join(more)}): one model is exported.", ctx)
    if 4 <= len(model) <= 10 and _ID_LETTERS.issuperset(model) and not Path(model).exists():
        raise BadInput(
            f"There is no model '{model}'. If it is an entry of the store, give -o a name that ends in .jsonl."
        )
    return model


def _export_entries(ids: tuple[str, ...], path: Path, store_url: str | None, quiet: bool) -> None:
    for entry_id in ids:
        if not _ID_LETTERS.issuperset(entry_id):
            raise BadInput(
                f"'{entry_id}' is not an id in the store (see: inferlab history). To turn a model into ONNX, give "
                "-o a name that ends in .onnx."
            )
    _check_writable(path)
    with opened(store_url) as store:
        # The first and the last line are not entries.
        count = _write(path, store.export(ids or None)) - 2
    if quiet:
        click.echo(path)
        return
    click.echo(f"Written: {path} ({plural(count, 'entry', 'entries')}, {size(path.stat().st_size)})")
    click.echo(f"Next: inferlab import {path}", err=True)


def _export_bundle(
    ctx: click.Context, ids: tuple[str, ...], path: Path, with_model: bool, store_url: str | None, quiet: bool
) -> None:
    from inferlab.lab.bundles import write_bundle

    if len(ids) != 1:
        raise click.UsageError("A bundle holds one benchmark. Give one ID, as inferlab history lists it.", ctx)
    _check_writable(path)
    with Log(quiet) as log, opened(store_url) as store:
        bundle = write_bundle(store, ids[0], path, with_model, log)
    if quiet:
        click.echo(path)
        return
    model = "with its model" if bundle.model else f"without its model, {bundle.model_source}"
    click.echo(f"Written: {path} (the benchmark {bundle.entry} {model}, {size(path.stat().st_size)})")
    for engine, lock in bundle.engines.items():
        click.echo(f"Engine: {engine} {lock.version}".rstrip())
    click.echo(f"Next: inferlab rerun {path}", err=True)


def _check_writable(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise BadInput(f"{path} is not an ordinary file. Give -o another name.")
    if not path.parent.is_dir():
        raise BadInput(f"The folder of {path} does not exist. Make it first: mkdir -p {path.parent}")


def _write(path: Path, lines: Iterable[bytes]) -> int:
    """Write the lines whole or not at all, compressed where the name says so; returns how many there were."""
    import gzip
    import os

    from inferlab.files import whole_file

    count = 0
    try:
        with whole_file(path.resolve()) as file:
            zipped = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if path.name.lower().endswith(".gz") else None
            for line in lines:
                (zipped or file).write(line)
                count += 1
            if zipped:
                zipped.close()
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise BadInput(f"The entries could not be written to {path}: {error.strerror or error}.") from error
    return count


def _export_model(model: str, output: str, quiet: bool, static: bool, **settings: Any) -> None:
    from inferlab.model.export import export_to_onnx

    with Log(quiet) as log:
        source = model
        if model.startswith("hf:"):
            from inferlab.model.hub import fetch_transformers

            source = str(fetch_transformers(model.removeprefix("hf:"), log))
        exported = export_to_onnx(source, output, dynamic=not static, listener=log, **settings)
    if quiet:
        click.echo(exported.path)
        return
    click.echo(f"Written: {exported.path} ({exported.size_bytes / 1e6:.3g} MB)")
    click.echo(f"Opset: {exported.opset} ({exported.exporter} exporter), {exported.precision}")
    for label, specs in (("Inputs", exported.inputs), ("Outputs", exported.outputs)):
        click.echo(f"{label}: " + ", ".join(f"{spec.name} {spec.dtype}{_dims(spec.dims)}" for spec in specs))
    click.echo(f"Largest relative error against eager PyTorch: {exported.error:.2g}")
    click.echo(f"Next: inferlab benchmark {exported.path}")


def _dims(dims: tuple[int | str | None, ...] | None) -> str:
    return "" if dims is None else "[" + ", ".join("?" if dim is None else str(dim) for dim in dims) + "]"
