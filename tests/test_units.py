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


@pytest.mark.parametrize(
    ("value", "ends", "told"),
    [
        (107.3, (63.2, 181.9), "107 (63 to 182)"),
        (2.0, (1.9981, 2.0019), "2.0000 (1.9981 to 2.0019)"),
        (1.01283, (0.9812, 1.0454), "1.013 (0.981 to 1.045)"),
        (22221.0, (21034.0, 23475.0), "22200 (21000 to 23500)"),
        (0.00986, (0.0097, 0.01003), "0.00986 (0.00970 to 0.01003)"),
        (2.0, (1.99999999, 2.00000001), "2.0000 (2.0000 to 2.0000)"),
        (2.0, (2.0, 2.0), "2.0000 (2.0000 to 2.0000)"),
        (2.0, (1.0, 4.0), "2.0 (1.0 to 4.0)"),
        (2.0, (0.9, 4.1), "2.0000 (too noisy for an interval)"),
        (1.0, (0.0000010992, 103323.0), "1.0000 (too noisy for an interval)"),
        (1.0, (0.0, 1.5), "1.0000 (too noisy for an interval)"),
        (1.0, None, "1.0000 (no interval)"),
    ],
)
def test_a_value_has_the_digits_that_its_interval_supports(
    value: float, ends: tuple[float, float] | None, told: str
) -> None:
    assert f"{units.rounded(value, ends)} ({units.between(ends)})" == told


def test_an_interval_names_its_level_only_where_it_says_something() -> None:
    assert units.interval_text((0.9, 1.1), 0.98) == "98% interval 0.90 to 1.10"
    assert units.interval_text((0.1, 11.0), 0.98) == "too noisy for an interval"
    assert units.interval_text(None, 0.98) == "too few processes for an interval"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (90.0, "About 90 s would settle it."),
        (3600.0, "About 3600 s would settle it."),
        (86490.0, "It cannot be settled here: that would take more than 3600 s. Close other programs "),
    ],
)
def test_what_cannot_be_settled_in_an_hour_is_said_to_be_so(seconds: float, told: str) -> None:
    assert units.would_settle(seconds).startswith(told)
