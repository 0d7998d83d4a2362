"""Models that are made to do harm are refused, and the server goes on."""

from __future__ import annotations

import httpx
import pytest

from benchmarks.fuzzing.onnx_mutations import mutate, seed_models
from tests.helpers.bombs import function_bomb
from tests.helpers.http_calls import refused, uploaded


def test_functions_that_become_a_billion_nodes_are_refused_and_the_server_goes_on(http: httpx.Client) -> None:
    source = uploaded(http, "bomb.onnx", function_bomb().SerializeToString())
    said = refused(http.post("/models/analyse", json={"source": source}), 400)
    assert "bomb.onnx is damaged" in said
    assert "1,073,741,824 nodes once its functions are inlined" in said
    assert refused(http.post("/projects", json={"source": source, "name": "Bomb"}), 400) == said
    assert http.get("/system").status_code == 200


@pytest.mark.parametrize("seed", range(6))
def test_mutated_models_are_analysed_or_refused(seed: int, http: httpx.Client) -> None:
    source = uploaded(http, "mutated.onnx", mutate(seed_models()["control"], seed))
    assert http.post("/models/analyse", json={"source": source}).status_code in (200, 400)
