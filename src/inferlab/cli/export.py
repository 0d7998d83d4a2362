"""inferlab export: a PyTorch model as ONNX."""

from __future__ import annotations

import click

from inferlab.cli.progress import Log


@click.command("export")
@click.argument("model")
@click.option(
    "-o", "--output", required=True, metavar="OUT.onnx", help="The file to write; its folder must exist."
)
@click.option("--opset", type=int, help="The ONNX opset; 17, or 18 where only the newer exporter can.")
@click.option(
    "--exporter",
    type=click.Choice(["auto", "dynamo", "torchscript"]),
    default="auto",
    show_default=True,
    help="Which of torch's exporters; torchscript with --opset 14 is what the engine 'executor' reads.",
)
@click.option("-b", "--batch_size", type=int, default=2, show_default=True, help="To trace with.")
@click.option("--sequence_length", type=int, default=16, show_default=True, help="To trace with.")
@click.option("--static", is_flag=True, help="Fix batch and sequence at the sizes traced with.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but the path.")
def command(
    model: str,
    output: str,
    opset: int | None,
    exporter: str,
    batch_size: int,
    sequence_length: int,
    static: bool,
    quiet: bool,
) -> None:
    """Write a PyTorch model as ONNX and check it against eager PyTorch.

    MODEL is a Hugging Face folder, hf:ORG/NAME, a torch.export program (.pt2) or a TorchScript file.
    """
    from inferlab.model.export import export_to_onnx

    with Log(quiet) as log:
        source = model
        if model.startswith("hf:"):
            from inferlab.model.source import fetch_transformers

            source = str(fetch_transformers(model.removeprefix("hf:"), log))
        exported = export_to_onnx(
            source,
            output,
            opset=opset,
            dynamic=not static,
            exporter=exporter,  # type: ignore[arg-type]
            batch_size=batch_size,
            sequence_length=sequence_length,
            listener=log,
        )
    if quiet:
        click.echo(exported.path)
        return
    inputs = ", ".join(f"{one.name} {one.dtype}{_dims(one.dims)}" for one in exported.inputs)
    outputs = ", ".join(f"{one.name} {one.dtype}{_dims(one.dims)}" for one in exported.outputs)
    click.echo(f"Written: {exported.path} ({exported.size_bytes / 1e6:.3g} MB)")
    click.echo(f"Opset: {exported.opset} ({exported.exporter} exporter), {exported.precision}")
    click.echo(f"Inputs: {inputs}")
    click.echo(f"Outputs: {outputs}")
    click.echo(f"Largest relative error against eager PyTorch: {exported.error:.2g}")
    click.echo(f"Next: inferlab benchmark {exported.path}")


def _dims(dims: tuple[int | str | None, ...] | None) -> str:
    return "" if dims is None else "[" + ", ".join("?" if dim is None else str(dim) for dim in dims) + "]"
