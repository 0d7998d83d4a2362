"""What can be said of a cluster before there is one."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
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
        ({"cluster": "auto", "nodes": 0}, "The number of machines of each type must be at least 1, not 0"),
        (
            {"cluster": "auto", "wait_s": -1.0},
            "The wait for machines must be at least 0 seconds and finite, not -1",
        ),
        ({"cluster": "auto", "prices": (("c7i", 0.0),)}, "The price of c7i must be more than 0, not 0"),
        ({"cluster": "ray://head:10001"}, "Run inferlab on a machine of the cluster"),
        ({"cluster": "head"}, "'head' is not the address of a Ray cluster. Write it as HOST:6379"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_started(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        Lab().benchmark(a_plan(**fields))


def test_an_address_at_which_nothing_listens_is_refused_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BadInput) as caught:
            Lab().benchmark(a_plan(cluster=address))
    assert str(caught.value).startswith(f"There is no Ray cluster to join at '{address}': connection refused.")


def test_a_cluster_that_asks_for_a_token_says_so(tmp_path: Path) -> None:
    tools = Path(sys.executable).parent
    homes = {name: tmp_path / name for name in ("head", "here")}
    for home in homes.values():
        (home / ".ray").mkdir(parents=True)
    (homes["head"] / ".ray" / "auth_token").write_text("a" * 64)
    common = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    common |= {"RAY_USAGE_STATS_ENABLED": "0"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Short: the path of a socket has a limit.
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        command = [
            str(tools / "ray"),
            "start",
            "--head",
            f"--port={port}",
            "--num-cpus=0",
            "--include-dashboard=false",
        ]
        head = subprocess.Popen(
            [*command, "--node-ip-address=127.0.0.1", f"--temp-dir={folder}", "--block"],
            env={**common, "HOME": str(homes["head"]), "RAY_AUTH_MODE": "token"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            _wait_for(port)
            done = subprocess.run(
                [tools / "inferlab", "benchmark", "demo:mlp", "-e", "fake", "--cluster", f"127.0.0.1:{port}"],
                env={**common, "HOME": str(homes["here"]), "INFERLAB_CACHE": str(tmp_path / "cache")},
                capture_output=True,
                text=True,
            )
        finally:
            # A head that is asked to end waits half a minute for its work to end, and has none.
            os.killpg(head.pid, signal.SIGKILL)
            head.wait(30)
    assert done.returncode == 2
    assert f"The Ray cluster at '127.0.0.1:{port}' asks for a token" in done.stderr
    assert "set RAY_AUTH_MODE=token" in done.stderr


def _wait_for(port: int) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(0.1)
    raise AssertionError("the head did not start")


def test_without_ray_the_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadInput, match="pip install 'inferlab"):
        Lab().benchmark(a_plan(cluster="local"))


def test_nothing_of_ray_is_imported_before_a_cluster_is_named() -> None:
    code = "import sys, inferlab, inferlab.lab, inferlab.fleet.executor; print('ray' in sys.modules)"
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
    assert {(worker["resources"][name], worker["min_workers"]) for name, worker in workers.items()} == {(1, 0)}
