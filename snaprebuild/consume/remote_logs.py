"""Partitions in remote storage as logs that are read: alone, or below the log on disk.

The copies are those from which a broker with the log on disk serves reads: finished ones that its leader epochs lead to. They are read
below the first segment on disk, and the disk from there on, so that each offset is read once. Without a log on disk they are those that
the leader epochs of the newest copy lead to.

Only what is below the last stable offset is uploaded. So the end of the newest copy counts as the high watermark if there is no log on
disk. The marker of a transaction may be above it.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from formats.errors import FormatError
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.remote_log_metadata import RemoteSegment
from snaprebuild.consume.chosen_log import ChosenLog
from snaprebuild.consume.log_pieces import LogPiece, pieces_of
from snaprebuild.errors import ReadFailedError, RefusedError, UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.storage.log_dir import read_topic_id
from snaprebuild.storage.partition_dir import SegmentFiles
from snaprebuild.tier.remote_partition import RemoteChain, RemotePartition
from snaprebuild.tier.remote_store import Tier

__all__ = ["log_in_tier", "with_remote_copies"]


def with_remote_copies(log: ChosenLog, tier: Tier, topic_id: bytes | None, *, tolerates_loss: bool) -> ChosenLog:
    """A log on disk with its copies below the first segment.

    Args:
        log: on disk.
        tier: the store.
        topic_id: 16 bytes; None for that of the directory.
        tolerates_loss: copies that cannot be read are left out, with a finding.

    Raises:
        UsageError: several topics had that name, and the directory has no topic id; or it has another one than ``topic_id``.
        RefusedError: copies contradict each other or their records, or a limit of the run is used up.
        ReadFailedError, FormatError: a copy cannot be read.
    """
    assert log.source is not None
    own_id = read_topic_id(log.source.directory)
    if topic_id is not None and own_id is not None and topic_id != own_id:
        message = f"is of the topic {uuid_to_text(own_id)}, and the topic {uuid_to_text(topic_id)} is asked for"
        raise UsageError(message, path=log.place)
    remote = tier.partition_named(log.topic, log.partition, topic_id or own_id)
    if remote is None:
        return log
    if not log.source.directory.segments:
        return _in_place_of_nothing(log, remote, tolerates_loss=tolerates_loss)
    first = log.pieces[0].base_offset if log.pieces else log.log_end
    above = _above_findings(log, remote)
    if not first:
        return replace(log, findings=(*log.findings, *above))
    served = _served_copies(remote, log.epochs or _epochs_of_newest(remote), first)
    if not served:
        return replace(log, findings=(*log.findings, *remote.findings, *above))
    checkpointed = (log.source.log_dir.log_starts or {}).get(log.topic_partition)
    start = served[0].chain.start_offset if checkpointed is None else checkpointed
    _check_tiered(log)
    copies = _Copies(tolerates_loss=tolerates_loss)
    pieces = (*copies.pieces(served), *log.pieces)
    # Open since before all that is read: no marker there can have ended it.
    lowest = pieces[0].base_offset if pieces else first
    return replace(
        log,
        pieces=pieces,
        log_start=start,
        open_before=tuple(each for each in log.open_before if each.first_offset < lowest),
        findings=(*log.findings, *remote.findings, *copies.findings, *above),
    )


def _check_tiered(log: ChosenLog) -> None:
    """Raises RefusedError if brokers have no remote storage for a log that has copies."""
    if log.source is not None and not log.source.can_be_tiered:
        message = "is compacted or internal, so that a broker has no remote storage for it, and a store has copies of it"
        raise RefusedError(message, path=log.place)


def _above_findings(log: ChosenLog, remote: RemotePartition) -> list[Finding]:
    """A finding if remote storage has records above the end of the log on disk: that is an old copy, or lost its end."""
    end = max((each.end_offset + 1 for each in remote.live), default=0)
    if end <= log.log_end:
        return []
    message = (
        f"remote storage has copies up to offset {end - 1}, and the log on disk ends at {log.log_end}: what is above is not read. "
        f"The log may be old, or have lost its end"
    )
    return [Finding("records-above-log-end", Severity.FINDING, log.place, message, log.log_end)]


def _in_place_of_nothing(log: ChosenLog, remote: RemotePartition, *, tolerates_loss: bool) -> ChosenLog:
    """The log in remote storage of a partition whose directory has no segment."""
    found = log_in_tier(remote, tolerates_loss=tolerates_loss)
    if found is None:
        return replace(log, findings=(*log.findings, *remote.findings))
    _check_tiered(log)
    # Retention may have removed more than remote storage shows yet.
    checkpointed = (log.source.log_dir.log_starts or {}).get(log.topic_partition, 0) if log.source is not None else 0
    message = "has no segment: the partition is read from remote storage alone"
    return replace(
        found,
        log_start=min(max(found.log_start, checkpointed), found.log_end),
        findings=(*log.findings, *found.findings, Finding("records-of-remote-storage", Severity.NOTE, log.place, message)),
    )


def log_in_tier(remote: RemotePartition, *, tolerates_loss: bool) -> ChosenLog | None:
    """The log of a partition that is in remote storage alone; None if no finished copy of it is there.

    Args:
        remote: the partition.
        tolerates_loss: copies that cannot be read are left out, with a finding.

    Raises:
        RefusedError: copies contradict each other or their records, or a limit of the run is used up.
        ReadFailedError, FormatError: a copy cannot be read.
    """
    newest = _newest(remote)
    if newest is None:
        return None
    end = newest.end_offset + 1
    served = _served_copies(remote, _epochs_of_newest(remote), end)
    copies = _Copies(tolerates_loss=tolerates_loss)
    message = "only remote storage has this partition: its log start offset is not known, and it is read from its first copy on"
    return ChosenLog(
        topic=remote.id.topic,
        partition=remote.id.partition,
        place=remote.place,
        pieces=copies.pieces(served),
        log_start=served[0].chain.start_offset if served else end,
        log_end=end,
        high_watermark=end,
        may_have_gaps=False,
        open_before=(),
        epochs=(),
        findings=(*remote.findings, *copies.findings, Finding("records-of-remote-storage", Severity.NOTE, remote.place, message)),
    )


def _newest(remote: RemotePartition) -> RemoteSegment | None:
    """The live copy with the newest leader epoch, among several the one with the highest end."""
    live = remote.live
    return max(live, key=lambda each: (each.leader_epochs[-1].epoch, each.end_offset)) if live else None


def _epochs_of_newest(remote: RemotePartition) -> tuple[LeaderEpochEntry, ...]:
    newest = _newest(remote)
    return () if newest is None else remote.leader_epochs_at(newest)


class _ServedCopies(msgspec.Struct, frozen=True):
    """Copies in a row that a broker serves reads from.

    Attributes:
        chain: the copies.
        end: offset after the last one that it serves from them; the last copy may have more, of another leader.
    """

    chain: RemoteChain
    end: int


def _served_copies(remote: RemotePartition, epochs: Sequence[LeaderEpochEntry], end: int) -> list[_ServedCopies]:
    """The copies below an offset, of the log with these leader epochs, ascending.

    A broker takes the copy with the greatest start that is not above the offset, among those of the leader epoch of the offset
    (``RemoteLogMetadataCache``). So a copy that overlaps the next one is read up to the start of that.
    """
    served: list[_ServedCopies] = []
    bounds = sorted({*remote.bounds, *(entry.start_offset for entry in epochs)})
    bound: int | None = end
    while bound is not None:
        chain = remote.chain_below(epochs, bound)
        if chain is not None:
            served.append(_ServedCopies(chain, bound))
            bound = chain.start_offset
        else:
            place = bisect.bisect_left(bounds, bound)
            bound = bounds[place - 1] if place else None
    return served[::-1]


class _Copies:
    """The copies of a partition as segments, and the findings about those that cannot be read."""

    def __init__(self, *, tolerates_loss: bool) -> None:
        self._tolerates_loss = tolerates_loss
        self.findings: list[Finding] = []

    def pieces(self, served: Sequence[_ServedCopies]) -> tuple[LogPiece, ...]:
        """The segments, each up to the start of the next one, and no further than a broker serves them.

        Raises:
            ReadFailedError, FormatError: a copy cannot be read, and no loss is tolerated.
            RefusedError: a copy is encrypted for a key that was not given, or a limit of the run is used up.
        """
        ids: dict[int, str] = {}
        ends: dict[int, int] = {}
        segments: list[SegmentFiles] = []
        for each in served:
            for segment in each.chain.segments:
                segments += self._files(each.chain, segment)
                ids[segment.start_offset] = uuid_to_text(segment.segment_id)
                ends[segment.start_offset] = min(segment.end_offset + 1, each.end)
        if not segments:
            return ()
        directory = served[-1].chain.remote.directory(segments)
        found = pieces_of(directory, served[-1].end)
        return tuple(
            replace(each, origin=ids[each.base_offset], high=min(each.high, ends[each.base_offset]), is_last=False)
            for each in found
        )

    def _files(self, chain: RemoteChain, segment: RemoteSegment) -> tuple[SegmentFiles, ...]:
        try:
            return chain.source([segment]).directory.segments
        except (FormatError, ReadFailedError) as error:
            if not self._tolerates_loss:
                raise
            self.findings.append(finding_of_error(error, chain.remote.place))
            return ()
