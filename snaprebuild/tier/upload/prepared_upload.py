"""A closed segment and everything that goes to remote storage with it, as a value."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

from formats.partition.checkpoint_file import LeaderEpochEntry
from snaprebuild.errors import ReadFailedError, RefusedError, UploadRefusedError
from snaprebuild.snapshots.ensure_snapshot import EnsuredSnapshot
from snaprebuild.storage.store import FileIdentity, OpenBytes, ReadStore

__all__ = ["PreparedUpload"]


@dataclass(frozen=True, slots=True)
class PreparedUpload:
    """A closed segment and what belongs to it, of one moment.

    Attributes:
        topic: name.
        topic_id: 16 bytes.
        partition: number.
        start_offset: base offset of the segment.
        end_offset: last offset that it stands for: next base offset - 1.
        log_path: of the segment, which is not read into memory.
        log_identity: size, modification time, inode or ETag of it.
        max_timestamp_ms: greatest of its batches; of a segment without timestamps the modification time, as a broker takes it.
        offset_index: the whole ``.index``; likewise ``time_index``.
        transaction_index: the whole ``.txnindex``; None where there is none, as for most segments.
        leader_epoch_checkpoint: text of every leader epoch that began below the next base offset.
        leader_epochs: those over the range of the segment, the first one moved to its start: what the metadata record holds.
        snapshot: the producer snapshot at the next base offset; ``snapshot.data`` is what is sent.
    """

    topic: str
    topic_id: bytes
    partition: int
    start_offset: int
    end_offset: int
    log_path: str
    log_identity: FileIdentity
    max_timestamp_ms: int
    offset_index: bytes = field(repr=False)
    time_index: bytes = field(repr=False)
    transaction_index: bytes | None = field(repr=False)
    leader_epoch_checkpoint: bytes
    leader_epochs: tuple[LeaderEpochEntry, ...]
    snapshot: EnsuredSnapshot
    _files: tuple[tuple[str, FileIdentity | None], ...] = field(repr=False)
    _store: ReadStore = field(repr=False)

    @property
    def size_bytes(self) -> int:
        """Of the segment."""
        return self.log_identity.size_bytes

    @property
    def txn_index_empty(self) -> bool:
        """No transaction was aborted in it: what the metadata record says since Kafka 4.0."""
        return not self.transaction_index

    def open_log(self) -> OpenBytes:
        """Opens the segment, to be sent.

        Raises:
            UploadRefusedError: it is no longer the one that was looked at.
            ReadFailedError: it cannot be opened.
        """
        try:
            return self._store.open_bytes(self.log_path, self.log_identity)
        except RefusedError as error:
            raise UploadRefusedError(error.message, path=self.log_path, reason="changed") from error

    def check_unchanged(self) -> None:
        """Makes sure that every file is still the one that was read; to be called again just before an upload is called complete.

        Raises:
            UploadRefusedError: one is not.
            ReadFailedError: it cannot be told.
        """
        for path, identity in self._files:
            if _identity(self._store, path) != identity:
                raise UploadRefusedError("changed while it was read: somebody is at work here", path=path, reason="changed")


def _identity(store: ReadStore, path: str) -> FileIdentity | None:
    try:
        with store.open_bytes(path) as source:
            return source.identity
    except ReadFailedError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
