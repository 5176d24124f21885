"""One partition of a broker that left snapshots out, and one of a broker that did not."""

from pathlib import Path

import pytest
from scan_results import mixed_alone


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A partition of 2.7.2, with 12 of 15 snapshots missing."""
    return mixed_alone("kafka27-mixed", tmp_path)


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    """A partition of 4.3.1, which lacks nothing."""
    return mixed_alone("kafka4-mixed", tmp_path)
