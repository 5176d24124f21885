"""The data source ``kafka_batch_headers`` for Spark 4, which imports installed modules named ``pyspark_*`` to find such classes."""

from snaprebuild.spark.data_sources import BatchHeaders as DefaultSource

__all__ = ["DefaultSource"]
