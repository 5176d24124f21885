"""Rebuilds on Apache Spark: some tasks read the segments, others find and write the states at the boundaries.

For a notebook, or a job of your own (``docs/guides/spark.md``)::

    from snaprebuild.spark.notebook import rebuild
    result = rebuild(spark, "s3://bucket/backup", out="s3://bucket/snapshots")

``register`` lets a session read batch headers, producer snapshots and records in SQL (docs/reference/spark-sql.md).
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

__all__ = ["register"]

log = logging.getLogger(__name__)

ALREADY_EXISTS = "DATA_SOURCE_ALREADY_EXISTS"
"""The condition of Spark's error about the name of a data source."""


def register(session: SparkSession) -> None:
    """Lets a session read the data sources: ``session.read.format(NAME).load(PATH)``.

    Their names are ``kafka_batch_headers``, ``kafka_producer_snapshot`` and ``kafka_records``.

    Ships the code of this package to executors on other machines. In a local session the sources run in the interpreter that calls this,
    unless ``PYSPARK_PYTHON`` names another one.

    Args:
        session: of Spark, also of Spark Connect.

    Raises:
        UsageError: Spark is older than 4.0.
    """
    from snaprebuild.errors import UsageError
    from snaprebuild.spark.session import is_remote, python_of_driver, ship_code

    if not hasattr(session, "dataSource"):
        raise UsageError(f"the data sources need Spark 4.0 or newer, and this is {session.version}")
    from snaprebuild.spark.data_sources import BatchHeaders, KafkaRecords, ProducerSnapshots

    ship_code(session)
    with contextlib.nullcontext() if is_remote(session) else python_of_driver(session):
        for source in (BatchHeaders, KafkaRecords, ProducerSnapshots):
            _register(session, source)


def _register(session: SparkSession, source: type[DataSource]) -> None:
    """Registers a data source. Spark 4.0 refuses one that it has found by itself in an installed package: then it has it already."""
    from pyspark.errors import AnalysisException

    try:
        session.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != ALREADY_EXISTS:
            raise
        log.debug("%s was found by Spark itself", source.name())
