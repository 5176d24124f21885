"""Bytes to values and back, for every file that snaprebuild reads or writes.

One wire format per module. The grammars are written with construct and are the readable definition; where speed matters a
fast reader stands beside the grammar, is derived from it, and is proven equal to it by the tests. Nothing in here knows of
paths, clocks, logging or of what Kafka does with a file: that is the business of ``snaprebuild``.

The modules in ``PUBLIC`` are public, and of each the names in its own ``__all__`` (docs/reference/api.md). The others serve them.
"""

__all__ = ["PUBLIC"]

PUBLIC = (
    "broker.broker_files",
    "errors",
    "log.batch_headers",
    "log.control_record",
    "log.record_batch",
    "metadata.quorum_state",
    "partition.checkpoint_file",
    "partition.file_names",
    "partition.offset_index",
    "partition.partition_metadata",
    "partition.producer_snapshot",
    "partition.time_index",
    "partition.transaction_index",
)
