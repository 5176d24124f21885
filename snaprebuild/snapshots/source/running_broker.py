"""Whether a rebuild may write beside the broker that runs: there must be one, and one that leaves the files alone."""

from __future__ import annotations

from snaprebuild.errors import RefusedError
from snaprebuild.findings import Finding, Severity
from snaprebuild.snapshots.source.source import Source
from snaprebuild.storage.local.broker_lock import HOLDER_NOT_VISIBLE, broker_version, lock_holder

__all__ = ["KEEPS_SNAPSHOTS_FROM", "check_running_brokers"]

KEEPS_SNAPSHOTS_FROM = (2, 8)
"""Up to 2.7 ``Log.deleteSnapshotsAfterRecoveryPointCheckpoint`` removes all but the newest, within a minute."""

UNKNOWN = (
    "which release of Kafka runs here cannot be told: one of 2.7 or older deletes the snapshots again within a minute; for such a broker "
    "use `stage` and `install`"
)


def check_running_brokers(source: Source) -> list[Finding]:
    """Looks at the brokers of the log directories that would be written to.

    Returns:
        A note for each directory.

    Raises:
        RefusedError: no broker runs on one of them, or one that would delete what is written, or nobody can tell.
    """
    notes = []
    for state in source.log_dirs:
        if not state.is_broker_directory:
            continue  # nothing is due there
        holder = lock_holder(state.path)
        if holder is None:
            raise RefusedError("no broker runs here: leave --broker-running out, and none can start meanwhile", path=state.path)
        version = None if holder == HOLDER_NOT_VISIBLE else broker_version(holder)
        if version is not None and version < KEEPS_SNAPSHOTS_FROM:
            raise RefusedError(
                f"Kafka {version[0]}.{version[1]} runs here, which deletes such snapshots within a minute: use `stage` and `install`",
                path=state.path,
            )
        runs = UNKNOWN if version is None else f"Kafka {version[0]}.{version[1]} runs here"
        notes.append(Finding("beside-broker", Severity.NOTE, state.path, f"{runs}; what is written counts from its next start on"))
    return notes
