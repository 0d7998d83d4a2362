"""What can be said of a cluster before there is one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from inferlab.errors import BadInput
from inferlab.lab import Lab
from inferlab.records import Plan


def a_plan(**fields: Any) -> Plan:
    return Plan("demo:mlp", engines=("fake",), **fields)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"on": ("c7i",)}, "belong to a cluster. Name it with --cluster"),
        ({"prices": (("c7i", 1.0),)}, "belong to a cluster. Name it with --cluster"),
        ({"cluster": "auto", "nodes": 0}, "At least 1 machine of each type measures, not 0"),
        ({"cluster": "auto", "wait_s": -1.0}, "The wait for machines must be 0 seconds or more"),
        ({"cluster": "auto", "prices": (("c7i", 0.0),)}, "The price of c7i must be more than 0 an hour"),
        ({"cluster": "ray://head:10001"}, "Run inferlab on a machine of the cluster"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_started(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        Lab().benchmark(a_plan(**fields))


def test_without_ray_the_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadInput, match="pip install 'inferlab"):
        Lab().benchmark(a_plan(cluster="local"))


def test_nothing_of_ray_is_imported_before_a_cluster_is_named() -> None:
    import subprocess

    code = "import sys, inferlab, inferlab.lab, inferlab.fleet.sweep; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path.cwd())
    assert done.stdout == "False\n"


def test_the_cluster_file_of_the_documentation_is_one_that_ray_takes() -> None:
    import yaml
    from ray.autoscaler._private.util import validate_config

    found = yaml.safe_load((Path(__file__).parents[2] / "docs/fleet-cluster.yaml").read_text())
    validate_config({**found, "cluster_synced_files": []})
    workers = {name: one for name, one in found["available_node_types"].items() if name != "head"}
    # Each type is asked for by its name, is started when it is, and measures one thing at a time.
    assert sorted(workers) == ["c7g", "c7i", "m7a"]
    assert {(one["resources"][name], one["min_workers"]) for name, one in workers.items()} == {(1, 0)}
