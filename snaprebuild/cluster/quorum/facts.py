"""Reads the facts of a directory that the rules on metadata logs need, in one pass over the headers."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from formats import limits
from formats.broker.broker_files import MetaProperties
from formats.errors import FormatError
from formats.log.control_record import ControlRecord, LeaderChange, SnapshotHeader, Voter, Voters
from formats.metadata.quorum_state import QuorumState, read_quorum_state
from formats.partition.file_names import QUORUM_STATE
from formats.partition.producer_snapshot import check_snapshot
from snaprebuild.cluster.metadata.batches import MetadataBatch
from snaprebuild.cluster.metadata.log import MetadataCheckpoint, MetadataLog, open_metadata_log
from snaprebuild.cluster.metadata.log_end import LogEndEvidence, has_clean_marker, log_end_evidence
from snaprebuild.cluster.quorum.identity import is_bare, node_identity, topic_fault
from snaprebuild.cluster.quorum.log_facts import BatchBelow, BatchColumns, CheckpointFacts, LogFacts
from snaprebuild.cluster.quorum.log_start import OffsetAndEpoch
from snaprebuild.errors import GoneFileError, ReadFailedError
from snaprebuild.findings import Finding, Severity, finding_of_error, pluralize
from snaprebuild.snapshots.source.second_look import with_fresh_listings

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = ["NodeFacts", "NodeSegment", "read_node"]


@dataclass(frozen=True, slots=True)
class NodeSegment:
    """A segment: base offset, and bytes of its whole batches."""

    base_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One directory of a metadata log.

    Attributes:
        location: as it was given.
        log: as it was listed.
        facts: for the rules.
        segments: with their sizes.
        last_timestamp_ms: of the last batch; None if there is none.
        bytes_after_latest: of the batches after the end of the latest checkpoint; of all where there is none.
        node_id: by ``meta.properties`` in the directory above; None if that is not there.
        directory_id: 16 bytes (KIP-858), by the same file; None if that is not there.
        findings: what kept something from being read.
    """

    location: str
    log: MetadataLog
    facts: LogFacts
    segments: tuple[NodeSegment, ...]
    last_timestamp_ms: int | None
    bytes_after_latest: int
    node_id: int | None
    cluster_id: str | None
    directory_id: bytes | None
    findings: tuple[Finding, ...]


def read_node(location: str, run: Run | None = None) -> NodeFacts:
    """Reads a directory; what a live node deletes meanwhile is listed again, and at last left out with a note.

    Raises:
        UsageError: there is no metadata log, or there are several.
        ReadFailedError: a segment, or the directory, cannot be read.
    """

    def read(is_last: bool) -> NodeFacts:
        reader = _NodeReader(open_metadata_log(location, run))
        node = reader.read(location)
        if reader.vanished and not is_last:
            raise GoneFileError("is gone since the listing", path=reader.vanished[0])
        return node

    return with_fresh_listings(read)


class _NodeReader:
    """Reads one listing of a directory.

    Attributes:
        vanished: names of checkpoints that were listed and are gone.
    """

    def __init__(self, log: MetadataLog) -> None:
        self._log = log
        self._findings: list[Finding] = []
        self.vanished: list[str] = []
        self._below: dict[int, BatchBelow] = {}
        self._gaps: list[tuple[int, int]] = []
        self._end_offset = log.first_base_offset or 0
        self._last: BatchBelow | None = None
        self._latest_end = log.checkpoints[-1].end_offset if log.checkpoints else 0
        self._bytes_after_latest = 0
        self._segments: list[NodeSegment] = []
        self._cut_offset: int | None = None
        self._is_torn = False
        self._batch_columns = BatchColumns()
        self._leaders: dict[int, int] = {}
        self._voter_sets: list[tuple[Voter, ...]] = []
        self._voters_of_checkpoints: list[tuple[Voter, ...]] = []

    def read(self, location: str) -> NodeFacts:
        log = self._log
        # The leader epochs may be older than the first segment, below which nothing can be read.
        start_offset = max(log.start_offset or 0, log.first_base_offset or 0)
        self._walk(sorted({start_offset, *(checkpoint.end_offset for checkpoint in log.checkpoints)}))
        checkpoints = tuple(self._checkpoints())
        faults = filter(None, (log.leader_epochs_fault, log.quorum_state_fault))
        self._findings += [finding_of_error(fault, log.path) for fault in faults]
        what = "has the name of a segment or checkpoint and is not a regular file"
        self._findings += [
            Finding("not-a-regular-file", Severity.FINDING, log.path, f"{name} {what}") for name in log.unreadable_files
        ]
        what = "was deleted while it was read, as a live node does; it is left out"
        self._findings += [Finding("checkpoint-vanished", Severity.NOTE, log.path, f"{name} {what}") for name in self.vanished]
        meta = node_identity(log)
        facts = LogFacts(
            path=log.path,
            first_base_offset=log.first_base_offset,
            start_offset=start_offset,
            first_epoch=log.leader_epochs[0].epoch if log.leader_epochs else None,
            end_offset=self._end_offset,
            last_epoch=0 if self._last is None else self._last.epoch,
            below_start=self._below.get(start_offset),
            gaps=tuple(self._gaps),
            checkpoints=checkpoints,
            cut_offset=self._cut_offset,
            is_torn=self._is_torn,
            left_overs=tuple(sorted((*log.part_files, *log.deleted_files))),
            strange_names=(*log.misnamed_files, *log.other_files),
            bad_snapshots=tuple(self._bad_snapshots()),
            batches=self._batch_columns,
            leaders=self._leaders,
            voter_sets=(*self._voters_of_checkpoints, *self._voter_sets),
            quorum_state=self._quorum_state(),
            is_quorum_state_bad=log.quorum_state_fault is not None,
            end=self._end(),
            has_marker=has_clean_marker(log),
            topic_fault=topic_fault(log),
            node_fault=None if isinstance(meta, MetaProperties) else meta,
            is_bare=is_bare(log),
        )
        meta = meta if isinstance(meta, MetaProperties) else None
        return NodeFacts(
            location=location,
            log=log,
            facts=facts,
            segments=tuple(self._segments),
            last_timestamp_ms=None if self._last is None else self._last.timestamp_ms,
            bytes_after_latest=self._bytes_after_latest,
            node_id=None if meta is None else meta.node_id,
            cluster_id=None if meta is None else meta.cluster_id,
            directory_id=None if meta is None else meta.directory_id,
            findings=tuple(self._findings),
        )

    def _walk(self, offsets: list[int]) -> None:
        """Finds, for each of ascending offsets, the last batch that begins below it, where the log goes so far."""
        waiting = offsets
        last: BatchBelow | None = None
        for batch in self._batches():
            while waiting and waiting[0] <= batch.base_offset:
                self._take(waiting.pop(0), last)
            self._batch_columns.append(batch.base_offset, batch.leader_epoch, batch.crc)
            self._take_control(batch, self._voter_sets)
            last = BatchBelow(batch.base_offset, batch.last_offset, batch.leader_epoch, batch.append_timestamp_ms)
            if batch.base_offset >= self._latest_end:
                self._bytes_after_latest += batch.size_bytes
        for offset in waiting:
            if offset <= self._end_offset:
                self._take(offset, last)
        self._last = last

    def _take_control(self, batch: MetadataBatch, voter_sets: list[tuple[Voter, ...]]) -> None:
        """Leaders and voters, by the control records of Raft."""
        for record in batch.records:
            value = record.content.value if isinstance(record.content, ControlRecord) else None
            if isinstance(value, LeaderChange):
                self._leaders[batch.leader_epoch] = value.leader_id
            if isinstance(value, LeaderChange | Voters):
                voter_sets.append(value.voters)

    def _quorum_state(self) -> QuorumState | None:
        """The state after the log was read: a live node may know of a later epoch by then."""
        state = self._log.quorum_state
        if state is None or self._last is None or state.leader_epoch >= self._last.epoch:
            return state
        file = self._log.directory.below(QUORUM_STATE)
        try:
            data = file.read_small(limits.QUORUM_STATE_BYTES_MAX)
            return state if data is None else read_quorum_state(data, file=file.path)
        except FormatError:
            return state

    def _take(self, offset: int, last: BatchBelow | None) -> None:
        if last is not None and last.last_offset >= offset - 1:
            self._below[offset] = last

    def _batches(self) -> Iterator[MetadataBatch]:
        """The batches of all segments, across gaps and after damage. If damage ends a segment, the gap reaches to the next segment."""
        for number, segment in enumerate(self._log.segments):
            if number and segment.base_offset != self._end_offset:
                self._gaps.append((self._end_offset, segment.base_offset))
            walk = replace(self._log, segments=(segment,)).walk(segment.base_offset, records=False)
            size = 0
            try:
                for batch in walk:
                    size = batch.position_bytes + batch.size_bytes
                    yield batch
            except FormatError as error:
                self._findings.append(finding_of_error(error, segment.path))
                self._cut_at(walk.end_offset)
            self._segments.append(NodeSegment(segment.base_offset, size))
            self._end_offset = walk.end_offset
            if walk.torn_tail is not None and segment is not self._log.segments[-1]:
                self._cut_at(walk.end_offset)
            elif walk.torn_tail is not None:
                self._is_torn = True
                message = "ends with a batch that is not whole, which a node cuts off when it starts"
                self._findings.append(Finding("torn-tail", Severity.NOTE, segment.path, message, walk.end_offset))

    def _cut_at(self, offset: int) -> None:
        if self._cut_offset is None:
            self._cut_offset = offset

    def _checkpoints(self) -> Iterator[CheckpointFacts]:
        for checkpoint in self._log.checkpoints:
            try:
                fault = self._log.checkpoint_fault(checkpoint)
                timestamp = self._header_timestamp(checkpoint)
            except ReadFailedError as error:
                if error.errno != errno.ENOENT:
                    raise
                self.vanished.append(os.path.basename(checkpoint.path))
                continue
            yield CheckpointFacts(
                OffsetAndEpoch(checkpoint.end_offset, checkpoint.epoch),
                checkpoint.path,
                checkpoint.identity.size_bytes,
                None if fault is None else fault.message,
                timestamp,
                self._below.get(checkpoint.end_offset),
            )

    def _header_timestamp(self, checkpoint: MetadataCheckpoint) -> int | None:
        """Time of the last record that it contains. Its header batch may name the voters, too."""
        try:
            first = next(iter(self._log.checkpoint_batches(checkpoint)), None)
        except FormatError:
            return None
        if first is not None:
            self._take_control(first, self._voters_of_checkpoints)
        content = first.records[0].content if first is not None and first.records else None
        if isinstance(content, ControlRecord) and isinstance(content.value, SnapshotHeader):
            return content.value.last_contained_log_timestamp
        return None

    def _bad_snapshots(self) -> Iterable[tuple[str, str]]:
        for name in self._log.producer_snapshots:
            data = self._log.directory.below(name).read_small(limits.TEXT_FILE_BYTES_MAX)
            try:
                count = 0 if data is None else check_snapshot(data)
            except FormatError as error:
                yield name, f"does not parse: {error.message}"
            else:
                yield from [(name, f"holds {pluralize(count, 'producer')}")] if count else []

    def _end(self) -> LogEndEvidence | None:
        """The contradiction of the end of the log; None where damage was found, which K11 reports."""
        if self._cut_offset is not None:
            return None
        return log_end_evidence(self._log, self._end_offset, is_torn=self._is_torn)
