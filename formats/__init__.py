"""Bytes to values and back, for every file that snaprebuild reads or writes.

One wire format per module. The grammars are written with construct and are the readable definition; where speed matters a
fast reader stands beside the grammar, is derived from it, and is proven equal to it by the tests. Nothing in here knows of
paths, clocks, logging or of what Kafka does with a file: that is the business of ``snaprebuild``.

The modules in ``__all__`` are public, and of each the names in its own ``__all__`` (docs/api.md). The others serve them.
"""

__all__ = [
    "batch_headers",
    "broker_files",
    "checkpoint_file",
    "control_record",
    "errors",
    "file_names",
    "offset_index",
    "partition_metadata",
    "producer_snapshot",
    "quorum_state",
    "record_batch",
    "time_index",
    "transaction_index",
]
