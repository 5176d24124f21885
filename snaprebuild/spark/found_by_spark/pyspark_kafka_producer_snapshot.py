"""The data source ``kafka_producer_snapshot`` for Spark 4, which imports installed modules named ``pyspark_*`` to find such classes."""

from snaprebuild.spark.data_sources import ProducerSnapshots as DefaultSource

__all__ = ["DefaultSource"]
