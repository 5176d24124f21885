"""Every limit on what input may require, in one place, each with its reason.

A declared length never allocates by itself: it is compared with the bytes that are there and with a limit of this module.
"""

__all__ = [
    "BATCH_HEADER_BYTES_MAX",
    "CHUNKS_MAX",
    "CHUNK_BYTES_MAX",
    "CONTROL_BATCH_BYTES_MAX",
    "DATA_BATCH_BYTES_MAX",
    "HEADER_BLOCK_BYTES",
    "INDEX_BYTES_MAX",
    "INT32_MAX",
    "INT32_MIN",
    "INT64_MAX",
    "INT64_MIN",
    "KRAFT_VOTERS_MAX",
    "MANIFEST_BYTES_MAX",
    "MANIFEST_VALUES_MAX",
    "METADATA_BATCH_BYTES_MAX",
    "METADATA_TRANSACTION_RECORDS_MAX",
    "META_PROPERTIES_BYTES_MAX",
    "PROPERTIES_BYTES_MAX",
    "PROPERTIES_LINES_MAX",
    "QUORUM_STATE_BYTES_MAX",
    "RANGES_MAX",
    "RECORD_BYTES_MAX",
    "RECORD_HEADERS_MAX",
    "RECORD_WINDOW_BYTES",
    "SEGMENT_BYTES_MAX",
    "SNAPSHOT_BYTES_MAX",
    "TAGGED_FIELDS_MAX",
    "TEXT_FILE_BYTES_MAX",
    "TEXT_LINES_MAX",
    "TEXT_LINE_BYTES_MAX",
    "VARINT_BYTES_MAX",
    "VARLONG_BYTES_MAX",
]

INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1
INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
"""Java's int and long."""

BATCH_HEADER_BYTES_MAX = 61
"""The header of magic 2, the longest of the three."""

CONTROL_BATCH_BYTES_MAX = 1 << 20
"""A control batch holds one marker (78 bytes) or one KRaft record; the largest KRaft one, the voter set, has some hundred bytes
a voter. 1 MiB is a thousand times what a cluster of 9 voters needs."""

DATA_BATCH_BYTES_MAX = 256 << 20
"""One batch of data, as it is stored and decompressed. `message.max.bytes` is 1 MiB by default and bounds what is stored; 256 times that
leaves room for topics that raise it, and for data that compresses well."""

SEGMENT_BYTES_MAX = 2**31 - 1
"""A segment: positions in it are int32, and a broker opens no larger file (`FileRecords.open`). Zeros at the end of one are not
counted: a file with holes ends anywhere."""

SNAPSHOT_BYTES_MAX = 46 * 50_000_000 + 10
"""A producer snapshot of 50 million entries (2.3 GB). Kafka reads the file into one Java array of at most 2^31 - 1 bytes, so no
broker can load a larger one."""

TEXT_FILE_BYTES_MAX = 64 << 20
"""Checkpoints. A broker with 200,000 partitions has an offset checkpoint of about 10 MB."""

TEXT_LINES_MAX = 1_000_000
"""Lines of a checkpoint: five times the partitions that any broker was run with. As an entry a line takes up to 150 bytes, whatever it has
in the file."""

TEXT_LINE_BYTES_MAX = 2 << 20
"""One line of a text file, which is held decoded, in up to four bytes for each. No line of a checkpoint has 300; the values of a
configuration may be as long as its file."""

PROPERTIES_BYTES_MAX = 2 << 20
"""Configurations: some KiB."""

PROPERTIES_LINES_MAX = 100_000
"""Properties and comments of a configuration; brokers know some 400 settings. A property takes up to 150 bytes, whatever it has in the
file."""

META_PROPERTIES_BYTES_MAX = 64 << 10
"""`meta.properties`: 122 bytes, and what somebody remarked by hand. Verbs keep those of several directories and nodes at a time."""

QUORUM_STATE_BYTES_MAX = 1 << 18
"""`quorum-state`: some 200 bytes, and 20 for each of `KRAFT_VOTERS_MAX`. JSON of short values takes some thirty times its size."""

MANIFEST_VALUES_MAX = 100_000
"""Values in the JSON of a manifest: some 40, and one for each leader epoch of the segment. Each takes up to 100 bytes, and two in the
file."""

INDEX_BYTES_MAX = 1 << 30
"""An offset, time or transaction index. `segment.index.bytes` is an int and 10 MiB by default; it is mapped as a whole by the
broker."""

RECORD_BYTES_MAX = 64 << 20
"""One record or message of a compressed batch that is decompressed as it is read. `max.request.size` is 1 MiB by default, and bounds a
record before it is compressed."""

RECORD_WINDOW_BYTES = 1 << 20
"""Bytes of the decompressed records of a batch that are held at a time. A smaller batch is decompressed at once."""

RECORD_HEADERS_MAX = 100_000
"""Headers of one record. Each needs at least two bytes, and a header-less marker is the only record that replay reads."""

VARINT_BYTES_MAX = 5
"""An int32 as a varint (`ByteUtils.readVarint`)."""

VARLONG_BYTES_MAX = 10
"""An int64 as a varint (`ByteUtils.readVarlong`)."""

KRAFT_VOTERS_MAX = 10_000
"""Voters in a KRaft control record. Real quorums have 3 to 9."""

TAGGED_FIELDS_MAX = 1_000
"""Tagged fields of one structure. Kafka's schemas have 9 at most; each that is not known is kept."""

HEADER_BLOCK_BYTES = 4 << 20
"""Size of the blocks of the fast header reader. It is large enough that a block costs less than its batches, and small
enough that its bytes are still in the processor's cache during the walk. 8 MiB cost 10 to 20 ns more for each batch of 350
bytes."""

RANGES_MAX = 1024
"""Ranges into which a segment is split. The largest segment (`segment.bytes` and positions are int32) has 32 of 64 MiB; below 2 MiB a
range costs more to hand out than to read."""

MANIFEST_BYTES_MAX = 2 << 20
"""The manifest of a segment in remote storage: some 700 bytes, and where chunks are compressed about three for each of them, six at most.
As JSON it takes up to eight times its size, for one character beyond U+FFFF."""

CHUNKS_MAX = 1 << 18
"""Chunks of a segment in remote storage: of 2 GiB in chunks of 8 KiB; `chunk.size` of the plugin is some MiB. Each takes up to 40 bytes,
and three words in the manifest make any number of them."""

CHUNK_BYTES_MAX = 256 << 20
"""A chunk of a segment in remote storage, which is held whole. The plugin's `chunk.size` is some MiB; it allows 1 GiB."""

SCENARIO_BYTES_MAX = 1 << 16
"""A scenario of `simulate metadata-log`, read as a whole: six hundred replicas and listeners take 60 KiB."""

ISR_SCENARIO_BYTES_MAX = 1 << 17
"""A scenario of `simulate isr`: some 20 bytes for each of 1,000 steps, and its comments."""

METADATA_BATCH_BYTES_MAX = 16 << 20
"""A batch of the metadata log or of a checkpoint, whose records are held at a time. Raft writes none of more than 8 MiB
(`KafkaRaftClient.MAX_BATCH_SIZE_BYTES`), and compresses none."""

METADATA_TRANSACTION_RECORDS_MAX = 2_000_000
"""Records of one transaction of the metadata log, which are held until it ends. A controller writes the records of its
bootstrap so, and up to 3.9 those of a whole ZooKeeper cluster: one for each topic, partition and configuration."""
