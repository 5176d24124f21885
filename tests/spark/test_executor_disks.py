"""Executors that see another directory at the path of the driver, as on hosts where a share is not mounted."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from driver_process import reported, started_driver
from manifests import FIXTURES

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.root]

PYTHON = """#!/bin/sh
# Python of executors, with a mount of its own. The workers that plan queries of data sources belong to the driver.
case "$*" in
*pyspark.worker*) exec unshare --mount sh -c '{mount}; exec {python} "$@"' sh "$@" ;;
esac
exec {python} "$@"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize("there", ["nothing", "older files"])
def test_no_file_seems_to_be_deleted(tmp_path: Path, there: str) -> None:
    """Each function and each query fails with the reason. None lists partitions as lost, and none has other rows."""
    logs = tmp_path / "logs"
    older = tmp_path / "older"
    for place in (logs, older):
        shutil.copytree(FIXTURES / "kafka27-mixed" / "logs", place)
    for snapshot in older.rglob("*.snapshot"):
        snapshot.unlink()
    mount = f"mount -t tmpfs none {logs}" if there == "nothing" else f"mount --bind {older} {logs}"
    python = tmp_path / "python"
    python.write_text(PYTHON.format(mount=mount, python=sys.executable))
    python.chmod(0o755)
    environment = {"PYSPARK_PYTHON": str(python)}
    driver = started_driver("other_disk_driver.py", [logs], tmp_path, master="local[2]", environment=environment)
    answers = reported(driver)
    sources = ["kafka_batch_headers", "kafka_producer_snapshot", "kafka_records"]
    assert list(answers) == ["scan", "plan", "verify", "verify by rows", *sources]
    for answer in answers.values():
        assert answer.startswith("5\n")
        assert f"{logs}: the executor on " in answer
        assert "does not have this directory of the driver" in answer
        assert "gone" not in answer
        assert "lost-log" not in answer
