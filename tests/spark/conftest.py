"""Spark: one session for all tests, in one worker of pytest-xdist. Where Java is missing they say so, and fail where ``CI=true``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from manifests import REPOSITORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A session takes ten seconds to start, and all the memory of a JVM."""
    for item in items:
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores of this machine. Its Python workers import the code of this checkout."""
    from snaprebuild.errors import UsageError
    from snaprebuild.spark.session import check_java, opened_session

    try:
        check_java()
    except UsageError as error:
        pytest.skip(f"NOT RUN: jobs of Apache Spark (marker spark): {error}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", ":".join((str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")]))))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        with opened_session("local[2]") as session:
            yield session
