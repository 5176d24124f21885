"""The log of each selected partition: which of several replicas is read, from where to where, and what of that is not certain.

If the selection has several directories of one partition, one of them is read: that with the newest leader epoch. Among several of these it
is the one with the highest end of the log, and then the first by path. A directory without segments is read only if there is no other.
Every other one must agree with it below the high watermarks: records below a high watermark are on all replicas that count.
So no record is read twice, and none that two directories contradict.

The high watermark is the highest that any of these directories has in its checkpoint. A broker writes that file every five seconds.
A log that ends below it has lost records.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec
import numpy as np

from formats.errors import FormatError
from formats.limits import INT64_MAX
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.file_names import REPLICATION_OFFSET_CHECKPOINT
from formats.partition.partition_metadata import uuid_to_text
from formats.partition.producer_snapshot import read_entries
from snaprebuild.consume.log_pieces import BatchFault, LogPiece, blocks_of, pieces_of
from snaprebuild.consume.transaction_outcomes import OpenTransaction
from snaprebuild.errors import ChangedFileError, ReadFailedError, RefusedError
from snaprebuild.findings import Finding, Severity
from snaprebuild.replay.leader_epochs import epoch_of
from snaprebuild.snapshots.engine.log_facts import log_tail
from snaprebuild.snapshots.source.source import PartitionSource, check_segments_are_files
from snaprebuild.storage.log_dir import read_leader_epochs, read_topic_id
from snaprebuild.storage.partition_dir import ListedFile, PartitionDir
from snaprebuild.storage.partition_names import TopicKind

__all__ = ["ChosenLog", "Replica", "by_partition", "choose_log", "read_replica"]

NO_EPOCH = -1

END_COLUMNS = ("base_offset", "last_offset_delta")


class Replica(msgspec.Struct, frozen=True):
    """A partition directory, with what its files show.

    Attributes:
        source: the directory.
        log_end: offset after its last whole batch.
        is_end_damaged: batches that cannot be read follow that one.
        newest_epoch: leader epoch of that batch, or of the last line of its checkpoint; -1 for none.
        epochs: of its leader epoch checkpoint; none if there is none.
        high_watermark: of the checkpoint of its broker; None without one.
        topic_id: 16 bytes; None if the directory has none.
    """

    source: PartitionSource
    log_end: int
    is_end_damaged: bool
    newest_epoch: int
    epochs: tuple[LeaderEpochEntry, ...]
    high_watermark: int | None
    topic_id: bytes | None

    @property
    def path(self) -> str:
        """Path of the directory."""
        return self.source.directory.path


class ChosenLog(msgspec.Struct, frozen=True):
    """The log of a partition that is read.

    Attributes:
        topic: of the partition.
        partition: its number.
        place: of the log, for messages.
        pieces: its segments, ascending.
        log_start: the log start offset.
        log_end: offset after the last whole batch; where damaged ones follow, the high watermark, if that is above.
        high_watermark: None if no checkpoint has one.
        may_have_gaps: compaction removes records, as far as the files show.
        open_before: transactions that began below the first segment and were open there, by a producer snapshot.
        epochs: of the leader epoch checkpoint.
        findings: about the choice, and what is not certain.
        source: the directory; None for a log that is in remote storage alone.
    """

    topic: str
    partition: int
    place: str
    pieces: tuple[LogPiece, ...]
    log_start: int
    log_end: int
    high_watermark: int | None
    may_have_gaps: bool
    open_before: tuple[OpenTransaction, ...]
    epochs: tuple[LeaderEpochEntry, ...]
    findings: tuple[Finding, ...]
    source: PartitionSource | None = None

    @property
    def topic_partition(self) -> str:
        """``<topic>-<partition>``."""
        return f"{self.topic}-{self.partition}"

    @property
    def visible_end(self) -> int:
        """Below it records are acknowledged: the high watermark, or the end of the log if that is lower or alone known.

        A broker takes no high watermark below the log start offset.
        """
        if self.high_watermark is None:
            return self.log_end
        return min(max(self.high_watermark, self.log_start), self.log_end)

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(piece.size_bytes for piece in self.pieces)


def by_partition(sources: Iterable[PartitionSource]) -> list[tuple[tuple[str, int], list[PartitionSource]]]:
    """The directories of each partition, by topic and number."""

    def name_of(source: PartitionSource) -> tuple[str, int]:
        name = source.directory.name
        return name.topic, name.partition

    ordered = sorted(sources, key=lambda source: (name_of(source), source.directory.path))
    return [(name, list(group)) for name, group in groupby(ordered, key=name_of)]


def read_replica(source: PartitionSource) -> Replica:
    """Reads the end of a log and its small files.

    Raises:
        FormatError: a small file is damaged.
        ReadFailedError, RefusedError: a file cannot be read.
    """
    directory = source.directory
    check_segments_are_files(directory)
    epochs = read_leader_epochs(directory) or ()
    log_end = source.checkpointed_log_start_offset
    newest = max((entry.epoch for entry in epochs), default=NO_EPOCH)
    is_end_damaged = False
    if directory.segments:
        tail = log_tail(directory)
        log_end, is_end_damaged = _end_past_damage(directory, tail.end_offset)
        if tail.leader_epoch is not None:
            newest = max((entry.epoch for entry in epochs if entry.start_offset < log_end), default=tail.leader_epoch)
    return Replica(
        source=source,
        log_end=log_end,
        is_end_damaged=is_end_damaged,
        newest_epoch=newest,
        epochs=epochs,
        high_watermark=(source.log_dir.high_watermarks or {}).get(directory.topic_partition),
        topic_id=read_topic_id(directory),
    )


def _end_past_damage(directory: PartitionDir, end: int) -> tuple[int, bool]:
    """The end of a log behind the damage at which a broker stops, and whether there is damage behind the last whole batch."""
    piece = pieces_of(directory, INT64_MAX)[-1]
    faults: list[BatchFault] = []
    position = -1
    with piece.open() as source:
        for block in blocks_of(piece, source, END_COLUMNS, faults.append, low=end):
            end = max(end, block.next_offset)
            position = int(block.position_bytes[-1])
    return end, bool(faults) and faults[-1].position_bytes > position


def choose_log(replicas: Sequence[Replica]) -> ChosenLog:
    """The log of a partition from its directories.

    Args:
        replicas: at least one, all of one topic and number.

    Raises:
        RefusedError: two directories contradict each other.
    """
    with_segments = [each for each in replicas if each.source.directory.segments]
    chosen = min(with_segments or replicas, key=lambda each: (-each.newest_epoch, -each.log_end, each.path))
    others = [each for each in replicas if each is not chosen]
    for other in others:
        _check_agreement(chosen, other)
    high_watermark = max((each.high_watermark for each in replicas if each.high_watermark is not None), default=None)
    log_end = chosen.log_end
    if chosen.is_end_damaged:
        log_end = max(log_end, chosen.high_watermark or 0)
    source = chosen.source
    directory = source.directory
    findings = []
    if others:
        message = (
            f"{len(others)} more directories have this partition; the one with the newest leader epoch and highest end is read"
        )
        if len(others) == 1:
            message = f"{others[0].path} has this partition, too; the one with the newest leader epoch and highest end is read"
        findings.append(Finding("records-of-several-replicas", Severity.NOTE, directory.path, message))
    findings += _high_watermark_findings(chosen, high_watermark)
    return ChosenLog(
        topic=directory.name.topic,
        partition=directory.name.partition,
        place=directory.path,
        pieces=pieces_of(directory, max(log_end, 0)),
        log_start=source.log_start_offset,
        log_end=log_end,
        high_watermark=high_watermark,
        may_have_gaps=source.is_compacted or source.topic_kind is not TopicKind.ORDINARY or not source.log_dir.is_cleaner_known,
        open_before=_open_before(source),
        epochs=chosen.epochs,
        findings=tuple(findings),
        source=source,
    )


def _check_agreement(chosen: Replica, other: Replica) -> None:
    """Raises RefusedError if two directories cannot be replicas of one partition, or differ below a high watermark."""
    ids = (chosen.topic_id, other.topic_id)
    if None not in ids and ids[0] != ids[1]:
        shown = [uuid_to_text(each) for each in ids if each is not None]
        message = f"is of another topic of this name ({shown[1]}) than {chosen.path} ({shown[0]}): name one of them"
        raise RefusedError(message, path=other.path)
    offset = _first_difference(chosen, other)
    acknowledged = max(chosen.high_watermark or 0, other.high_watermark or 0)
    if offset is not None and offset < min(acknowledged, chosen.log_end, other.log_end):
        message = (
            f"has another leader epoch at offset {offset} than {chosen.path}, below a high watermark: "
            f"they are not replicas of one log; name one of them"
        )
        raise RefusedError(message, path=other.path)


def _first_difference(chosen: Replica, other: Replica) -> int | None:
    """The first offset that both logs have with different leader epochs; None if their epochs agree."""
    if not chosen.epochs or not other.epochs:
        return None
    # A checkpoint has nothing below its first line.
    begin = max(chosen.epochs[0].start_offset, other.epochs[0].start_offset)
    end = min(chosen.log_end, other.log_end)
    starts = {entry.start_offset for entry in (*chosen.epochs, *other.epochs)}
    for offset in sorted({begin, *starts}):
        if begin <= offset < end and epoch_of(chosen.epochs, offset) != epoch_of(other.epochs, offset):
            return offset
    return None


def _high_watermark_findings(chosen: Replica, high_watermark: int | None) -> list[Finding]:
    path = chosen.path
    if not chosen.source.directory.segments:
        return []
    if high_watermark is None:
        message = (
            "no checkpoint has a high watermark of this log: it is read to its end, and the last records may never have been "
            "acknowledged"
        )
        return [Finding("records-without-high-watermark", Severity.FINDING, path, message)]
    if high_watermark >= chosen.log_end:
        return []
    above = chosen.log_end - high_watermark
    message = (
        f"the high watermark is {high_watermark}{_age_of_checkpoint(chosen.source)}: the {above} offsets above it are not read, "
        f"unless an ending offset names them"
    )
    return [Finding("records-above-high-watermark", Severity.NOTE, path, message, high_watermark)]


def _age_of_checkpoint(source: PartitionSource) -> str:
    try:
        identity = source.log_dir.place.below(REPLICATION_OFFSET_CHECKPOINT).identity()
    except (ReadFailedError, RefusedError):
        return ""
    if identity is None:
        return ""
    moment = datetime.datetime.fromtimestamp(identity.modified_ns // 10**9, datetime.UTC)
    return f", as a broker wrote it at {moment:%Y-%m-%d %H:%M:%S} UTC"


def _open_before(source: PartitionSource) -> tuple[OpenTransaction, ...]:
    """Transactions that began below the first segment, by the lowest producer snapshot that can be read; none without one.

    The snapshot at the first segment is often absent: brokers remove it if the log start is not below it, and Kafka before 2.8 wrote none
    for rolled segments. A later one lacks only transactions whose markers are in the log.
    """
    directory = source.directory
    first = directory.segments[0].base_offset if directory.segments else 0
    if not first:
        return ()
    for offset, snapshot in directory.snapshots:
        entries = _entries_of(directory, snapshot) if offset >= first else None
        if entries is not None:
            return _begun_below(entries, first)
    return ()


def _entries_of(directory: PartitionDir, snapshot: ListedFile) -> np.ndarray | None:
    """The entries of a producer snapshot; None if it cannot be read, which ``verify`` reports."""
    file = directory.file(snapshot.name)
    try:
        data = file.read_small(max(snapshot.identity.size_bytes, 1))
        return None if data is None else read_entries(data, file=file.path)
    except (FormatError, ReadFailedError, ChangedFileError):
        return None


def _begun_below(entries: np.ndarray, first: int) -> tuple[OpenTransaction, ...]:
    """The transactions of a producer snapshot that are open since before an offset."""
    offsets = entries["current_txn_first_offset"]
    begun = (offsets >= 0) & (offsets < first)
    firsts = offsets[begun].tolist()
    producers = entries["producer_id"][begun].tolist()
    return tuple(OpenTransaction(offset, producer) for offset, producer in zip(firsts, producers, strict=True))
