"""The page about scale says what its script reckons, and the packing is as even as is claimed."""

from __future__ import annotations

import sys

import pytest
from manifests import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "scripts"))
import scale_model

pytestmark = pytest.mark.full

BALANCE_MAX = 1.5


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
@pytest.mark.parametrize(("partitions", "cores"), [(1, 2), (40, 16), (3_000, 16), (3_000, 700)])
def test_no_task_has_much_more_than_the_mean(partitions: int, cores: int, exponent: float) -> None:
    """Also where a task would have one segment and a bit, or one partition has nearly everything."""
    for seed, size in enumerate((64 << 30, 1 << 40, 9 << 40)):
        found = scale_model.balance(scale_model.zipf_sizes(partitions, size, exponent, seed), cores)
        assert found.worst <= BALANCE_MAX, (size, found)


def test_the_page_holds_the_tables() -> None:
    page = scale_model.PAGE.read_text()
    packing = scale_model.packing_table()
    assert "\n".join(packing) in page
    assert "\n".join(scale_model.model_table(scale_model.Day())) in page
    assert max(float(row.split("|")[-2]) for row in packing[2:]) <= BALANCE_MAX
