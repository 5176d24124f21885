"""The page about scale says what its script reckons, and the packing is as even as is claimed. Its measurement of the driver runs."""

import os
import subprocess
import sys

import pytest
import scale_model
from manifests import REPOSITORY

pytestmark = pytest.mark.night

BALANCE_MAX = 1.5


def test_the_page_holds_the_tables() -> None:
    page = scale_model.PAGE.read_text()
    packing = scale_model.packing_table()
    assert "\n".join(packing) in page
    assert "\n".join(scale_model.model_table(scale_model.Day())) in page
    assert max(float(row.split("|")[-2]) for row in packing[2:]) <= BALANCE_MAX


@pytest.mark.spark
def test_the_memory_of_the_driver_is_measured_on_the_real_driver() -> None:
    """In two waves: every boundary gets its result, and no task failed."""
    command = [sys.executable, REPOSITORY / "scripts" / "bench" / "spark_driver.py", "60000", "--of-a-partition", "1000"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "boundaries: {'would_write': 60000}; findings: 0" in done.stdout
    assert done.stdout.count("a wave of ") == 2
