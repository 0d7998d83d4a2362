"""Numbers for people."""

from __future__ import annotations

import pytest

from inferlab import units


@pytest.mark.parametrize(
    ("value", "text"), [(83.50371, "83.5037"), (0.0, "0.0000"), (0.0048293, "0.0048293"), (1234.5, "1234.5000")]
)
def test_decimals_keep_four_digits_that_count(value: float, text: str) -> None:
    assert units.decimal(value).rstrip("0") == text.rstrip("0")
    assert len(units.decimal(value).partition(".")[2]) >= 4


@pytest.mark.parametrize(
    ("count", "text"),
    [(12, "12 bytes"), (2048, "2 KiB"), (1_023_700, "1000 KiB"), (300_000_000, "286 MiB"), (5 << 40, "5120 GiB")],
)
def test_sizes_have_binary_units(count: int, text: str) -> None:
    assert units.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.2e-8, "32 ns"), (1.5e-5, "15 µs"), (0.25, "250 ms"), (2.0, "2 s"), (5000.0, "5000 s")]
)
def test_durations_have_the_unit_that_suits_them(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (8_178_000_000, "FLOP", "8.18 GFLOP"),
        (25_557_032, "", "25.6 M"),
        (999_900_000, "FLOP", "1000 MFLOP"),
        (10, "FLOP", "10 FLOP"),
        (0, "", "0"),
    ],
)
def test_large_numbers_have_the_prefix_of_their_unit(value: float, unit: str, text: str) -> None:
    assert units.scaled(value, unit) == text


@pytest.mark.parametrize(("fraction", "text"), [(0.12345, "12.3 %"), (1.0, "100 %"), (12.344, "1234 %")])
def test_shares_are_percentages_without_exponents(fraction: float, text: str) -> None:
    assert units.share(fraction) == text
