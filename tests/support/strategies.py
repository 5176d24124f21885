"""The Hypothesis vocabulary of this project: logs, their bytes, and every way to cut them.

A generated log is made to collide: few producers, few epochs that rise, fall and return, transactions that stay open, markers for nothing.
It becomes real bytes, and next to every batch is what it means, stated here and not by the code under test.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TypeVar

from control_records import build_control_record, build_end_transaction_marker
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec.structs import replace
from reference_producer_state import DataBatch, EmptyControlBatch, Marker, ProducerBatch

from formats.log.control_record import ControlRecord
from formats.log.record_batch import BatchHeader, Record, RecordHeader, build_record_batch
from formats.partition.producer_snapshot import ProducerEntry

T = TypeVar("T")

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40


@dataclass(frozen=True)
class LogBatch:
    """A batch of a generated log.

    Attributes:
        data: its bytes.
        header: what a reader must find in them.
        meaning: what it says about a producer, None for a batch that says nothing.
    """

    data: bytes
    header: BatchHeader
    meaning: ProducerBatch | None = None


@dataclass(frozen=True)
class GeneratedLog:
    """Batches in log order."""

    batches: tuple[LogBatch, ...]

    @property
    def data(self) -> bytes:
        """The bytes of a segment that holds all of them."""
        return b"".join(batch.data for batch in self.batches)

    @property
    def positions(self) -> list[int]:
        """Where each batch begins in ``data``."""
        return list(accumulate((len(batch.data) for batch in self.batches), initial=0))[:-1]

    @property
    def headers(self) -> list[BatchHeader]:
        """The headers in log order."""
        return [batch.header for batch in self.batches]

    @property
    def meanings(self) -> list[ProducerBatch]:
        """The batches that the fold gets."""
        return [batch.meaning for batch in self.batches if batch.meaning is not None]

    def segments(self, cuts: Sequence[int]) -> list[GeneratedLog]:
        """The log cut before the batches with these (ascending) indices; a segment may be empty."""
        return [GeneratedLog(self.batches[low:high]) for low, high in pairwise((0, *cuts, len(self.batches)))]


# ---------------------------------------------------------------------------------------------------------------- bytes


def batch_of(header: BatchHeader, records: Sequence[Record] | bytes, meaning: ProducerBatch | None = None) -> LogBatch:
    """A batch of magic 2, with length and checksum as in its bytes."""
    data = build_record_batch(header, records)
    header = replace(header, magic=2, length=len(data) - 12, crc=int.from_bytes(data[17:21], "big"))
    return LogBatch(data, header, meaning)


def message_of(magic: int, offset: int, payload: bytes, *, timestamp: int = -1, attributes: int = 0) -> LogBatch:
    """A message of magic 0 or 1, by hand: crc, magic, attributes, timestamp (1 only), null key, value."""
    body = bytes((magic, attributes)) + (timestamp.to_bytes(8, "big", signed=True) if magic else b"")
    body += b"\xff\xff\xff\xff" + len(payload).to_bytes(4, "big") + payload
    crc = zlib.crc32(body)
    data = offset.to_bytes(8, "big") + (len(body) + 4).to_bytes(4, "big") + crc.to_bytes(4, "big") + body
    stamp = timestamp if magic else -1
    header = BatchHeader(
        base_offset=offset,
        length=len(body) + 4,
        partition_leader_epoch=-1,
        magic=magic,
        crc=crc,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp=stamp,
        max_timestamp=stamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=-1,
    )
    return LogBatch(data, header)


def header_of(base_offset: int, **fields: int) -> BatchHeader:
    """A header of magic 2 without producer, one record, everything else from ``fields``."""
    values = {
        "base_offset": base_offset,
        "length": 0,
        "partition_leader_epoch": 3,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": 0,
        "base_timestamp": 1000,
        "max_timestamp": 1000,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": 1,
    }
    return BatchHeader(**{**values, **fields})


# A batch inside a payload: what wrong hints may point at.
DECOY = build_record_batch(header_of(5, producer_id=7, producer_epoch=9, base_sequence=0), b"decoy")

payloads: SearchStrategy[bytes] = st.sampled_from((b"", b"x", bytes(17), b"\xff" * 30, DECOY, DECOY * 3)) | st.binary(max_size=40)
timestamps = st.sampled_from((-1, 0, 10, 999, 1000, 2000, 1 << 41, 253_402_300_799_999))
"""Clocks of 1970 (or of none, -1), of 2039, and of the last day of 9999."""
epochs = st.sampled_from((0, 0, 0, 1, 1, 2, 32766, 32767))
coordinator_epochs = st.sampled_from((0, 1, 2, 9))
LAST_EPOCH = 2**15 - 1
# The last two: ids that are equal in their low 16 bits, and ids as far apart as 16 bits reach.
producer_pools = st.sampled_from(
    (
        (7,),
        (7, 8),
        (0, 7),
        (0, 7, 8),
        (3, 3 + (1 << 16), 1 << 33),
        (3, 9, 3 + (1 << 20)),
        (2**63 - 2, 2**63 - 1),
        (0, (1 << 16) - 1),
    )
)
KINDS = (*["data"] * 5, *["marker"] * 4, "empty_control", "plain", "message", "wrapper", "kraft")
DENSE_KINDS = (*["data"] * 6, *["marker"] * 5, "empty_control")

records = st.builds(
    Record,
    timestamp_delta=INT64,
    offset_delta=INT32,
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=200),
    headers=st.lists(st.builds(RecordHeader, st.binary(max_size=9), st.none() | st.binary(max_size=9)), max_size=3).map(tuple),
    attributes=st.integers(-128, 127),
)

headers = st.builds(
    BatchHeader,
    base_offset=INT64,
    length=st.just(0),
    partition_leader_epoch=INT32,
    magic=st.just(2),
    crc=st.just(0),
    # No control bit: a control batch means something, and its records are read.
    attributes=INT16.map(lambda bits: bits & ~CONTROL),
    last_offset_delta=INT32,
    base_timestamp=INT64,
    max_timestamp=INT64,
    producer_id=INT64,
    producer_epoch=INT16,
    base_sequence=INT32,
    record_count=INT32,
)
"""Headers of data batches, every field anywhere in its width."""


# ---------------------------------------------------------------------------------------------------------------- logs


@st.composite
def logs(
    draw: DrawFn, *, min_batches: int = 0, max_batches: int = 12, start: int | None = None, is_dense: bool = False
) -> GeneratedLog:
    """A log that a broker could hold, though it need not be legal: Kafka throws at some of them.

    A dense one has one or two producers, and no batch that concerns none of them.
    """
    offset = draw(st.sampled_from((0, 10, 1 << 40))) if start is None else start
    pool = draw(st.sampled_from(((7,), (7,), (7, 8)))) if is_dense else draw(producer_pools)
    kinds = DENSE_KINDS if is_dense else KINDS
    # Most logs keep to their transactions, else nearly every log would end at its first batch outside of one.
    is_careless = draw(st.integers(0, 4)) == 0
    writers = {producer_id: _Writer(producer_id) for producer_id in pool}
    batches = []
    for _ in range(draw(st.integers(min_batches, max_batches))):
        offset += draw(st.sampled_from((0, 0, 0, 1, 50)))
        batch = _batch(draw, draw(st.sampled_from(kinds)), offset, writers[draw(st.sampled_from(pool))], is_careless)
        offset = max(offset, batch.header.last_offset) + 1
        batches.append(batch)
    return GeneratedLog(tuple(batches))


@dataclass
class _Writer:
    """A producer, with what it would write next if all went well."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    is_open: bool = False


def _batch(draw: DrawFn, kind: str, offset: int, writer: _Writer, is_careless: bool) -> LogBatch:
    producer_id = writer.producer_id
    match kind:
        case "data":
            is_transactional = draw(st.booleans()) or (writer.is_open and not is_careless)
            writer.is_open |= is_transactional
            return _data(draw, offset, writer, is_transactional)
        case "marker":
            writer.is_open = False
            return _marker(draw, offset, writer)
        case "empty_control":
            header = header_of(
                offset,
                attributes=CONTROL | draw(st.sampled_from((0, TRANSACTIONAL))),
                producer_id=producer_id,
                producer_epoch=draw(epochs),
                record_count=0,
                max_timestamp=draw(timestamps),
            )
            return batch_of(header, b"", EmptyControlBatch(producer_id))
        case "plain":
            delta = draw(st.sampled_from((0, 3)))
            header = header_of(offset, last_offset_delta=delta, record_count=delta + 1, max_timestamp=draw(timestamps))
            return batch_of(header, draw(payloads))
        case "message":
            magic = draw(st.integers(0, 1))
            stamp_type = LOG_APPEND_TIME * draw(st.integers(0, 1)) * magic
            return message_of(magic, offset, draw(payloads), timestamp=draw(timestamps), attributes=stamp_type)
        case "wrapper":
            # A compressed set of messages: the offset is that of the last one inside.
            attributes = draw(st.integers(1, 3))
            return message_of(draw(st.integers(0, 1)), offset + draw(st.integers(0, 3)), draw(payloads), attributes=attributes)
        case _:
            control = ControlRecord(0, draw(st.integers(2, 6)), draw(payloads))
            return batch_of(header_of(offset, attributes=CONTROL), [build_control_record(control)])


def _data(draw: DrawFn, offset: int, writer: _Writer, is_transactional: bool) -> LogBatch:
    delta = draw(st.sampled_from((0, 0, 1, 9)))
    if draw(st.booleans()):
        epoch, sequence = writer.epoch, writer.sequence
    else:
        epoch, sequence = draw(epochs), draw(st.sampled_from((-1, 0, 5, 2**31 - 1, 2**31 - 3, 2**31 - 10)))
    writer.epoch, writer.sequence = epoch, (sequence + delta + 1) % 2**31
    header = header_of(
        offset,
        attributes=TRANSACTIONAL * is_transactional + draw(st.sampled_from((0, 0, 1, 4, LOG_APPEND_TIME, DELETE_HORIZON))),
        last_offset_delta=delta,
        base_timestamp=draw(timestamps),
        max_timestamp=draw(timestamps),
        producer_id=writer.producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        # Compaction leaves fewer records than the delta says, or none.
        record_count=draw(st.sampled_from((delta + 1, 1, 0))),
    )
    meaning = DataBatch(
        writer.producer_id, header.producer_epoch, header.base_sequence, offset, delta, header.max_timestamp, is_transactional
    )
    return batch_of(header, draw(payloads), meaning)


def _marker(draw: DrawFn, offset: int, writer: _Writer) -> LogBatch:
    is_commit, coordinator_epoch, delta = draw(st.booleans()), draw(coordinator_epochs), draw(st.sampled_from((0, 0, 0, 7, -3)))
    is_log_append_time = draw(st.integers(0, 4)) == 0
    # In its own epoch; in the next, as with version 2 of transactions; or in any.
    following = min(writer.epoch + 1, LAST_EPOCH)
    epoch = draw(st.just(writer.epoch) | st.just(following) | epochs)
    if epoch != writer.epoch:
        writer.epoch, writer.sequence = epoch, 0
    has_second = draw(st.integers(0, 9)) == 0
    header = header_of(
        offset,
        attributes=CONTROL
        | draw(st.sampled_from((TRANSACTIONAL, TRANSACTIONAL, 0)))
        | LOG_APPEND_TIME * is_log_append_time
        | draw(st.sampled_from((0, 0, DELETE_HORIZON))),
        last_offset_delta=int(has_second),
        base_timestamp=draw(timestamps),
        max_timestamp=draw(timestamps),
        producer_id=writer.producer_id,
        producer_epoch=epoch,
        record_count=1 + has_second,
    )
    version, rest = draw(st.sampled_from(((0, b""), (0, b""), (0, b""), (1, b""), (1, b"later"), (0, b"long" * 40))))
    record = build_end_transaction_marker(
        commit=is_commit, coordinator_epoch=coordinator_epoch, version=version, rest=rest, timestamp_delta=delta
    )
    if draw(st.integers(0, 9)) == 0:
        record = replace(record, key=(1).to_bytes(2, "big") + (record.key or b"")[2:])  # a later version of the key
    # Of several records the first counts.
    second = build_end_transaction_marker(commit=not is_commit, coordinator_epoch=99, offset_delta=1)
    timestamp = header.max_timestamp if is_log_append_time else header.base_timestamp + delta
    meaning = Marker(writer.producer_id, header.producer_epoch, offset, timestamp, coordinator_epoch, is_commit)
    return batch_of(header, [record, second] if has_second else [record], meaning)


@st.composite
def incoming_entries(draw: DrawFn, *, below: int, pool: tuple[int, ...] = (0, 7, 8, 1 << 33)) -> tuple[ProducerEntry, ...]:
    """Entries of a snapshot at offset ``below``: no producer twice, no two transactions with one first offset."""
    producer_ids = draw(st.lists(st.sampled_from(pool), unique=True, max_size=3))
    firsts = draw(st.permutations(range(below - 5, below)))
    entries = []
    for producer_id, first in zip(producer_ids, firsts, strict=False):
        entry = ProducerEntry(
            producer_id,
            epoch=draw(epochs),
            timestamp=draw(timestamps),
            coordinator_epoch=draw(st.sampled_from((-1, 3, 9))),
            current_txn_first_offset=first if draw(st.booleans()) else -1,
        )
        if draw(st.booleans()):
            entry = replace(entry, last_sequence=draw(st.sampled_from((-1, 4))), last_offset=below - 1, offset_delta=2)
        entries.append(entry)
    return tuple(entries)


# ---------------------------------------------------------------------------------------------------------------- partitions


@dataclass(frozen=True)
class GeneratedPartition:
    """Segments in the order of their base offsets, and the torn bytes after the last."""

    segments: tuple[tuple[int, GeneratedLog], ...]
    torn: bytes = b""

    def write(self, directory: Path) -> Path:
        """Writes a partition directory, with nothing but the logs."""
        directory.mkdir(parents=True)
        for base_offset, log in self.segments:
            (directory / f"{base_offset:020d}.log").write_bytes(log.data)
        if self.torn:
            with (directory / f"{self.segments[-1][0]:020d}.log").open("ab") as last:
                last.write(self.torn)
        return directory


BROKEN_MARKERS = {
    "key too short": Record(0, 0, b"\0\0", b"\0" * 6),
    "negative version of the key": Record(0, 0, b"\xff\xff\0\1", b"\0" * 6),
    "no type of a marker": Record(0, 0, b"\0\0\0\3", b"\0" * 6),
    "unknown type": Record(0, 0, b"\0\0\0\x2a", b"\0" * 6),
    "negative version of the value": Record(0, 0, b"\0\0\0\1", b"\xff\xff" + b"\0" * 4),
    "value too short": Record(0, 0, b"\0\0\0\1", b"\0" * 5),
}
"""First records of control batches at which every broker throws."""


@st.composite
def partitions(draw: DrawFn, *, max_batches: int = 24, max_cuts: int = 4) -> GeneratedPartition:
    """A partition as it may lie on a disk: cut anywhere, gaps where compaction or a deletion left them. Some end with what chance seldom
    puts together, and in some is a control batch that no broker can read."""
    log = draw(logs(min_batches=1, max_batches=max_batches, is_dense=draw(st.booleans())))
    scene_cuts: list[int] = []
    if draw(st.booleans()):
        scene = draw(st.sampled_from(SCENES))
        for batches in scene(draw, log.batches[-1].header.last_offset + 1):
            scene_cuts.append(len(log.batches))
            log = GeneratedLog((*log.batches, *batches))
    if draw(st.integers(0, 3)) == 0:
        end = log.batches[-1].header.last_offset + 1
        # By the length of the log, too: what is drawn of few is often what was drawn before.
        which = (draw(st.integers(0, len(BROKEN_MARKERS) - 1)) + len(log.batches)) % len(BROKEN_MARKERS)
        marker = BROKEN_MARKERS[sorted(BROKEN_MARKERS)[which]]
        header = header_of(end, attributes=CONTROL | TRANSACTIONAL, producer_id=draw(st.sampled_from((0, 7))), producer_epoch=0)
        rest = draw(logs(max_batches=3, start=end + 1))
        log = GeneratedLog((*log.batches, batch_of(header, [marker]), *rest.batches))
    cuts = sorted({*scene_cuts, *draw(st.sets(st.integers(1, len(log.batches)), max_size=max_cuts))})
    segments: list[tuple[int, GeneratedLog]] = []
    end = log.batches[0].header.base_offset
    for part in log.segments(cuts):
        # A segment begins where the last one ended, or, across a gap, with its first batch; the last one may be empty.
        base_offset = part.batches[0].header.base_offset if bool(part.batches) and draw(st.booleans()) else end
        segments.append((base_offset, part))
        end = part.batches[-1].header.last_offset + 1 if part.batches else end
    torn = draw(st.sampled_from((0, 0, 0, 1, 16, 40, 70)))
    last = header_of(end, producer_id=7, producer_epoch=9, base_sequence=0)
    return GeneratedPartition(tuple(segments), batch_of(last, bytes(40)).data[:torn])


scene_producers = st.sampled_from((0, 7))
"""Producers of most logs, too."""


def _returning_epoch(draw: DrawFn, offset: int) -> list[list[LogBatch]]:
    """Data, and then markers of the next epoch and of the same: the replays of Kafka differ. By segment, as the others."""
    producer_id = draw(scene_producers)
    return [
        [_scene_data(offset, producer_id, 5)],
        [_scene_marker(offset + 1, producer_id, 6), _scene_marker(offset + 2, producer_id, 5)],
    ]


def _disagreeing_markers(draw: DrawFn, offset: int) -> list[list[LogBatch]]:
    """Data, and then a marker that keeps it and one that does not."""
    producer_id, epoch, other = draw(scene_producers), *draw(st.permutations((5, 6)))
    return [
        [_scene_data(offset, producer_id, epoch)],
        [_scene_marker(offset + 1, producer_id, epoch), _scene_marker(offset + 2, producer_id, other)],
    ]


def _broken_transaction(draw: DrawFn, offset: int) -> list[list[LogBatch]]:
    """A transaction is opened, and its producer writes outside of it, at once or after a control batch without its record."""
    producer_id = draw(scene_producers)
    between = []
    if draw(st.booleans()):
        between = [batch_of(header_of(offset + 1, attributes=CONTROL, producer_id=producer_id, record_count=0), b"")]
    broken = _scene_data(offset + 2, producer_id, 5, attributes=0)
    return [[_scene_data(offset, producer_id, 5)], [*between, broken]]


def _unknown_beside_a_transaction(draw: DrawFn, offset: int) -> list[list[LogBatch]]:
    """A control batch without its record is all that there is of a producer; another one's transaction is open."""
    unknown = batch_of(header_of(offset + 1, attributes=CONTROL, producer_id=11, record_count=0), b"")
    return [[_scene_data(offset, draw(scene_producers), 5), unknown]]


SCENES = (_returning_epoch, _disagreeing_markers, _broken_transaction, _unknown_beside_a_transaction)


def _scene_data(offset: int, producer_id: int, epoch: int, attributes: int = TRANSACTIONAL) -> LogBatch:
    header = header_of(offset, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, attributes=attributes)
    return batch_of(header, bytes(100))  # too long for a block of two headers to hold another batch


def _scene_marker(offset: int, producer_id: int, epoch: int) -> LogBatch:
    header = header_of(offset, producer_id=producer_id, producer_epoch=epoch, attributes=CONTROL | TRANSACTIONAL)
    return batch_of(header, [build_end_transaction_marker(commit=True, coordinator_epoch=0)])


# ---------------------------------------------------------------------------------------------------------------- cuts


def cuts_of(log: GeneratedLog, *, max_cuts: int = 5) -> SearchStrategy[list[int]]:
    """Any split of a log into segments; the same cut twice makes an empty one."""
    return st.lists(st.integers(0, len(log.batches)), max_size=max_cuts).map(sorted)


block_sizes: SearchStrategy[int] = st.sampled_from((1, 122, 128, 1 << 10, 8 << 20)) | st.integers(1, 2000)
"""Any split of a segment into blocks of the fast reader."""


groupings: SearchStrategy[tuple[int, ...]] = st.tuples(*[st.integers(0, 11)] * 11)
"""Any bracketing of up to twelve values: which neighbours are joined first, and so on."""


def grouped(values: Sequence[T], grouping: Sequence[int], join: Callable[[T, T], T]) -> T:
    """``values`` joined in the order that ``grouping`` says, never swapped."""
    rest = list(values)
    for choice in grouping[: len(values) - 1]:
        index = choice % (len(rest) - 1)
        rest[index : index + 2] = [join(rest[index], rest[index + 1])]
    (result,) = rest
    return result
