"""The metadata logs that the verdicts of a run rest on: one that was named, or each broker's own, folded once.

What folds them is loaded when there is one: it takes a tenth of the time that a command needs to start.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from formats.errors import FormatError
from snaprebuild.cluster.metadata.registered_model import METADATA_DIRECTORY, BrokerRegistration
from snaprebuild.errors import DeadlinePassedError, RefusedError, SnaprebuildError, UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.log_dir import LogDirState
from snaprebuild.storage.store_path import StorePath

if TYPE_CHECKING:
    from snaprebuild.cluster.source_check.metadata_read import MetadataRead
    from snaprebuild.snapshots.run import Run

__all__ = ["BrokerMetadata", "MetadataLogs"]


class BrokerMetadata(msgspec.Struct, frozen=True):
    """The metadata log that has evidence on a broker.

    Attributes:
        read: None if there is none.
        missing_reason: why there is none.
        is_unreadable: it is there, and could not be read.
    """

    read: MetadataRead | None = None
    missing_reason: str = "no metadata log was given (--metadata), and there is none next to the partition"
    is_unreadable: bool = False


class MetadataLogs(msgspec.Struct):
    """The metadata logs of a run.

    Attributes:
        location: of the one that was named, or None for each broker's own.
        run: how object stores are reached, and the deadline of reading; None for the usual stores, and no deadline.
        requested_offset: last offset to take of it, None for all.
        voters: metadata logs of other voters, which prove what a majority holds: id (None for that of ``meta.properties``) and location.
        voter_ids: ids of all voters; None for what the log says.
        findings: what could not be read, each log once.
    """

    location: str | None = None
    run: Run | None = None
    requested_offset: int | None = None
    voters: tuple[tuple[int | None, str], ...] = ()
    voter_ids: tuple[int, ...] | None = None
    findings: list[Finding] = msgspec.field(default_factory=list)
    _known: dict[str, BrokerMetadata | None] = msgspec.field(default_factory=dict)
    _own_brokers: dict[str, Mapping[int, BrokerRegistration]] = msgspec.field(default_factory=dict)

    @property
    def deadline(self) -> float | None:
        """The deadline of the run, a ``time.monotonic()``; None for none."""
        return None if self.run is None else self.run.deadline

    def named(self) -> MetadataRead | None:
        """The log that was named.

        Raises:
            UsageError: there is none, or it does not reach to the offset.
            RefusedError: it is damaged.
            StorageError: it cannot be read.
            DeadlinePassedError: the deadline has passed.
        """
        if self.location is not None and self.location not in self._known:
            try:
                read = self._read(self.location, is_own=False)
            except FormatError as error:
                message = f"the metadata log cannot be read, so no replica is judged: {error.message}"
                raise RefusedError(message, path=error.file) from error
            if read.image.offset < 0:
                raise UsageError("the metadata log is empty", path=read.path)
            self._known[self.location] = BrokerMetadata(read)
        metadata = None if self.location is None else self._known[self.location]
        return None if metadata is None else metadata.read

    def own_epoch(self, log_dirs: Iterable[LogDirState], node_id: int | None) -> int | None:
        """The broker epoch of a broker's registration in the metadata log of its own log directories; None if none shows it."""
        for state in log_dirs:
            path = os.path.join(state.path, METADATA_DIRECTORY)
            if path not in self._own_brokers:
                with contextlib.suppress(SnaprebuildError, FormatError):  # the replicas are judged by another log
                    if state.place.at(path).names():
                        from snaprebuild.cluster.source_check.metadata_read import read_brokers

                        self._own_brokers[path] = read_brokers(path, self.run)
            broker = self._own_brokers.get(path, {}).get(-1 if node_id is None else node_id)
            if broker is not None:
                return broker.epoch
        return None

    def of(self, log_dirs: Iterable[LogDirState], metadata_dir: str | None = None) -> BrokerMetadata:
        """The log that has evidence on a broker.

        Args:
            log_dirs: of the broker; the metadata log is in one of them,
            metadata_dir: or here, as its configuration says (``metadata.log.dir``).

        Raises:
            UsageError: as ``named``.
        """
        if (named := self.named()) is not None:
            return BrokerMetadata(named)
        places = [] if metadata_dir is None else [StorePath(LOCAL, metadata_dir)]
        result = BrokerMetadata()
        for log_dir in (*places, *(state.place for state in log_dirs)):
            metadata = self._own(log_dir.below(METADATA_DIRECTORY))
            if metadata is not None and metadata.read is not None:
                return metadata
            result = metadata or result
        return result

    def _own(self, directory: StorePath) -> BrokerMetadata | None:
        """A broker's own log; None if there is none."""
        path = directory.path
        if path not in self._known:
            try:
                read = self._read(path, is_own=True) if directory.names() else None
                if read is None:
                    metadata = None
                elif read.image.offset < 0:
                    metadata = self._unreadable(path, "it is empty")
                else:
                    metadata = BrokerMetadata(read)
            except UsageError as error:
                if self.requested_offset is not None or self.voters:
                    raise UsageError(error.message, path=error.path) from error
                metadata = self._unreadable(path, error.message)
            except DeadlinePassedError:
                raise  # no replica may be judged as if there were no log
            except (SnaprebuildError, FormatError) as error:
                finding = finding_of_error(error, path)
                metadata = self._unreadable(finding.path, finding.message)
            self._known[path] = metadata
        return self._known[path]

    def _unreadable(self, path: str, why: str) -> BrokerMetadata:
        """A metadata log that is there and gives no evidence, with its finding."""
        reason = f"the broker's own metadata log could not be asked: {why}"
        message = f"{reason}: the cluster's state of these replicas is unknown"
        self.findings.append(Finding("source-metadata-unreadable", Severity.FINDING, path, message, is_unread=True))
        return BrokerMetadata(None, reason, is_unreadable=True)

    def _read(self, location: str, *, is_own: bool) -> MetadataRead:
        from snaprebuild.cluster.source_check.metadata_read import read_metadata

        return read_metadata(location, self.requested_offset, self.run, self.voters, self.voter_ids, self.findings, is_own=is_own)
