"""Log directories of random batches, small and made to collide: transactions, markers for nothing, holes, old formats, empty batches."""

import random
from dataclasses import dataclass, field
from pathlib import Path

from compressed_batches import packed
from control_records import build_end_transaction_marker
from strategies import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, batch_of, header_of, message_of

from formats.compression import CODECS
from formats.log.record_batch import Record, RecordHeader, build_record_batch


@dataclass
class GeneratedDirectory:
    """A log directory with one partition, ``orders-0``.

    Attributes:
        path: of the log directory.
        log_start: in its checkpoint.
        high_watermark: in its checkpoint.
        log_end: offset after the last batch.
        open_before: transactions in the snapshot at the first segment.
    """

    path: Path
    log_start: int
    high_watermark: int
    log_end: int
    open_before: dict[int, int] = field(default_factory=dict)

    @property
    def partition(self) -> Path:
        """The partition directory."""
        return self.path / "orders-0"


def _data(rng: random.Random, offset: int, producer: int, *, transactional: bool, compacted: bool) -> tuple[bytes, int]:
    """A batch of magic 2, and its count of offsets."""
    count = rng.randint(1, 6)
    deltas = [delta for delta in range(count) if not compacted or rng.random() < 0.6]
    records = []
    for delta in deltas:
        key = None if rng.random() < 0.2 else rng.randbytes(rng.randint(0, 20))
        value = None if rng.random() < 0.2 else rng.randbytes(rng.randint(0, 60))
        headers = tuple(
            RecordHeader(rng.choice([b"a", b"b", "ü".encode()]), rng.choice([None, b"", b"1"]))
            for _ in range(rng.choice([0, 0, 2]))
        )
        records.append(Record(rng.randint(0, 50), delta, key, value, headers))
    attributes = (TRANSACTIONAL if transactional else 0) | rng.choice([0, 0, LOG_APPEND_TIME])
    codec = rng.choice([0, 0, 0, CODECS.index("lz4"), CODECS.index("gzip")])
    header = header_of(
        offset,
        last_offset_delta=count - 1,
        record_count=len(records),
        attributes=attributes | codec,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=offset if producer >= 0 else -1,
        base_timestamp=1_760_000_000_000 + offset * 10,
        max_timestamp=1_760_000_000_050 + offset * 10,
    )
    plain = build_record_batch(header, records)
    return build_record_batch(header, packed(CODECS[codec], plain[61:])) if codec else plain, count


def _marker(offset: int, producer: int, *, commit: bool) -> bytes:
    header = header_of(
        offset, record_count=1, attributes=TRANSACTIONAL | CONTROL, producer_id=producer, producer_epoch=0,
        base_timestamp=1_760_000_000_000 + offset * 10, max_timestamp=1_760_000_000_000 + offset * 10,
    )  # fmt: skip
    return batch_of(header, [build_end_transaction_marker(commit=commit, coordinator_epoch=1)]).data


def _old(rng: random.Random, offset: int) -> tuple[bytes, int]:
    magic = rng.choice([0, 1])
    if rng.random() < 0.5:
        return message_of(magic, offset, rng.randbytes(5), timestamp=1_760_000_000_000 + offset).data, 1
    count = rng.randint(1, 4)
    inside = b"".join(
        message_of(magic, delta if magic else offset + delta, rng.randbytes(9), timestamp=1_760_000_000_000 + offset + delta).data
        for delta in range(count)
    )
    last = offset + count - 1
    outer = message_of(magic, last, packed("gzip", inside), timestamp=1_760_000_000_000 + last, attributes=CODECS.index("gzip"))
    return outer.data, count


def generate(seed: int, to: Path) -> GeneratedDirectory:
    """Writes the log directory of a seed."""
    rng = random.Random(seed)
    base = rng.choice([0, 0, 40])
    offset = base
    is_compacted = rng.random() < 0.3
    producers = [1, 2, 7, 1 << 33]
    open_before = {rng.choice(producers): base - rng.randint(1, 20)} if base and rng.random() < 0.6 else {}
    segments: dict[int, list[bytes]] = {base: []}
    begins: list[int] = []
    if rng.random() < 0.3:
        for _ in range(rng.randint(1, 6)):
            data, count = _old(rng, offset)
            segments[max(segments)].append(data)
            begins.append(offset)
            offset += count
    for _ in range(rng.randint(5, 60)):
        if is_compacted and rng.random() < 0.2:
            offset += rng.randint(1, 9)
        if rng.random() < 0.12:
            segments.setdefault(offset, [])
        producer = rng.choice(producers)
        begins.append(offset)
        if rng.random() < 0.25:
            segments[max(segments)].append(_marker(offset, producer, commit=rng.random() < 0.5))
            offset += 1
            continue
        if rng.random() < 0.2:
            producer = -1
        data, count = _data(rng, offset, producer, transactional=producer >= 0 and rng.random() < 0.8, compacted=is_compacted)
        segments[max(segments)].append(data)
        offset += count
    partition = to / "orders-0"
    partition.mkdir(parents=True)
    for start, batches in segments.items():
        (partition / f"{start:020d}.log").write_bytes(b"".join(batches))
    high_watermark = offset if rng.random() < 0.5 else rng.choice([*begins, offset])
    log_start = base if rng.random() < 0.6 else rng.randint(base, high_watermark) if high_watermark > base else base
    write_checkpoints(to, log_start=log_start, high_watermark=high_watermark, compacted=is_compacted)
    directory = GeneratedDirectory(to, log_start, high_watermark, offset, open_before)
    write_open_before(directory, base)
    return directory


def write_checkpoints(
    log_dir: Path, *, log_start: int = 0, high_watermark: int | None = None, compacted: bool = False, name: str = "orders 0"
) -> None:
    """The checkpoint files of a broker, by hand."""

    def checkpoint(offset: int | None) -> str:
        return "0\n0\n" if offset is None else f"0\n1\n{name} {offset}\n"

    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=oPmDX1AuSamVuUQffb-GZA\n")
    (log_dir / "log-start-offset-checkpoint").write_text(checkpoint(log_start))
    (log_dir / "replication-offset-checkpoint").write_text(checkpoint(high_watermark))
    (log_dir / "cleaner-offset-checkpoint").write_text(checkpoint(0 if compacted else None))


def write_open_before(directory: GeneratedDirectory, base: int) -> None:
    """The producer snapshot at the first segment, with its open transactions."""
    from log_dirs import snapshot_bytes, snapshot_name

    from formats.partition.producer_snapshot import ProducerEntry

    if base:
        entries = [
            ProducerEntry(producer, 0, 0, first, 0, 1_760_000_000_000, -1, first)
            for producer, first in directory.open_before.items()
        ]
        (directory.partition / snapshot_name(base)).write_bytes(snapshot_bytes(entries))
