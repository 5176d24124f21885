"""The data source ``kafka_records`` for Spark 4, which imports installed modules named ``pyspark_*`` to find such classes."""

from snaprebuild.spark.data_sources import KafkaRecords as DefaultSource

__all__ = ["DefaultSource"]
