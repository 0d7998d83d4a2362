"""`inferlab gate MODEL --baseline …`: did a change make a model slower? For continuous integration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from inferlab.cli.command import MODELS, Command, DeclaredValue, Work, WritableFile, measures, strict_option
from inferlab.cli.compare import exit_code
from inferlab.errors import BadInput
from inferlab.options.plan import COMPARISON
from inferlab.records.comparison import ComparisonSweep

if TYPE_CHECKING:
    from inferlab.lab import Lab
    from inferlab.lab.gate import Baseline

_HELP = f"""Did a change make a model slower? Exits with 1 where it did, so that a pipeline stops.

\b
  inferlab export abcdefghij -o baseline.zip                once, of a benchmark of the main branch
  inferlab gate new.onnx --baseline baseline.zip            in every pull request
  inferlab gate new.onnx --baseline main                    with a store that pipelines share

The baseline is a bundle (inferlab export), a branch (its newest benchmark of MODEL), the id of a benchmark in the
store, or a JSON file of one. Where its model is at hand, both are measured here, interleaved, each with its own
release of the engine, so that it does not matter how fast this machine is today. Else the candidate is compared
with the series of the baseline, or with its numbers alone, which is less sure; it is said which.

{MODELS}"""
_BASELINE = "A bundle (.zip), a branch, the id of a benchmark, or a result (.json)."
_MARGIN = "Differences up to this share do not matter."
_TIME = "Seconds for each core count and batch size, at most."
_SUMMARY = "Write the summary as Markdown; also to $GITHUB_STEP_SUMMARY where that is set."
_FAIL_IF = "slower: exit 1 if a cell is slower, 4 if one is inconclusive. never: only show."


@click.command("gate", cls=Command, help=_HELP)
@click.argument("model")
@click.option("--baseline", required=True, metavar="FILE.zip | BRANCH | ID | FILE.json", help=_BASELINE)
@click.option("-e", "--engine", metavar="ENGINE", help="The candidate's engine.  [default: the baseline's]")
@click.option("-t", "--time", "time_s", type=float, default=60.0, show_default=True, help=_TIME)
@click.option("--margin", type=DeclaredValue(COMPARISON["margin"]), default="3%", show_default=True, help=_MARGIN)
@click.option("--fail-if", type=click.Choice(["slower", "never"]), default="slower", help=_FAIL_IF)
@click.option("--summary", "summary_path", type=WritableFile(), metavar="FILE.md", help=_SUMMARY)
@click.option("--junit", "junit_path", type=WritableFile(), metavar="FILE.xml", help="Write JUnit XML.")
@strict_option
@measures
def command(
    model: str,
    baseline: str,
    engine: str | None,
    time_s: float,
    margin: float,
    fail_if: str,
    summary_path: Path | None,
    junit_path: Path | None,
    strict: bool,
    work: Work,
) -> int:
    """Measure, show, write, and say whether it holds."""
    from inferlab.lab.gate import against_baseline

    with work.lab() as lab:
        reference = _baseline(baseline, model, lab, work)
        if reference.only_saved:
            work.log.say(f"The baseline is not measured again: {reference.only_saved}")
        else:
            work.need_engines(reference.plan.engines)
        work.need_engines([engine or reference.engine])
        sweep = against_baseline(lab, model, engine, reference, time_s, margin, work.log)
    work.show(sweep)
    fails = ("slower",) if fail_if == "slower" else ()
    _write(sweep, model, fails, summary_path, junit_path, work)
    code = exit_code(sweep, "slower" if fails else None, strict)
    # Cells that only one of two saved results has are no failure.
    return work.exit_code(3 if code in (0, 4) and sweep.failures and not reference.only_saved else code)


def _baseline(name: str, model: str, lab: Lab, work: Work) -> Baseline:
    """What the name of a baseline means: a file, a branch or an entry of the store."""
    from inferlab.lab import gate
    from inferlab.views import benchmark_file, results

    if name.lower().endswith(".zip"):
        return gate.baseline_of_bundle(lab.store, Path(name), work.log)
    if results.is_file(name):
        return gate.baseline_of_results(benchmark_file.load_all(name), name)
    if (saved := gate.baseline_of_branch(lab.store, name, model, work.log)) is not None:
        return saved
    if lab.has_entry(name):
        return gate.baseline_of_entry(lab.store, name, work.log)
    raise BadInput(
        f"There is no baseline {name!r}: give a bundle (.zip), a branch that benchmarks are labelled with, the id "
        "of a benchmark (see: inferlab history), or a result (.json)."
    )


def _write(
    sweep: ComparisonSweep,
    model: str,
    fails: tuple[str, ...],
    summary_path: Path | None,
    junit_path: Path | None,
    work: Work,
) -> None:
    from inferlab.views import results
    from inferlab.views.trend import gate_summary, junit

    for path, text in ((summary_path, gate_summary(sweep, model)), (junit_path, junit(sweep, model, fails))):
        if path is not None:
            results.write(path, text)
            work.log.say(f"Saved to {path}")
    if step := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(step).open("a", encoding="utf-8") as file:
                file.write(gate_summary(sweep, model))
        except OSError as error:
            work.log.say(f"The summary of this step could not be written: {error.strerror or error}.")
