"""`--cpu-list`: the CPUs that a cell really runs on, wherever the list is given, and in every file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

import inferlab
from inferlab.errors import BadInput
from inferlab.measure.cells import cpus_of, lay_out
from inferlab.records import Plan
from inferlab.views import benchmark as view
from inferlab.views import benchmark_file, tables
from inferlab.web.api.asking import BenchmarkBody, ProfileBody
from tests.helpers.sweeps import an_outcome

Run = Callable[..., CompletedProcess[str]]
ALLOWED = sorted(os.sched_getaffinity(0))
#: What the automatic choice would not take for one core.
LAST = ALLOWED[-1]
QUICK = ("-s", "sync", "-t", "0.1", "-w", "0", "--processes", "1", "-q", "--no-save")
pytestmark = pytest.mark.skipif(len(ALLOWED) < 2, reason="a choice needs two CPUs")


@pytest.fixture
def telling(tmp_path: Path) -> str:
    """An engine that fails with the CPUs that it may run on."""
    engine = tmp_path / "telling.py"
    engine.write_text(
        "import os\n"
        "class Telling:\n"
        "    def load(self, model, options):\n"
        "        raise RuntimeError('on CPUs %s' % sorted(os.sched_getaffinity(0)))\n"
        "    def bind(self, inputs, stream=0):\n"
        "        pass\n"
    )
    return f"{engine}:Telling"


@pytest.mark.parametrize(
    ("listed", "cpus"), [(str(LAST), [LAST]), (f"{LAST},{ALLOWED[0]}", [ALLOWED[0], LAST]), (None, [ALLOWED[0]])]
)
def test_the_child_is_bound_to_the_cpus_of_the_list(
    inferlab_here: Run, telling: str, listed: str | None, cpus: list[int]
) -> None:
    given = ("-ncores", "1") if listed is None else ("--cpu-list", listed)
    done = inferlab_here("benchmark", "demo:mlp", "-e", telling, *given, "--no-verify", *QUICK)
    assert done.returncode == 2
    assert f"on CPUs {cpus}" in done.stderr


def test_streams_and_instances_divide_the_list_in_its_order() -> None:
    cell = replace(an_outcome().cell, num_cores=2, num_streams=2, scenario="async", cpu_list=(LAST, ALLOWED[0]))
    cpus = cpus_of(cell)
    assert cpus == (LAST, ALLOWED[0])
    assert lay_out("processes", "async", cpus, 2, 2, ()).children == (((LAST,),), ((ALLOWED[0],),))
    assert lay_out("auto", "sync", cpus, 2, 1, (), 2).children == (((LAST,),), ((ALLOWED[0],),))
    # A search tries fewer cores, too.
    assert cpus_of(replace(cell, num_cores=1)) == (LAST,)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--cpu-list", "0", "-ncores", "2"), "--cpu-list names 1, -ncores asks for 2: leave one out"),
        (("--cpu-list", "4095"), f"names CPU 4095, but this process may use only {', '.join(map(str, ALLOWED))}."),
        (("--cpu-list", "0", "-pin", "none"), "--cpu-list binds threads to CPUs, and -pin none does not"),
        (("--cpu-list", "first"), "'first' is not a whole number"),
    ],
)
@pytest.mark.parametrize("command", ["benchmark", "recommend", "profile"])
def test_what_contradicts_the_list_is_refused_in_a_sentence(
    inferlab_here: Run, command: str, options: tuple[str, ...], said: str
) -> None:
    done = inferlab_here(command, "demo:mlp", "-q", "--no-save", *options)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


def test_the_list_is_part_of_the_cell_and_of_every_file(tmp_path: Path) -> None:
    result = inferlab.benchmark(
        *("demo:mlp",), engine="fake", scenario="sync", cpu_list=[LAST], time=0.1, warmup_time=0, processes=1,
        verify=False, store=False,
    )  # fmt: skip
    cell = result.record.outcomes[0].cell
    assert (cell.cpu_list, cell.num_cores) == ((LAST,), 1)
    # What has no list keeps the id that it had before there were lists.
    assert replace(cell, cpu_list=()).id != cell.id
    for name in ("result.json", "result.csv", "result.md"):
        result.save(tmp_path / name)
        (read,) = benchmark_file.read(tmp_path / name)
        assert read["cpu_list"] == str(LAST)
    content = json.loads((tmp_path / "result.json").read_text())
    del content["cpu_list"]
    (tmp_path / "older.json").write_text(json.dumps(content))
    assert benchmark_file.read(tmp_path / "older.json")[0]["cpu_list"] is None
    (cell_blocks,) = [view.cell_blocks(result.record, outcome) for outcome in result.record.outcomes]
    assert f"CPUs: {LAST}" in tables.text(cell_blocks)
    with pytest.raises(BadInput, match="cpu_list is a whole number, not 'x'"):
        inferlab.benchmark("demo:mlp", cpu_list=["x"], store=False)  # type: ignore[list-item]


def test_a_plan_file_and_an_http_request_have_it(inferlab_here: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(f"cpu_list: [{LAST}]\nengine: fake\nscenario: sync\n")
    told = inferlab_here("benchmark", "demo:mlp", "--plan", plan, "--dry-run").stdout
    assert told.startswith(f"1. fake, sync, 1 core, batch 1, CPUs {LAST}\n")
    asked = Plan("", scenarios=("sync",), cpu_list=(0, 2))
    assert _posted(BenchmarkBody, {"cpu_list": [0, 2]}) == asked
    assert _posted(ProfileBody, {"cpu_list": [0, 2]}) == asked


def _posted(body: Any, content: dict[str, Any]) -> Plan:
    """The plan of a request that was posted."""
    app, plans = FastAPI(), []

    def take(asked: Any) -> None:
        plans.append(asked.plan)

    take.__annotations__ = {"asked": body}
    app.post("/")(take)
    assert TestClient(app).post("/", json=content).status_code == 200
    (plan,) = plans
    return plan  # type: ignore[no-any-return]
