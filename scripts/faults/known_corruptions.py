"""Known corruptions: what is wrong with each, how it is made, and which runs find it."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from control_cases import (
    BASES,
    COPIES,
    END,
    LONGER,
    METADATA_LOG,
    NODE,
    ROOT,
    Files,
    P,
    batches_end,
    copied,
    copied_to,
    copies_of,
    cut_to,
    entries,
    flipped,
    holding,
    segment,
    snapshot,
    tier_file,
    without_files,
)

from formats.checksum import crc32c
from formats.log.record_batch import BatchHeader, build_record_batch, parse_batch_header
from formats.partition.producer_snapshot import ProducerEntry

__all__ = ["CORRUPTIONS", "Corruption", "ExpectedFinding"]

OTHER_TOPIC = ROOT / "fixtures" / "kraft-cluster3" / "node1" / "orders-0" / "00000000000000000091.snapshot"
AS_OF_MS = 1_795_266_500_000
"""Some minutes after the last batch: no producer has expired."""


@dataclass(frozen=True)
class ExpectedFinding:
    """A run of a verb, and what it finds. ``{}`` in the arguments is replaced by the directory.

    Attributes:
        arguments: verb and all.
        code: the finding.
        severity: of it.
        exit_code: of the run.
        reason: of it, where its code has several.
    """

    arguments: str
    code: str
    severity: str
    exit_code: int
    reason: str | None = None


@dataclass(frozen=True)
class Corruption:
    """One thing that is wrong.

    Attributes:
        healthy: the directory that it is made of, which is also its control case.
        what: has happened.
        change: makes it, in a copy of the healthy files.
        findings: the runs that report it.
    """

    healthy: str
    what: str
    change: Callable[[Files], None]
    findings: list[ExpectedFinding] = field(default_factory=list)


def torn_tail(files: Files) -> None:
    files[segment(116)] = files[segment(116)][:-37]


def flipped_bit(files: Files) -> None:
    log = files[segment(56)]
    files[segment(56)] = flipped(log, batches_end(log, 5) - 3)


def lost_header(files: Files) -> None:
    log = files[segment(56)]
    at = batches_end(log, 5)
    files[segment(56)] = log[:at] + b"\xff" * 61 + log[at + 61 :]


def written_twice(files: Files) -> None:
    log = files[segment(56)]
    first = batches_end(log, 3)
    second = batches_end(log, 4)
    files[segment(56)] = log[:second] + log[first:]


def gap(files: Files) -> None:
    for suffix in (".log", ".index", ".timeindex", ".snapshot"):
        del files[f"{P}{56:020d}{suffix}"]


def hanging_transaction(files: Files) -> None:
    header = appended(files, producer_id=900, attributes=0x10, timestamp=AS_OF_MS - 100_000, base_sequence=0)
    producers = entries(files.pop(snapshot(END)))
    entry = ProducerEntry(900, 0, 0, header.base_offset, 0, header.max_timestamp, -1, header.base_offset)
    files[snapshot(END + 1)] = snapshot_of([*producers, entry])


def clock_in_the_future(files: Files) -> None:
    appended(files, producer_id=-1, attributes=0, timestamp=253_370_764_800_000, base_sequence=-1)
    files[snapshot(END + 1)] = files.pop(snapshot(END))


def appended(files: Files, *, producer_id: int, attributes: int, timestamp: int, base_sequence: int) -> BatchHeader:
    """One more batch of one record at the end of the log."""
    template = parse_batch_header(files[segment(116)])
    epoch = 0 if producer_id >= 0 else -1
    fields = {name: getattr(template, name) for name in BatchHeader.__struct_fields__}
    fields |= {"base_offset": END, "attributes": attributes, "last_offset_delta": 0, "producer_id": producer_id}
    fields |= {"base_timestamp": timestamp, "max_timestamp": timestamp, "producer_epoch": epoch}
    fields |= {"base_sequence": base_sequence, "record_count": 1}
    header = BatchHeader(**fields)
    files[segment(116)] += build_record_batch(header, RECORD)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        files[name] = f"0\n1\npayments 0 {END + 1}\n".encode()
    return header


RECORD = bytes.fromhex("0e00000001027600")
"""No key, the value ``v``, no headers."""


def twice_in_a_snapshot(files: Files) -> None:
    producers = entries(files[snapshot(116)])
    files[snapshot(116)] = snapshot_of([*producers, producers[0]])


def snapshot_of(rows: list[ProducerEntry]) -> bytes:
    """A snapshot of any entries, also of such that no broker would write."""
    values = [tuple(getattr(row, name) for name in ProducerEntry.__struct_fields__) for row in rows]
    checked = struct.pack(">i", len(rows)) + b"".join(struct.pack(">qhiqiqiq", *row) for row in values)
    return struct.pack(">hI", 1, crc32c(checked)) + checked


def lost_abort(files: Files) -> None:
    files[f"{P}{LONGER[-1]:020d}.txnindex"] = b""


def index_elsewhere(files: Files) -> None:
    offset, position = struct.unpack(">ii", files[f"{P}{56:020d}.index"])
    files[f"{P}{56:020d}.index"] = struct.pack(">ii", offset, position + 9)


def replaced_disk(files: Files) -> None:
    files["meta.properties"] = re.sub(rb"directory\.id=.*", b"directory.id=AAAAAAAAAAAAAAAAAAAAQQ", files["meta.properties"])


def foreign_topic(files: Files) -> None:
    files[P + "partition.metadata"] = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAQQ"


def one_record_more(files: Files) -> None:
    log = (NODE / "__remote_log_metadata-0" / f"{0:020d}.log").read_bytes()
    files[METADATA_LOG] = log[: batches_end(log, 2 * len(BASES) + 1)]


def two_attempts(files: Files) -> None:
    """The broker announces the next attempt under another segment id."""
    one_record_more(files)
    log = files[METADATA_LOG]
    at = batches_end(log, 2 * len(BASES))
    first = log[at:]
    header = parse_batch_header(first)
    (segment_id,) = {path.name[21:43] for path in copies_of((173,))}
    name = base64.urlsafe_b64decode(segment_id + "==")
    records = first[61:]  # a header of magic 2
    assert records.count(name) == 1
    fields = {each: getattr(header, each) for each in BatchHeader.__struct_fields__}
    fields["base_offset"] += header.last_offset_delta + 1
    files[METADATA_LOG] = log + build_record_batch(BatchHeader(**fields), records.replace(name, bytes(reversed(name))))


def unknown_copy(files: Files) -> None:
    for path in copies_of((173,)):
        files[f"remote/{COPIES.parent.name}/{COPIES.name}/{path.name}"] = path.read_bytes()


def half_a_copy(files: Files) -> None:
    one_record_more(files)
    files[tier_file(173, ".log")] = copied(173, ".log")


EMPTY_SNAPSHOT = bytes.fromhex("000148674bc700000000")
C = "__cluster_metadata-0/"


def torn_checkpoint(files: Files) -> None:
    name = f"{C}{740:020d}-0000000004.checkpoint"
    files[name] = files[name][: len(files[name]) // 2]


def metadata_gap(files: Files) -> None:
    name = f"{C}{720:020d}"
    for each in [each for each in files if each.endswith((".checkpoint", "index")) and not each.startswith(f"{name}-")]:
        del files[each]
    log = files[f"{name}.log"]
    first = batches_end(log, 10)
    behind = batches_end(log, 20)
    files[f"{name}.log"] = log[:first]
    files[f"{C}{struct.unpack_from('>q', log, behind)[0]:020d}.log"] = log[behind:]


VERIFY = f"verify {{}} --as-of {AS_OF_MS}"
SCAN = "scan {}"
SOURCE = "cluster source {}"
SOURCE_OF_LOG = "cluster source {} --metadata fixtures/damaged/healthy/node"
INVENTORY = "tier inventory {}/remote --metadata-log {}/metadata"
AUDIT = f"tier audit {{}}/remote --metadata-log {{}}/metadata --as-of {AS_OF_MS}"
KRAFT = "cluster check {}"


def wrong(arguments: str, code: str, reason: str | None = None) -> ExpectedFinding:
    return ExpectedFinding(arguments, code, "finding", 1, reason)


def bad(arguments: str, code: str, reason: str | None = None) -> ExpectedFinding:
    return ExpectedFinding(arguments, code, "damaged", 4, reason)


def noted(arguments: str, code: str, reason: str | None = None) -> ExpectedFinding:
    return ExpectedFinding(arguments, code, "note", 0, reason)


def refused(arguments: str, code: str, reason: str | None = None) -> ExpectedFinding:
    return ExpectedFinding(arguments, code, "refused", 3, reason)


CORRUPTIONS: dict[str, Corruption] = {
    "torn-tail": Corruption(
        "log",
        "the last 37 bytes of the log are lost, as of a copy that was stopped",
        torn_tail,
        [
            ExpectedFinding(VERIFY, "snapshot-above-log-end", "finding", 4, None),
            bad(VERIFY, "lost-log-end"),
            bad(SCAN, "lost-log-end"),
            bad(f"inspect dump {{}}/{segment(116)}", "torn-tail"),
            noted("inspect stats {}", "torn-tail"),
        ],
    ),
    "flipped-bit": Corruption("log", "one bit of a record in the middle is another", flipped_bit, [bad(VERIFY, "bad-checksum")]),
    "lost-header": Corruption(
        "log", "the header of a batch in a rolled segment is overwritten", lost_header, [bad(VERIFY, "damaged-segment")]
    ),
    "written-twice": Corruption("log", "a batch is twice in a rolled segment", written_twice, [bad(VERIFY, "disordered-offsets")]),
    "gap": Corruption(
        "log", "the segment in the middle is gone, with its indexes and snapshot", gap, [wrong(VERIFY, "unsound-boundary")]
    ),
    "false-empty": Corruption(
        "log",
        "a snapshot holds no producer, as a broker writes that found none and was stopped cleanly",
        holding(snapshot(116), EMPTY_SNAPSHOT),
        [wrong(VERIFY, "wrong-snapshot", "false-empty"), wrong(SCAN, "suspect-snapshot", "false-empty")],
    ),
    "zero-bytes": Corruption(
        "log", "a snapshot has no bytes, as after a power failure", holding(snapshot(116), b""), [wrong(SCAN, "corrupt-snapshot")]
    ),
    "stale": Corruption(
        "log",
        "a snapshot is that of the boundary before",
        copied_to(snapshot(56), snapshot(116)),
        [wrong(VERIFY, "wrong-snapshot", "stale")],
    ),
    "stray": Corruption(
        "log",
        "a snapshot at an offset where no segment begins",
        copied_to(snapshot(56), snapshot(90)),
        [noted(SCAN, "stray-snapshots")],
    ),
    "wrong-offset": Corruption(
        "log",
        "a snapshot has the name of an earlier boundary, and holds the state of a later one",
        copied_to(snapshot(173), snapshot(56)),
        [wrong(SCAN, "suspect-snapshot", "other-offset"), wrong(VERIFY, "wrong-snapshot", "corrupt")],
    ),
    "foreign-snapshot": Corruption(
        "log",
        "a snapshot is that of another topic",
        holding(snapshot(116), OTHER_TOPIC.read_bytes()),
        [wrong(VERIFY, "wrong-snapshot", "missing-entries")],
    ),
    "twice-in-a-snapshot": Corruption(
        "log",
        "a snapshot holds a producer twice",
        twice_in_a_snapshot,
        [wrong(SCAN, "suspect-snapshot", "producer-twice"), bad(f"inspect dump {{}}/{snapshot(116)}", "impossible-entries")],
    ),
    "missing-snapshot": Corruption(
        "log",
        "a segment that was rolled by a broker before 2.8 has no snapshot at its end",
        without_files(snapshot(56)),
        [wrong(SCAN, "missing-snapshots")],
    ),
    "missing-index": Corruption(
        "log", "a rolled segment has no offset index", without_files(f"{P}{56:020d}.index"), [wrong(SCAN, "missing-offset-index")]
    ),
    "index-elsewhere": Corruption(
        "log",
        "an offset index points into the middle of a batch",
        index_elsewhere,
        [wrong(f"inspect dump {{}}/{P}{56:020d}.index", "index-mismatch")],
    ),
    "torn-index": Corruption(
        "log",
        "half of an offset index is there, as of a copy that was stopped",
        cut_to(f"{P}{56:020d}.index", 5),
        [bad(f"inspect dump {{}}/{P}{56:020d}.index", "damaged-file")],
    ),
    "empty-segment": Corruption(
        "log",
        "a rolled segment has no bytes",
        holding(segment(56), b""),
        [wrong(SCAN, "empty-segment"), wrong(VERIFY, "unsound-boundary")],
    ),
    "later-checkpoints": Corruption(
        "log",
        "a backup was put back below checkpoints of a later time: the log ends below its start",
        holding("log-start-offset-checkpoint", b"0\n1\npayments 0 5000\n"),
        [
            bad(SCAN, "log-start-above-log-end"),
            bad(VERIFY, "log-start-above-log-end"),
            refused(SOURCE_OF_LOG, "source-rejected", "log-end"),
        ],
    ),
    "backup-inside": Corruption(
        "log",
        "somebody kept a copy of a partition in the log directory",
        copied_to(snapshot(56), f"payments-0.bak/{56:020d}.snapshot"),
        [bad(SCAN, "foreign-directory")],
    ),
    "hanging-transaction": Corruption(
        "log",
        "a transaction that was never ended",
        hanging_transaction,
        [wrong(f"inspect transactions {{}} --as-of {AS_OF_MS + 86_400_000}", "late-transaction")],
    ),
    "clock-in-the-future": Corruption(
        "log",
        "a client's clock was in the year 9999",
        clock_in_the_future,
        [noted(f"inspect stats {{}} --as-of {AS_OF_MS}", "timestamps-in-the-future")],
    ),
    "epoch-regression": Corruption(
        "log",
        "the leader epochs do not ascend",
        holding(P + "leader-epoch-checkpoint", b"0\n2\n3 0\n2 80\n"),
        [refused(SOURCE_OF_LOG, "source-rejected", "leader-epochs")],
    ),
    "misnamed": Corruption(
        "log",
        "somebody kept a copy of a snapshot next to it",
        copied_to(snapshot(56), P + "backup.snapshot"),
        [bad(SCAN, "misnamed-file")],
    ),
    "interrupted-compaction": Corruption(
        "log",
        "the cleaner had swapped a segment and not finished",
        copied_to(segment(56), segment(56) + ".swap"),
        [wrong(SCAN, "interrupted-compaction")],
    ),
    "lost-abort": Corruption(
        "longer-log", "the index of aborted transactions lacks one", lost_abort, [wrong(VERIFY, "transaction-index-differs")]
    ),
    "replaced-disk": Corruption(
        "node",
        "the disk is not the one with which the broker registered",
        replaced_disk,
        [refused(SOURCE, "source-rejected", "directory-id")],
    ),
    "foreign-topic": Corruption(
        "node",
        "the partition is of a topic of the same name that was deleted",
        foreign_topic,
        [refused(SOURCE, "source-rejected", "topic-id")],
    ),
    "phantom-upload": Corruption(
        "tier",
        "a copy was announced twice, and each upload ended in an exception",
        two_attempts,
        [wrong(INVENTORY, "tier-phantom")],
    ),
    "unfinished-upload": Corruption(
        "tier", "a copy was announced, and half of it is there", half_a_copy, [noted(INVENTORY, "tier-unfinished")]
    ),
    "lost-object": Corruption(
        "tier", "the segment of a finished copy is gone", without_files(tier_file(56, ".log")), [bad(INVENTORY, "tier-lost")]
    ),
    "torn-index-of-a-copy": Corruption(
        "tier",
        "half of the offset index of a copy is there",
        cut_to(tier_file(56, ".index"), 5),
        [bad(INVENTORY, "tier-bad-copy"), bad(AUDIT, "tier-bad-copy")],
    ),
    "unknown-copy": Corruption(
        "tier", "a copy of which the metadata log says nothing", unknown_copy, [wrong(INVENTORY, "tier-orphan")]
    ),
    "false-empty-copy": Corruption(
        "tier",
        "the snapshot of a copy holds no producer",
        holding(tier_file(56, ".snapshot"), EMPTY_SNAPSHOT),
        [wrong(AUDIT, "tier-wrong-snapshot", "false-empty")],
    ),
    "zero-bytes-copy": Corruption(
        "tier",
        "the snapshot of a copy has no bytes",
        holding(tier_file(56, ".snapshot"), b""),
        [wrong(AUDIT, "tier-wrong-snapshot", "zero-bytes")],
    ),
    "start-without-checkpoint": Corruption(
        "controller",
        "the checkpoint at which the log begins is gone, with all above it",
        without_files(*(f"{C}{at:020d}-0000000004.checkpoint" for at in (720, 740, 812))),
        [bad(KRAFT, "start-without-checkpoint")],
    ),
    "torn-checkpoint": Corruption("controller", "half of a checkpoint is there", torn_checkpoint, [wrong(KRAFT, "bad-checkpoint")]),
    "metadata-gap": Corruption(
        "controller", "records are missing after the latest checkpoint", metadata_gap, [bad(KRAFT, "metadata-gap")]
    ),
}
