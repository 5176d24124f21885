"""The same rebuild on Apache Spark: segments are read by its tasks, the states at the boundaries found and written by others.

For a notebook, or a job of one's own (``docs/spark.md``)::

    from snaprebuild.spark.notebook import rebuild
    result = rebuild(spark, "s3://bucket/backup", out="s3://bucket/snapshots")
"""
