"""Free cross-checks while a partition is replayed: surviving snapshots and ``.txnindex`` files beside what the replay gives."""

from __future__ import annotations

from dataclasses import dataclass, field

from formats.errors import FormatError
from formats.file_names import transaction_index_file_name
from formats.limits import INDEX_BYTES_MAX
from formats.transaction_index import read_transaction_index
from snaprebuild.errors import ReadFailedError
from snaprebuild.operations.findings import Finding, Severity
from snaprebuild.operations.replay_partition import BoundaryState, Clock, read_snapshot_file
from snaprebuild.operations.source import PartitionSource
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.difference import Comparison, Knowledge, SnapshotStatus, compare
from snaprebuild.replay.transactions import OpenTransactions
from snaprebuild.storage.log_dir import read_small_file

__all__ = ["CrossCheck"]


@dataclass(slots=True)
class CrossCheck:
    """Compares what is on disk with each boundary that the replay hands out."""

    source: PartitionSource
    clock: Clock
    _open: OpenTransactions = field(default_factory=OpenTransactions)
    _index_tells_nothing: bool = False

    def snapshot(self, state: BoundaryState) -> Comparison | None:
        """The snapshot at this boundary beside the replay; None where there is none.

        Raises:
            ReadFailedError: it cannot be read.
        """
        try:
            found = read_snapshot_file(self.source.directory, state.offset)
        except FormatError as error:
            return Comparison(SnapshotStatus.CORRUPT, True, len(state.entries), 0, 0, (), str(error))
        return None if found is None else compare(state.effect, found, state.offset, self._knowledge(state))

    def _knowledge(self, state: BoundaryState) -> Knowledge:
        doubt = None
        if self.source.is_compacted:
            doubt = "the topic is compacted: the batches that would tell may be gone"
        elif state.judgement.snapshot_class in (SnapshotClass.UNSOUND, SnapshotClass.UNPROVEN):
            doubt = f"the replay itself is {state.judgement.snapshot_class.value}: {state.judgement.reasons[0]}"
        return Knowledge(
            is_complete=state.is_complete,
            doubt=doubt,
            first_offset=self.source.directory.segments[0].base_offset,
            log_start_offset=self.source.log_start_offset,
            as_of_ms=self.clock.as_of_ms,
            expiration_ms=self.clock.expiration_ms,
        )

    def transaction_index(self, state: BoundaryState) -> Finding | None:
        """The ``.txnindex`` of the segment that ends here beside the transactions that the replay saw aborted; a finding if they differ."""
        if state.completed is None or not state.is_complete or self._index_tells_nothing or self.source.is_compacted:
            return None
        if state.judgement.snapshot_class is SnapshotClass.UNSOUND:
            self._index_tells_nothing = True
            return None
        expected = self._open.aborted_in(state.completed, state.effect)
        path = self.source.directory.file_path(transaction_index_file_name(state.segment.base_offset))
        try:
            data = read_small_file(path, INDEX_BYTES_MAX)
            found = [] if data is None else list(read_transaction_index(data, file=path))
        except (FormatError, ReadFailedError) as error:
            return Finding("unreadable-transaction-index", Severity.FINDING, path, str(error), state.offset)
        if found == expected:
            return None
        at = next(
            (index for index, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]),
            min(len(found), len(expected)),
        )
        message = f"does not list the aborted transactions of its segment: {len(found)} instead of {len(expected)}, first difference at {at}"
        return Finding("transaction-index-differs", Severity.FINDING, path, message, state.offset)
