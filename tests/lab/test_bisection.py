"""The search for the first bad release asks for few comparisons."""

from __future__ import annotations

import math

import pytest

from inferlab.lab.bisection import first_bad, most_comparisons

VERSIONS = [f"1.{minor}" for minor in range(36)]


@pytest.mark.parametrize("count", [2, 3, 8, 9, 36])
def test_the_first_bad_release_is_found_in_as_few_comparisons_as_a_binary_search_needs(count: int) -> None:
    versions = VERSIONS[:count]
    # One comparison, of the last with the first, was made before.
    most = math.ceil(math.log2(count - 1))
    assert most_comparisons(versions) == most + 1
    for bad in range(1, count):
        asked: list[str] = []

        def is_bad(version: str, bad: int = bad, asked: list[str] = asked) -> bool:
            asked.append(version)
            return versions.index(version) >= bad

        assert first_bad(versions, is_bad) == (versions[bad - 1], versions[bad], ())
        assert len(asked) <= most


def test_a_release_that_cannot_be_tried_is_passed_over_and_named_where_it_matters() -> None:
    def is_bad(version: str) -> bool | None:
        return None if version in ("1.4", "1.5") else VERSIONS.index(version) >= 5

    assert first_bad(VERSIONS[:10], is_bad) == ("1.3", "1.6", ("1.4", "1.5"))
    assert first_bad(VERSIONS[:4], lambda version: None) == ("1.0", "1.3", ("1.1", "1.2"))
    assert first_bad(VERSIONS[:2], lambda version: None) == ("1.0", "1.1", ())
