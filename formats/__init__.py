"""Bytes to values and back, for every file that snaprebuild reads or writes.

One wire format per module. The grammars are written with construct and are the readable definition. Where speed matters, a fast
reader is derived from the grammar, and the tests prove the two equal.
Nothing in here handles paths, clocks or logging, or knows what Kafka does with a file: that belongs to ``snaprebuild``.

The modules in ``PUBLIC`` are public, each with the names in its ``__all__`` (docs/reference/api.md). The others serve them.
"""

__all__ = ["DISTRIBUTION", "PUBLIC"]

DISTRIBUTION = "snaprebuild"
"""The project that this package belongs to. Others may have a package of this name, too."""

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
