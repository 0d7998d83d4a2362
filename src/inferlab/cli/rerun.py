"""`inferlab rerun ID | FILE.zip`: measure a benchmark or a generation again, under the same conditions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from inferlab.cli.command import (
    Work,
    export_option,
    opened,
    quiet_option,
    show_blocks,
    store_option,
    strict_option,
    yes_option,
)
from inferlab.errors import BadInput
from inferlab.records import Benchmark, ComparisonSweep
from inferlab.store import Stored
from inferlab.store.entries import Document
from inferlab.store.formats import GENERATION

if TYPE_CHECKING:
    from inferlab.lab import Lab

_ENDING = ".zip"


@click.command("rerun")
@click.argument("name", metavar="ID | FILE.zip")
@click.option("--model", metavar="MODEL", help="The model, where the bundle does not hold it.")
@click.option("--same-releases", is_flag=True, help="Measure a bundle with the releases of engines that it names.")
@yes_option
@strict_option
@store_option
@quiet_option
@export_option
def command(
    name: str,
    model: str | None,
    same_releases: bool,
    yes: bool,
    strict: bool,
    store_url: str | None,
    quiet: bool,
    export_path: Path | None,
) -> int:
    """Measure a benchmark, or what a model generated, again under the same conditions, as a new entry.

    \b
      inferlab rerun abcdefghij                a benchmark of the store, a generation, or what was made of some
      inferlab rerun bundle.zip                one of another machine, which inferlab export wrote

    A model that has changed since is refused. What was measured elsewhere is compared with what is measured here;
    the two are not interleaved, so that comparison is less sure. Exit codes are those of inferlab benchmark.
    """
    from inferlab.cli.benchmark import show
    from inferlab.cli.generate import show_made
    from inferlab.lab import Lab
    from inferlab.lab.bundles import open_bundle, with_releases
    from inferlab.measure.unpaired import compare_sweeps
    from inferlab.views.results import view_of

    is_bundle = name.lower().endswith(_ENDING)
    for option, value in (("--model", model), ("--same-releases", same_releases)):
        if value and not is_bundle:
            raise BadInput(f"The option {option} is for a bundle, a file that ends in {_ENDING}.")
    work = Work(store_url, quiet, export_path, yes)
    compared: ComparisonSweep | None = None
    with work.log, opened(store_url, make=is_bundle) as store:
        lab = Lab(store)
        if is_bundle:
            bundle, plan = open_bundle(store, Path(name), model, work.log)
            plan = with_releases(plan, bundle) if same_releases else plan
            work.need_engines(plan.engines)
            before = store.get(bundle.entry)
            benchmark = lab.benchmark(plan, work.log, live=work.log.live, against=before.id)
            if all(outcome.status == "done" for outcome in benchmark.outcomes) and benchmark.id:
                compared = compare_sweeps(lab.saved_results(before.id), lab.saved_results(benchmark.id))
        else:
            before = store.get(name)
            if isinstance(before, Document) and before.kind == GENERATION:
                return _generation(before, lab, work, strict)
            if isinstance(before, Document) and before.kind.startswith(GENERATION):
                return show_made(lab.rerun_generation_result(before.id, work.log), strict, work)
            benchmark = lab.rerun(before.id, work.log, live=work.log.live)
    code = show(benchmark, work, strict)
    if isinstance(before, Stored) and _cells(before.benchmark) != _cells(benchmark):
        work.log.say(f"Not all conditions are those of {before.id}: the cores or the inputs differ here.")
    if compared is not None:
        show_blocks(view_of(compared).blocks(), below=True)
    work.say_saved(benchmark.id)
    if benchmark.id and work.log.all_saved:
        if any(outcome.status in ("cancelled", "pending") for outcome in benchmark.outcomes):
            work.log.say(f"Next: inferlab benchmark --resume {benchmark.id}")
        elif code == 0 and compared is None and len(benchmark.outcomes) == 1:
            work.log.say(f"Next: inferlab compare {before.id} {benchmark.id}")
    return work.exit_code(code)


def _generation(before: Document, lab: Lab, work: Work, strict: bool) -> int:
    from inferlab.cli.generate import show_generation

    sweep = lab.rerun_generation(before.id, work.log)
    code = show_generation(sweep, strict, work)
    if {outcome["cell"]["num_cores"] for outcome in before.content["outcomes"]} != {
        outcome.cell.num_cores for outcome in sweep.outcomes
    }:
        work.log.say(f"Not all conditions are those of {before.id}: the cores differ here.")
    return code


def _cells(benchmark: Benchmark) -> set[str]:
    return {outcome.cell.id for outcome in benchmark.outcomes}
