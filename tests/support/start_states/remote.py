"""Logs of which older segments are in remote storage."""

from pathlib import Path

from .building import ORDERS, log_dir, remove, segment, snapshot, start_state

SYSTEM = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.NoOpRemoteStorageManager",
    "remote.log.metadata.manager.class.name": "org.apache.kafka.server.log.remote.storage.NoOpRemoteLogMetadataManager",
}
TOPIC = {"remote.storage.enable": "true"}
ALL_SUFFIXES = (".log", ".index", ".timeindex")


@start_state(settings=SYSTEM, topic_settings=TOPIC)
def remote_clean(base: Path) -> None:
    """Remote storage is on for the topic; all segments are local."""
    log_dir(base)


@start_state(settings=SYSTEM, topic_settings=TOPIC)
def remote_older_segments(base: Path) -> None:
    """The log start is 0, and the first segment is in remote storage alone."""
    partition = log_dir(base, log_starts={"payments-0": 0}) / "payments-0"
    remove(partition, 0, *ALL_SUFFIXES)


@start_state(settings=SYSTEM, topic_settings=TOPIC)
def remote_all_segments(base: Path) -> None:
    """The log start is 0, and the one local segment is empty."""
    partition = log_dir(base, log_starts={"payments-0": 0}) / "payments-0"
    for base_offset in (0, 56, 116):
        remove(partition, base_offset, *ALL_SUFFIXES)
    for offset in (56, 116):
        snapshot(partition, offset).unlink()
    for suffix in ALL_SUFFIXES:
        segment(partition, 173, suffix).write_bytes(b"")


@start_state(settings=SYSTEM, topic_settings=TOPIC)
def remote_log_start_above_log_end(base: Path) -> None:
    """Remote storage is on, and the log start is above the log end."""
    log_dir(base, log_starts={"payments-0": 5000})


@start_state(settings=SYSTEM, topic_settings=TOPIC)
def remote_all_logs_gone(base: Path) -> None:
    """Remote storage is on, and no .log is left."""
    partition = log_dir(base) / "payments-0"
    for base_offset in (0, 56, 116):
        remove(partition, base_offset, ".log")


@start_state(settings=SYSTEM, topic_settings=TOPIC)
def remote_index_missing(base: Path) -> None:
    """Remote storage is on, and the first of seven segments has no .index."""
    remove(log_dir(base, ORDERS) / "orders-0", 0, ".index")


@start_state(settings=SYSTEM, topic_settings=TOPIC)
def remote_killed_older_segments(base: Path) -> None:
    """The log start is 0, the first segment is in remote storage alone, and there is no marker."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 116}, log_starts={"payments-0": 0})
    remove(root / "payments-0", 0, *ALL_SUFFIXES)


@start_state(settings=SYSTEM, topic_settings=TOPIC)
def remote_snapshot_missing(base: Path) -> None:
    """Remote storage is on, and a snapshot in the middle is gone."""
    snapshot(log_dir(base, ORDERS) / "orders-0", 258).unlink()
