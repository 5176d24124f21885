"""Every reader of ``formats/`` as a function of bytes: it returns, or raises an error of the tree of `formats/errors.py`.

Where a checksum keeps random bytes out there is a second target, which sets the right checksum first.
"""

import hashlib
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import index_reference
import replication_codec
from aiven_index_reader import mask, xored
from compressed_batches import packed
from manifests import FIXTURES
from record_events import by_records, in_columns

from formats import compression
from formats.broker import broker_files
from formats.checksum import crc32c
from formats.errors import FormatError
from formats.log import batch_headers, control_record, record_batch, records
from formats.metadata import cluster_metadata, quorum_state, replication_messages
from formats.partition import (
    checkpoint_file,
    file_kind,
    file_names,
    offset_index,
    partition_metadata,
    producer_snapshot,
    time_index,
    transaction_index,
)
from formats.remote import aiven_encryption, aiven_manifest, object_names, remote_log_metadata, upload_claim

HEALTHY = FIXTURES / "damaged" / "healthy"
AIVEN = FIXTURES / "aiven-layout" / "plain" / "store"
SEED_BYTES_MAX = 4096
DECOMPRESSED_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class Target:
    """Something that takes bytes.

    Attributes:
        run: takes them. Raises where something is wrong with us, and not with the bytes.
        seeds: where a search begins.
    """

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


def bundled(*patterns: str, head: int = SEED_BYTES_MAX) -> Callable[[], list[bytes]]:
    """Beginnings of bundled files."""

    def seeds() -> list[bytes]:
        paths = [path for pattern in patterns for path in sorted(FIXTURES.glob(pattern))[:4]]
        assert paths, patterns
        return [path.read_bytes()[:head] for path in paths]

    return seeds


def reading(read: Callable[[bytes], object]) -> Callable[[bytes], None]:
    """A reader: it gives a value or an error of the formats."""

    def run(data: bytes) -> None:
        try:
            read(data)
        except FormatError as error:
            str(error)

    return run


# ---------------------------------------------------------------------------------------------------------------- readers


def _batches(data: bytes) -> None:
    """Each batch of a segment, its records, which are the same in columns, and its control records."""
    assert in_columns(data, group_bytes=200) == by_records(data)
    at = 0
    while at < len(data):
        batch = data[at:]
        header = record_batch.check_batch(batch, position=at)
        batch = batch[: header.size_bytes]
        for each in records.read_records(header, batch, position=at):
            str(each)
        at += header.size_bytes


def _headers(data: bytes) -> None:
    """The quick reader and the grammar, with and without a hint, find the same batches and the same end."""
    found = []
    for engine in (True, False):
        reader = batch_headers.HeaderReader(batch_headers.BytesSegment(data), check_crc=engine)
        rows = sum(len(block) for block in reader)
        assert reader.tail is not None
        found.append((rows, reader.tail.kind))
    assert found[0] == found[1]


def _record(data: bytes) -> None:
    parsed, _ = record_batch.parse_record(data)
    control_record.parse_control_record(parsed)


def _control(data: bytes) -> None:
    key, value = data[:4], data[4:]
    control_record.parse_control_record(record_batch.Record(0, 0, key, value, (), 0))


def _snapshot(data: bytes) -> None:
    quick = producer_snapshot.read_entries(data)
    assert len(quick) == len(producer_snapshot.parse_snapshot(data))


def _sealed_snapshot(data: bytes) -> None:
    """With the right version and checksum, which random bytes else do not have."""
    _snapshot(struct.pack(">hI", 1, crc32c(data)) + data)


def _sealed_batch(data: bytes) -> None:
    """Reads a batch of magic 2 with the right length and checksum. Its fields from the attributes on, and its records, are those
    given."""
    body = data.ljust(40, b"\0")
    batch = struct.pack(">qiibI", 0, 9 + len(body), 0, 2, crc32c(body)) + body
    _headers(batch)
    _batches(batch)


def _compressed(codec: int, data: bytes) -> bytes:
    return data if codec == 0 else packed(compression.CODECS[codec], data)


def _sealed_records(data: bytes) -> None:
    """Records of magic 2 in each codec: the first bytes are codec, attributes and count."""
    codec, attributes, count = (*data[:3], 0, 0, 0)[:3]
    body = struct.pack(">hiqqqhii", attributes & 0x38 | codec % 5, 0, 0, 0, 7, 0, 0, count) + _compressed(codec % 5, data[3:])
    batch = struct.pack(">qiibI", 0, 9 + len(body), 0, 2, crc32c(body)) + body
    _batches(batch)


def _sealed_message(data: bytes, magic: int, attributes: int) -> bytes:
    body = bytes((magic, attributes)) + data
    return struct.pack(">qiI", 0, 4 + len(body), zlib.crc32(body)) + body


def _sealed_messages(data: bytes) -> None:
    """Messages of magic 0 and 1; where the first byte names a codec, a message in a wrapper."""
    how, body = (data[0], data[1:]) if data else (0, b"")
    magic, codec = how & 1, (how >> 1) % 4
    message = _sealed_message(body, magic, 0)
    if codec:
        value = _compressed(codec, message * (1 + (how >> 6)))
        message = _sealed_message(bytes(8 * magic) + struct.pack(">ii", -1, len(value)) + value, magic, codec)
    _headers(message)
    _batches(message)


def _sealed_gzip(data: bytes) -> None:
    """Reads deflated data in a frame of gzip, with its checksum and its length."""
    try:
        plain = zlib.decompressobj(-15).decompress(data, DECOMPRESSED_BYTES_MAX)
    except zlib.error:
        plain = b""
    framed = bytes.fromhex("1f8b0800000000000003") + data + struct.pack("<II", zlib.crc32(plain), len(plain))
    compression.decompress(1, framed, bytes_max=DECOMPRESSED_BYTES_MAX)


RSA_BYTES = 256
NO_RSA = aiven_encryption.PrivateKey(modulus=(1 << 8 * RSA_BYTES) - 1, exponent=1)
"""To the power of one nothing changes: what is padded is what is read."""


def _data_key(data: bytes) -> None:
    """A data key, padded as given, and padded well around what is given."""
    NO_RSA.data_key(data[:1] + data[1:].ljust(RSA_BYTES - 1, b"\0"), b"")


def _sealed_data_key(data: bytes) -> None:
    plain = (hashlib.sha3_512(b"").digest() + data).ljust(RSA_BYTES - 65, b"\0")[: RSA_BYTES - 65]
    seed = bytes(64)
    masked = xored(plain, mask(seed, len(plain)))
    NO_RSA.data_key(b"\0" + xored(seed, mask(masked, 64)) + masked, b"")


def _offset_index(data: bytes) -> None:
    offset_index.positions_hint(data, 1 << 20)
    assert offset_index.read_offset_index(data) == index_reference.read_offset_index_reference(data)


def _time_index(data: bytes) -> None:
    time_index.last_timestamp_hint(data)
    assert time_index.read_time_index(data) == index_reference.read_time_index_reference(data)


def _transaction_index(data: bytes) -> None:
    assert transaction_index.read_transaction_index(data) == index_reference.read_transaction_index_reference(data)


def _replication(data: bytes) -> None:
    kinds = list(replication_messages.ReplicationMessage)
    kind = kinds[data[0] % len(kinds)] if data else kinds[0]
    versions = replication_codec.versions_of(kind)
    version = versions.lowest + data[1] % (versions.highest - versions.lowest + 1) if len(data) > 1 else versions.lowest
    replication_codec.read_replication_message(kind, data[2:], version)
    if kind is replication_messages.ReplicationMessage.ALTER_PARTITION_REQUEST:
        replication_codec.read_alter_partition_request(data[2:], version)
    if kind is replication_messages.ReplicationMessage.ALTER_PARTITION_RESPONSE:
        replication_codec.read_alter_partition_response(data[2:], version)


def _decompress(data: bytes) -> None:
    codec, magic = (data[0] % 5, 2 if data[0] & 0x80 else data[0] >> 6 & 1) if data else (1, 2)  # of 0 lz4 frames are sealed
    compression.decompress(codec, data[1:], bytes_max=DECOMPRESSED_BYTES_MAX, magic=magic)


def _names(data: bytes) -> None:
    name = os.fsdecode(data)
    for parse in (
        file_names.parse_file_name,
        file_names.parse_partition_dir_name,
        object_names.parse_local_tier_name,
        object_names.parse_aiven_key,
        upload_claim.parse_claim_key,
        file_kind.kind_of_name,
    ):
        parse(name)


def _kind(data: bytes) -> None:
    file_kind.kind_of_content(data, len(data))


def _names_seeds() -> list[bytes]:
    below = (path.relative_to(FIXTURES).as_posix() for path in (*HEALTHY.rglob("*"), *AIVEN.rglob("*")))
    return [*sorted({name.encode() for path in below for name in (path, path.rpartition("/")[2])})[:200]]


def _record_values(*names: str) -> Callable[[], list[bytes]]:
    def seeds() -> list[bytes]:
        found = []
        for name in names:
            data, at = (HEALTHY / name).read_bytes(), 0
            while at < len(data) and len(found) < 40:
                header = record_batch.check_batch(data[at:])
                batch = data[at : at + header.size_bytes]
                found += [each.value for each in records.read_records(header, batch) if each.value is not None]
                at += header.size_bytes
        return found

    return seeds


def _none() -> list[bytes]:
    return [b"", b"\0" * 64]


RECORD = bytes.fromhex("0e00000001027600")
"""No key, the value ``v``, no headers."""
LOGS = (
    "damaged/healthy/log/payments-0/*.log",
    "magic?/logs/*/*0.log",
    "damaged/healthy/node/payments-0/*727.log",
    "txn-state/logs/*/*.log",
)
READERS = {
    "batches": Target(reading(_batches), bundled(*LOGS)),
    "batch-headers": Target(reading(_headers), bundled(*LOGS)),
    "batch-header": Target(reading(record_batch.parse_batch_header), bundled(*LOGS, head=100)),
    "record": Target(reading(_record), _none),
    "control-record": Target(reading(_control), lambda: [b"\0\0\0\1" + bytes(6), b"\0\0\0\2" + bytes(20), b"\0\0\0\6" + bytes(30)]),
    "producer-snapshot": Target(reading(_snapshot), bundled("damaged/*/log*/*.snapshot", "damaged/*/payments-0/*.snapshot")),
    "sealed-snapshot": Target(reading(_sealed_snapshot), lambda: [b"\0\0\0\1" + bytes(46), b"\0\0\0\2" + bytes(range(92))]),
    "sealed-batch": Target(reading(_sealed_batch), lambda: [each[21:] for each in bundled(*LOGS, head=600)()]),
    "sealed-records": Target(reading(_sealed_records), lambda: [bytes((codec, 0, 1)) + RECORD for codec in range(5)]),
    "sealed-messages": Target(reading(_sealed_messages), lambda: [bytes((how,)) + bytes(8) + b"\xff" * 4 for how in range(8)]),
    "sealed-gzip": Target(reading(_sealed_gzip), lambda: [zlib.compress(each, wbits=-15) for each in (b"", b"a" * 90, RECORD)]),
    "data-key": Target(reading(_data_key), _none),
    "sealed-data-key": Target(reading(_sealed_data_key), lambda: [b"\1" + bytes(32), bytes(90) + b"\1" + b"k" * 32]),
    "private-key": Target(
        reading(aiven_encryption.PrivateKey.of_pem), lambda: [(FIXTURES / "aiven-layout/keys/key1.private.pem").read_bytes()]
    ),
    "offset-index": Target(reading(_offset_index), bundled("kafka27-mixed/logs/*/*.index")),
    "time-index": Target(reading(_time_index), bundled("kafka27-mixed/logs/*/*.timeindex")),
    "transaction-index": Target(reading(_transaction_index), bundled("kafka27-mixed/logs/*/*.txnindex")),
    "leader-epochs": Target(reading(checkpoint_file.read_leader_epoch_checkpoint), bundled("*/logs/*/leader-epoch-checkpoint")),
    "offset-checkpoint": Target(reading(checkpoint_file.read_offset_checkpoint), bundled("*/logs/*-offset-checkpoint")),
    "properties": Target(reading(broker_files.read_properties), bundled("*/logs/meta.properties")),
    "meta-properties": Target(reading(broker_files.read_meta_properties), bundled("*/logs/meta.properties")),
    "clean-shutdown": Target(reading(broker_files.read_clean_shutdown), bundled("*/logs/.kafka_cleanshutdown")),
    "partition-metadata": Target(reading(partition_metadata.read_partition_metadata), bundled("*/logs/*/partition.metadata")),
    "quorum-state": Target(reading(quorum_state.read_quorum_state), bundled("*/logs/*/quorum-state", "*/*/*/quorum-state")),
    "cluster-metadata": Target(
        reading(cluster_metadata.read_cluster_metadata_record), _record_values(f"controller/__cluster_metadata-0/{720:020d}.log")
    ),
    "remote-log-metadata": Target(
        reading(remote_log_metadata.read_remote_log_record), _record_values(f"tier/metadata/__remote_log_metadata-0/{0:020d}.log")
    ),
    "replication-messages": Target(reading(_replication), _none),
    "aiven-manifest": Target(reading(aiven_manifest.read_aiven_manifest), bundled("aiven-layout/*/store/**/*.rsm-manifest")),
    "upload-claim": Target(reading(upload_claim.read_claim), lambda: [b'{"version":1,"segment_id":"AAAAAAAAAAAAAAAAAAAAQQ"}']),
    "decompress": Target(reading(_decompress), lambda: [bytes((codec,)) + bytes(40) for codec in range(5)]),
    "names": Target(reading(_names), _names_seeds),
    "file-kind": Target(reading(_kind), bundled(*LOGS, "damaged/healthy/log/payments-0/*.snapshot", head=64)),
}
