"""The page about scale says what its script reckons, and the packing is as even as is claimed."""

import sys

import pytest
from manifests import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "scripts"))
import scale_model

pytestmark = pytest.mark.night

BALANCE_MAX = 1.5


def test_the_page_holds_the_tables() -> None:
    page = scale_model.PAGE.read_text()
    packing = scale_model.packing_table()
    assert "\n".join(packing) in page
    assert "\n".join(scale_model.model_table(scale_model.Day())) in page
    assert max(float(row.split("|")[-2]) for row in packing[2:]) <= BALANCE_MAX
