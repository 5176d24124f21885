"""The records of ``__transaction_state``: what the coordinators show of the producers of open transactions.

All given partitions are read once, for the transactional ids and timeouts of producers. The records of a few transactional ids are then
read again in their order, from the partitions that have them. So memory grows with producers, and not with records.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from formats.broker.broker_files import read_meta_properties
from formats.errors import FormatError
from formats.limits import META_PROPERTIES_BYTES_MAX
from formats.metadata.transaction_state import (
    NEVER_EXPIRES_MS,
    TRANSACTION_STATE_TOPIC,
    TransactionState,
    read_transaction_state,
    read_transactional_id,
)
from formats.partition.file_names import META_PROPERTIES, DirectoryForm, parse_partition_dir_name
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.snapshots.source.log_records import log_records
from snaprebuild.snapshots.source.source import Source
from snaprebuild.storage.log_dir import find_partitions
from snaprebuild.storage.partition_dir import PartitionDir, list_partition_dir
from snaprebuild.storage.store import USUAL_S3, ReadStore, S3Settings
from snaprebuild.storage.store_path import ReadPath

__all__ = [
    "UNKNOWN_STATE",
    "CoordinatorHistory",
    "KnownState",
    "StateRecord",
    "TransactionStates",
    "TwoPhase",
    "find_transaction_states",
    "own_transaction_states",
]


class TwoPhase(StrEnum):
    """Whether a transaction is under two-phase commit."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class KnownState:
    """The state of a transaction in the coordinators' records.

    Attributes:
        two_phase: whether it is under two-phase commit.
        transactional_id: of its producer; None if no record names the producer.
        timeout_ms: with which the producer was initialized; None if that is unknown.
    """

    two_phase: TwoPhase = TwoPhase.UNKNOWN
    transactional_id: str | None = None
    timeout_ms: int | None = None


UNKNOWN_STATE = KnownState()


@dataclass(frozen=True, slots=True)
class StateRecord:
    """A record of a transactional id.

    Attributes:
        offset: in its partition.
        timestamp_ms: of the record.
        state: None for a tombstone: the transactional id has expired.
    """

    offset: int
    timestamp_ms: int
    state: TransactionState | None


@dataclass(frozen=True, slots=True)
class CoordinatorHistory:
    """The retained records of a transactional id in one copy of its partition.

    Attributes:
        directory: the copy.
        transactional_id: whose records these are.
        records: in their order, at least one.
        newest_ms: greatest timestamp of a record of the partition, of any id: until then the copy is complete.
        end_offset: after the last record of the partition.
    """

    directory: PartitionDir
    transactional_id: str
    records: tuple[StateRecord, ...]
    newest_ms: int
    end_offset: int

    @property
    def newest(self) -> StateRecord:
        """The record that counts."""
        return self.records[-1]

    def states(self) -> Iterable[tuple[StateRecord, TransactionState]]:
        """The records that are no tombstones, in their order."""
        for record in self.records:
            if record.state is not None:
                yield record, record.state


class TransactionStates:
    """Partitions of ``__transaction_state``, which are read for the first late transaction.

    Attributes:
        findings: about what could not be read.
        partition_numbers: of the partitions that were given.
    """

    def __init__(self, directories: Sequence[PartitionDir] = ()) -> None:
        """Reads nothing yet. Several copies of one partition may be given: each can only add evidence."""
        self._directories = tuple(directories)
        self._cluster_ids: dict[str, str] | None = None
        self._of_clusters: dict[str | None, TransactionStates] = {}
        self._unread = list(directories)
        self._two_phase: set[int] = set()
        self._timeouts: dict[tuple[int, int], int] = {}
        self._transactional_ids: dict[int, str] = {}
        self._copies: dict[str, list[PartitionDir]] = {}
        self._damaged: set[str] = set()
        self.findings: list[Finding] = []
        self.partition_numbers = frozenset(directory.name.partition for directory in directories)

    def of_cluster(self, cluster_id: str | None) -> TransactionStates:
        """The states that may be of one cluster: elsewhere the same producer ids belong to other producers.

        A copy without ``meta.properties`` above it may be of any cluster.

        Args:
            cluster_id: of the log directory with the transaction; None if that is unknown.
        """
        if self._cluster_ids is None:
            self._cluster_ids = _cluster_ids_of(self._directories)
        others = set(self._cluster_ids.values()) - {cluster_id}
        if not others or (cluster_id is None and len(others) == 1):
            return self
        if cluster_id not in self._of_clusters:
            ids = self._cluster_ids
            states = TransactionStates(
                [directory for directory in self._directories if ids.get(directory.path) in (None, cluster_id)]
            )
            states.findings = self.findings
            self._of_clusters[cluster_id] = states
        return self._of_clusters[cluster_id]

    def of(self, producer_id: int, epoch: int) -> KnownState:
        """The evidence about a transaction of a producer.

        Any record with the timeout of two-phase commit counts, because a later epoch may keep a prepared transaction. A record with another
        timeout counts only if it has this epoch: the timeout of a producer changes only together with its epoch.
        """
        while self._unread:
            self._read(self._unread.pop())
        name = self._transactional_ids.get(producer_id)
        if producer_id in self._two_phase:
            return KnownState(TwoPhase.YES, name, NEVER_EXPIRES_MS)
        timeout_ms = self._timeouts.get((producer_id, epoch))
        return KnownState(TwoPhase.UNKNOWN if timeout_ms is None else TwoPhase.NO, name, timeout_ms)

    def histories(self, transactional_ids: Iterable[str]) -> dict[str, CoordinatorHistory]:
        """The records of transactional ids, each from the longest copy of its partition.

        An id is left out if no record names it, or if one of the copies that name it is damaged: its newest record may be missing.

        Args:
            transactional_ids: as ``KnownState`` has them.
        """
        names_of: dict[str, tuple[PartitionDir, set[str]]] = {}
        for name in transactional_ids:
            for directory in self._copies.get(name, ()):
                names_of.setdefault(directory.path, (directory, set()))[1].add(name)
        histories: dict[str, CoordinatorHistory] = {}
        for directory, names in names_of.values():
            for history in self._histories_in(directory, names):
                other = histories.get(history.transactional_id)
                if other is None or other.end_offset < history.end_offset:
                    histories[history.transactional_id] = history
        return {name: each for name, each in histories.items() if not self._is_damaged(name)}

    @property
    def unread_paths(self) -> frozenset[str]:
        """Paths of the partitions that could not be read to their end."""
        return frozenset(self._damaged)

    def _is_damaged(self, transactional_id: str) -> bool:
        return any(copy.path in self._damaged for copy in self._copies[transactional_id])

    def _histories_in(self, directory: PartitionDir, names: set[str]) -> Iterable[CoordinatorHistory]:
        records: dict[str, list[StateRecord]] = {name: [] for name in names}
        newest_ms = -1
        end_offset = 0
        try:
            for record in log_records(directory):
                newest_ms = max(newest_ms, record.timestamp)
                end_offset = record.offset + 1
                key = record.key or b""
                name = read_transactional_id(key)
                if name in records:
                    state = None if record.value is None else read_transaction_state(key, record.value)
                    records[name].append(StateRecord(record.offset, record.timestamp, state))
        except (FormatError, ReadFailedError):  # the first reading reported it
            self._damaged.add(directory.path)
            return
        for name, own_records in records.items():
            if own_records:
                yield CoordinatorHistory(directory, name, tuple(own_records), newest_ms, end_offset)

    def _read(self, directory: PartitionDir) -> None:
        try:
            for record in log_records(directory):
                if record.value is None:
                    continue
                try:
                    state = read_transaction_state(record.key or b"", record.value)
                except FormatError as error:
                    self._report(directory, f"offset {record.offset} cannot be read, and is not judged: {error.message}")
                    continue
                self._take(directory, state)
        except FormatError as error:
            self._report(directory, f"{error.message}: the records above it are not known")
        except ReadFailedError as error:
            self._damaged.add(directory.path)
            self.findings.append(finding_of_error(error, directory.path))

    def _take(self, directory: PartitionDir, state: TransactionState) -> None:
        self._transactional_ids |= dict.fromkeys(state.producer_ids, state.transactional_id)
        copies = self._copies.setdefault(state.transactional_id, [])
        if not copies or copies[-1] is not directory:
            copies.append(directory)
        if state.is_two_phase:
            self._two_phase.update(state.producer_ids)
        elif state.producer_ids:
            self._timeouts[state.producer_ids[0], state.producer_epoch] = state.timeout_ms

    def _report(self, directory: PartitionDir, message: str) -> None:
        self._damaged.add(directory.path)
        self.findings.append(Finding("unread-transaction-state", Severity.FINDING, directory.path, message, is_unread=True))


def _cluster_ids_of(directories: Iterable[PartitionDir]) -> dict[str, str]:
    """The cluster ids of the log directories above some partitions, by path of the partition; without those that are not known."""
    cluster_ids: dict[str, str] = {}
    by_log_dir: dict[str, str | None] = {}
    for directory in directories:
        log_dir = os.path.dirname(directory.path)
        if log_dir not in by_log_dir:
            by_log_dir[log_dir] = _cluster_id(directory.store, log_dir)
        cluster_id = by_log_dir[log_dir]
        if cluster_id is not None:
            cluster_ids[directory.path] = cluster_id
    return cluster_ids


def _cluster_id(store: ReadStore, log_dir: str) -> str | None:
    try:
        data = ReadPath(store, log_dir).below(META_PROPERTIES).read_small(META_PROPERTIES_BYTES_MAX)
        return None if data is None else read_meta_properties(data).cluster_id
    except (FormatError, ReadFailedError):
        return None


def find_transaction_states(paths: Sequence[str], stores: S3Settings = USUAL_S3) -> list[PartitionDir]:
    """Partitions of ``__transaction_state`` at or below paths.

    Raises:
        UsageError: a path does not exist, or no such partition is there.
    """
    if not paths:
        return []
    paths_below = find_partitions(paths, stores)
    directories = [
        partition
        for log_dir in paths_below.log_dirs
        for partition in log_dir.partitions
        if partition.name.topic == TRANSACTION_STATE_TOPIC
    ]
    if not directories:
        raise UsageError(f"--transaction-state: there is no partition of {TRANSACTION_STATE_TOPIC}", path=paths[0])
    return directories


def own_transaction_states(source: Source) -> TransactionStates:
    """The coordinators' partitions in the log directories of a source, whichever of their partitions were selected.

    In an object store these are only the selected ones.
    """
    directories = {
        partition.directory.path: partition.directory
        for partition in source.partitions
        if partition.directory.name.topic == TRANSACTION_STATE_TOPIC
    }
    errors: list[ReadFailedError] = []
    for log_dir in source.log_dirs:
        if not log_dir.store.is_local:
            continue
        try:
            for text in sorted(log_dir.store.names_in(log_dir.path)):
                name = parse_partition_dir_name(text)
                path = os.path.join(log_dir.path, text)
                is_state = name is not None and name.topic == TRANSACTION_STATE_TOPIC and name.form is DirectoryForm.PLAIN
                if name is not None and is_state and path not in directories:
                    directories[path] = list_partition_dir(path, name)
        except ReadFailedError as error:
            errors.append(error)
    states = TransactionStates(list(directories.values()))
    states.findings += [finding_of_error(error, error.path or "") for error in errors]
    return states
