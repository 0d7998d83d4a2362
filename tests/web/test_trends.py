"""The trends of a project: its series, what changed, and what follows while somebody looks."""

from __future__ import annotations

import httpx
import pytest
from selenium import webdriver

from inferlab.store import open_store
from tests.helpers.runs import a_cell
from tests.helpers.series import save_point, wobbling
from tests.helpers.web_server import Server
from tests.helpers.web_user import Reader


@pytest.fixture
def project(http: httpx.Client) -> str:
    made = http.post("/projects", json={"source": "demo:mlp_medium", "name": "Trends"})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def test_a_project_shows_its_series_with_where_they_changed(
    browser: webdriver.Chrome, server: Server, project: str
) -> None:
    reader = Reader(browser, server.login)
    reader.open(f"/projects/{project}/trends")
    assert "No trends yet" in reader.read("no-trends")

    with open_store(str(server.store)) as store:
        for latency_ms in (*wobbling(2.0, 8), *wobbling(2.2, 4)):
            save_point(store, latency_ms, project_id=project, peak_memory_bytes=64 << 20)
        last = store.history(1)[0].id
    # The page follows the store without being opened again.
    reader.drawn("trend-chart")
    reader.see("trend-series", "12 entries")
    table = reader.read("trend-table", "+10.1 %")
    assert last not in table and table.count("\n") >= 2
    reader.miss("trend-findings")

    reader.choose("trend-metric", "Peak memory")
    reader.see("trend-table", "64 MiB")
    reader.choose("trend-metric", "Time")
    with open_store(str(server.store)) as store:
        save_point(store, 1.0, project_id=project, cell=a_cell(num_cores=2))
    reader.choose("trend-series", "fake, sync, 2 cores, batch 1, version 1.0 · 1 entry")
    reader.see("trend-findings", "1 note")
    # What is looked at stays when another series comes; now machines must be told apart.
    with open_store(str(server.store)) as store:
        save_point(store, 2.0, project_id=project, cpu="CPU B")
    assert "sync, 2 cores," in reader.read("trend-series", "CPU A, 4 cores")
    # They have no cell in common: that is said, and nothing is mixed.
    reader.choose("trend-across", "All machines together")
    reader.see("trend-notes", "have no other cell in common")
