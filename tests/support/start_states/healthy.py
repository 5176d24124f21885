"""Healthy forms of real life."""

import shutil
from pathlib import Path

from manifests import FIXTURES
from stopped_broker import append

from .building import (
    COMPACTED,
    DIRECTORY_IDS,
    METADATA,
    NODE,
    ORDERS,
    PAYMENTS,
    PAYMENTS_ID,
    REBORN,
    SUFFIX,
    TOPICS,
    log_dir,
    remove,
    segment,
    snapshot,
    start_state,
    write_checkpoint,
    zookeeper_log_dir,
)


@start_state()
def clean_stop(base: Path) -> None:
    """A clean stop."""
    log_dir(base)


@start_state()
def clean_stop_transactions(base: Path) -> None:
    """A clean stop, with transactions that were aborted."""
    log_dir(base, ORDERS)


@start_state()
def killed(base: Path) -> None:
    """A kill: no marker, the recovery point is the base offset of the last segment, its indexes are preallocated."""
    root = log_dir(base, clean=False, recovery_points={"payments-0": 116})
    for suffix in (".index", ".timeindex"):
        append(segment(root / "payments-0", 116, suffix), bytes(4000))
    snapshot(root / "payments-0", 173).unlink()


@start_state()
def killed_long_after_flush(base: Path) -> None:
    """A kill: the recovery point is in the first segment, so that all segments are recovered."""
    log_dir(base, clean=False, recovery_points={"payments-0": 20})


@start_state()
def killed_transactions(base: Path) -> None:
    """A kill: transactions, and the recovery point is in the second segment of seven."""
    log_dir(base, ORDERS, clean=False, recovery_points={"orders-0": 100})


@start_state(log_dirs=("d1", "d2"))
def jbod(base: Path) -> None:
    """Two log directories, each with a partition."""
    log_dir(base, name="d1")
    log_dir(base, REBORN, name="d2")


@start_state(log_dirs=("d1", "d2"))
def jbod_one_killed(base: Path) -> None:
    """Two log directories, of which one has no marker."""
    log_dir(base, name="d1")
    log_dir(base, REBORN, name="d2", clean=False, recovery_points={"reborn-0": 77})


@start_state(log_dirs=("d1", "d2"))
def move_between_directories(base: Path) -> None:
    """A move between two directories was under way: the copy has the name ending with -future."""
    log_dir(base, name="d1")
    other = log_dir(base, REBORN, name="d2")
    shutil.copytree(PAYMENTS, other / f"payments-0.{SUFFIX}-future")
    snapshot(other / f"payments-0.{SUFFIX}-future", 173).unlink()


MOVED = {**TOPICS, "payments": (PAYMENTS_ID, (1,), DIRECTORY_IDS["d2"])}


@start_state(log_dirs=("d1", "d2"), topics=MOVED)
def move_registered_not_renamed(base: Path) -> None:
    """A move had ended for the controller, which knows the new directory, but its copy is still named -future."""
    log_dir(base, name="d1")
    other = log_dir(base, REBORN, name="d2")
    shutil.copytree(PAYMENTS, other / f"payments-0.{SUFFIX}-future")


@start_state()
def deleted_partition(base: Path) -> None:
    """A partition of a deleted topic, which was to be removed a minute later."""
    root = log_dir(base)
    shutil.copytree(REBORN, root / f"reborn-0.{SUFFIX}-delete")


@start_state()
def stray_of_an_earlier_start(base: Path) -> None:
    """A partition that an earlier start had set aside as a stray."""
    root = log_dir(base)
    shutil.copytree(REBORN, root / f"reborn-0.{SUFFIX}-stray")


@start_state()
def finished_compaction(base: Path) -> None:
    """The cleaner had replaced the segment at 56 by a .swap with all its files, and was stopped before the last rename."""
    partition = log_dir(base) / "payments-0"
    for suffix in (".log", ".index", ".timeindex"):
        path = segment(partition, 56, suffix)
        path.rename(path.with_name(f"{path.name}.swap"))


@start_state()
def deleted_files(base: Path) -> None:
    """Files of a segment that was to be deleted a minute later."""
    partition = log_dir(base, log_starts={"payments-0": 56}) / "payments-0"
    for suffix in (".log", ".index", ".timeindex"):
        path = segment(partition, 0, suffix)
        path.rename(path.with_name(f"{path.name}.deleted"))


@start_state()
def index_cache_of_remote_storage(base: Path) -> None:
    """The cache of indexes of remote segments is next to the partitions."""
    root = log_dir(base)
    (root / "remote-log-index-cache").mkdir()
    (root / "remote-log-index-cache" / "1_AAAAAAAAAAAAAAAAAAAAAQ.index").write_bytes(bytes(8))


@start_state()
def never_started(base: Path) -> None:
    """A directory that was formatted only."""
    root = log_dir(base)
    shutil.rmtree(root / "payments-0")
    for path in root.glob("*checkpoint"):
        path.unlink()
    (root / ".kafka_cleanshutdown").unlink()


@start_state()
def metadata_log_alone(base: Path) -> None:
    """The disk of a controller."""
    log_dir(base, METADATA)


@start_state()
def metadata_log_and_partitions(base: Path) -> None:
    """The disk of a node that is broker and controller."""
    log_dir(base, PAYMENTS, METADATA)


@start_state()
def moved_log_start(base: Path) -> None:
    """The log start is inside of the second segment; the first one is gone."""
    partition = log_dir(base, log_starts={"payments-0": 60}) / "payments-0"
    remove(partition, 0, ".log", ".index", ".timeindex")


@start_state()
def empty_partition(base: Path) -> None:
    """A partition that never had a record."""
    root = log_dir(base)
    partition = root / "payments-0"
    for base_offset in (56, 116):
        remove(partition, base_offset, ".log", ".index", ".timeindex", ".snapshot")
    snapshot(partition, 173).unlink()
    for suffix in (".log", ".index", ".timeindex"):
        segment(partition, 0, suffix).write_bytes(b"")
    (partition / "leader-epoch-checkpoint").write_text("0\n0\n")
    for name in ("recovery-point", "replication"):
        write_checkpoint(root / f"{name}-offset-checkpoint", {"payments-0": 0})


@start_state()
def remote_alone(base: Path) -> None:
    """All segments are in remote storage: the log is empty and begins at its end."""
    partition = log_dir(base, log_starts={"payments-0": 0}) / "payments-0"
    for base_offset in (0, 56, 116):
        remove(partition, base_offset, ".log", ".index", ".timeindex")
    for offset in (56, 116):
        snapshot(partition, offset).unlink()
    for suffix in (".log", ".index", ".timeindex"):
        segment(partition, 173, suffix).write_bytes(b"")


@start_state()
def compacted(base: Path) -> None:
    """A compacted log, with the snapshots that the cleaner left."""
    log_dir(base, COMPACTED)


@start_state(zookeeper=True)
def zookeeper_clean(base: Path) -> None:
    """With ZooKeeper and topic ids, a clean stop."""
    zookeeper_log_dir(base)


@start_state(zookeeper=True)
def zookeeper_killed(base: Path) -> None:
    """With ZooKeeper and topic ids, a kill."""
    root = zookeeper_log_dir(base, clean=False)
    write_checkpoint(root / "recovery-point-offset-checkpoint", {"payments-0": 116})


@start_state(zookeeper=True)
def zookeeper_without_ids(base: Path) -> None:
    """With ZooKeeper and protocol 2.8 or newer, a partition that has no id yet."""
    zookeeper_log_dir(base, protocol_below_2_8=True)


@start_state(zookeeper=True, keeps_topic_ids=False, settings={"inter.broker.protocol.version": "2.7"})
def zookeeper_protocol_2_7(base: Path) -> None:
    """With ZooKeeper and protocol 2.7, no ids."""
    zookeeper_log_dir(base, protocol_below_2_8=True)


@start_state(zookeeper=True, keeps_topic_ids=False, settings={"inter.broker.protocol.version": "2.7"})
def zookeeper_protocol_2_7_with_ids(base: Path) -> None:
    """With ZooKeeper and protocol 2.7, and ids of a time when the protocol was newer."""
    zookeeper_log_dir(base)


@start_state(zookeeper=True)
def upgrade_from_2_7(base: Path) -> None:
    """A directory of a broker of 2.7.2: few snapshots, and no ids."""
    source = FIXTURES / "kafka27-mixed" / "logs" / "deleted-0"
    root = log_dir(base, source, recovery_points={"deleted-0": 997}, high_watermarks={"deleted-0": 997})
    (root / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=Pq2wE8rTSkGz6xYb1nMc3A\n")
    assert not (NODE / "deleted-0").exists()


@start_state()
def clean_stop_low_recovery_point(base: Path) -> None:
    """A clean stop, and a recovery point far below the log end: nothing is recovered."""
    log_dir(base, ORDERS, recovery_points={"orders-0": 91})


@start_state()
def topic_id_temporary_file(base: Path) -> None:
    """A temporary file of partition.metadata is left."""
    (log_dir(base) / "payments-0" / "partition.metadata.tmp").write_text("version: 0\n")


@start_state(zookeeper=True)
def format_1_without_epochs(base: Path) -> None:
    """A log of message format 1, which has no leader epochs."""
    source = next(path for path in (FIXTURES / "magic1" / "logs").iterdir() if path.is_dir())
    end = max(int(path.stem) for path in source.glob("*.snapshot"))
    root = log_dir(base, source, recovery_points={source.name: end}, high_watermarks={source.name: end})
    (root / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=Pq2wE8rTSkGz6xYb1nMc3A\n")
