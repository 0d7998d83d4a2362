"""What the machine is, and which CPUs a measurement gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferlab import machine
from inferlab.errors import BadInput
from inferlab.machine import Core

TWO_SOCKETS = (Core((0, 4), 0), Core((1, 5), 0), Core((2, 6), 1), Core((3, 7), 1))


@pytest.fixture
def two_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cores", lambda: TWO_SOCKETS)


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-3,8,10-11\n", [0, 1, 2, 3, 8, 10, 11]), ("5", [5]), ("", []), ("\n", [])]
)
def test_a_list_of_cpus_is_read_as_linux_writes_it(text: str, cpus: list[int]) -> None:
    assert machine.parse_cpu_list(text) == cpus


@pytest.mark.usefixtures("two_sockets")
def test_pinning_to_cores_takes_one_thread_of_each_core_and_fills_a_node_first() -> None:
    assert machine.choose_cpus(3, "core") == (0, 1, 2)


@pytest.mark.usefixtures("two_sockets")
def test_pinning_to_nodes_takes_every_thread_of_the_nodes_that_have_the_cores() -> None:
    assert machine.choose_cpus(2, "numa") == (0, 4, 1, 5)
    assert machine.choose_cpus(3, "numa") == (0, 4, 1, 5, 2, 6, 3, 7)


@pytest.mark.usefixtures("two_sockets")
def test_no_pinning_takes_no_cpus() -> None:
    assert machine.choose_cpus(4, "none") == ()


@pytest.mark.usefixtures("two_sockets")
def test_more_cores_than_there_are_is_refused() -> None:
    with pytest.raises(BadInput, match="5 cores were asked for, but this machine has 4 physical cores"):
        machine.choose_cpus(5, "none")


@pytest.mark.parametrize(("quota", "cores"), [(None, 4), (2.5, 2), (0.5, 1), (64.0, 4)])
@pytest.mark.usefixtures("two_sockets")
def test_by_default_no_more_cores_are_used_than_the_container_pays_for(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, cores: int
) -> None:
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota)
    assert machine.usable_cores() == cores


def test_this_machine_describes_itself() -> None:
    here = machine.describe()
    assert here.physical_cores >= 1 and here.logical_cpus >= here.physical_cores
    assert here.cpu and here.node


@pytest.mark.parametrize(
    ("sets", "width", "vnni"),
    [
        (("avx", "avx2"), "avx2", False),
        (("avx2", "avx512f", "avx512_vnni"), "avx512", True),
        (("asimd",), "neon", False),
    ],
)
def test_instruction_sets_have_the_names_that_deepsparse_users_know(
    sets: tuple[str, ...], width: str, vnni: bool
) -> None:
    assert machine.vector_width(sets) == width
    assert machine.has_vnni(sets) is vnni


@pytest.mark.parametrize(
    ("vendor", "product", "known"),
    [("Amazon EC2", "c7i.large", "c7i.large"), ("Google", "Google Compute Engine", None), ("", "", None)],
)
def test_the_instance_type_is_what_amazons_firmware_says(
    vendor: str, product: str, known: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INFERLAB_INSTANCE_TYPE", raising=False)
    folder = tmp_path / "sys/devices/virtual/dmi/id"
    folder.mkdir(parents=True)
    (folder / "sys_vendor").write_text(vendor + "\n")
    (folder / "product_name").write_text(product + "\n")
    assert machine.instance_type(tmp_path) == known
    monkeypatch.setenv("INFERLAB_INSTANCE_TYPE", "e2-standard-4")
    assert machine.instance_type(tmp_path) == "e2-standard-4"
