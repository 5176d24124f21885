"""Sizes and durations on the command line, with and without a unit."""

from __future__ import annotations

import click
import pytest

from snaprebuild.cli.options.common import Duration, Size, WholeNumber


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        (Size, "67108864", 67_108_864),
        (Size, "64MiB", 67_108_864),
        (Size, "1KiB", 1024),
        (Size, "2GiB", 2_147_483_648),
        (Duration, "86400000", 86_400_000),
        (Duration, "1d", 86_400_000),
        (Duration, "12h", 43_200_000),
        (Duration, "15m", 900_000),
        (Duration, "30s", 30_000),
        (Duration, "5ms", 5),
    ],
)
def test_a_unit_multiplies(kind: type[WholeNumber], text: str, number: int) -> None:
    assert kind(1, 2**63 - 1).convert(text, None, None) == number


def test_a_number_may_be_negative_where_that_means_something() -> None:
    """As -1 does for log.retention.bytes: no limit."""
    assert WholeNumber(-1, 2**63 - 1).convert("-1", None, None) == -1
    with pytest.raises(click.BadParameter, match="expected a number from -1 to 9223372036854775807, found '-2'"):
        WholeNumber(-1, 2**63 - 1).convert("-2", None, None)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((Size, text) for text in ("64MB", "MiB", "1.5GiB", "-1MiB", "1d", "0KiB", "9999999999TiB")),
        *((Duration, text) for text in ("1w", "1D", "1 d", "1KiB", "999999999999999d", "")),
    ],
)
def test_what_is_none_or_too_large_is_refused(kind: type[WholeNumber], text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected a number from 1 to 9223372036854775807"):
        kind(1, 2**63 - 1).convert(text, None, None)
