"""Which open transactions are under two-phase commit (KIP-939), by the coordinator's own log.

Such a transaction never expires. Once it is prepared, something outside of Kafka decides about its commit, and an abort loses data. Kafka
4.3 has no state of its own for that: its timeout is the greatest int32.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from formats.errors import FormatError
from formats.metadata.transaction_state import TRANSACTION_STATE_TOPIC, read_transaction_state
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error
from snaprebuild.snapshots.source.log_records import log_records
from snaprebuild.storage.log_dir import find_partitions
from snaprebuild.storage.partition_dir import PartitionDir
from snaprebuild.storage.store import USUAL_S3, S3Settings

__all__ = ["TransactionStates", "TwoPhase", "find_transaction_states"]


class TwoPhase(StrEnum):
    """Whether a transaction is under two-phase commit."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class TransactionStates:
    """Partitions of ``__transaction_state``, read when the first transaction is asked for.

    Attributes:
        findings: what could not be read.
    """

    def __init__(self, directories: Sequence[PartitionDir] = ()) -> None:
        """Reads nothing yet. Several copies of one partition may be given: each can only add evidence."""
        self._directories = list(directories)
        self._two_phase: set[int] = set()
        self._expiring: set[tuple[int, int]] = set()
        self.findings: list[Finding] = []

    def of(self, producer_id: int, epoch: int) -> TwoPhase:
        """Whether a transaction of a producer is under two-phase commit.

        Any record with such a timeout counts, as a later epoch may keep a prepared transaction. No other record counts but one of this
        very epoch: the timeout of a producer changes only together with its epoch.
        """
        while self._directories:
            self._read(self._directories.pop())
        if producer_id in self._two_phase:
            return TwoPhase.YES
        return TwoPhase.NO if (producer_id, epoch) in self._expiring else TwoPhase.UNKNOWN

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
                if state.is_two_phase:
                    self._two_phase.update(state.producer_ids)
                else:
                    self._expiring.add((state.producer_ids[0] if state.producer_ids else -1, state.producer_epoch))
        except FormatError as error:
            self._report(directory, f"{error.message}: the records above it are not known")
        except ReadFailedError as error:
            self.findings.append(finding_of_error(error, directory.path))

    def _report(self, directory: PartitionDir, message: str) -> None:
        self.findings.append(Finding("unread-transaction-state", Severity.FINDING, directory.path, message, is_unread=True))


def find_transaction_states(paths: Sequence[str], settings: S3Settings = USUAL_S3) -> list[PartitionDir]:
    """Partitions of ``__transaction_state`` at or below paths.

    Raises:
        UsageError: a path does not exist, or no such partition is there.
    """
    if not paths:
        return []
    found = find_partitions(paths, settings)
    directories = [each for log_dir in found.log_dirs for each in log_dir.partitions if each.name.topic == TRANSACTION_STATE_TOPIC]
    if not directories:
        raise UsageError(f"--transaction-state: there is no partition of {TRANSACTION_STATE_TOPIC}", path=paths[0])
    return directories
