"""Names in a log directory, partitions that are there twice, and directories of partitions that are marked for deletion."""

import shutil
from pathlib import Path

from stopped_broker import append

from .building import (
    DIRECTORY_IDS,
    METADATA,
    PAYMENTS,
    PAYMENTS_ID,
    REBORN,
    SUFFIX,
    TOPICS,
    Topics,
    cut_batches,
    log_dir,
    segment,
    start_state,
    write_checkpoint,
)


@start_state(log_dirs=("d1", "d2"))
def partition_in_two_directories(base: Path) -> None:
    """A partition is in two log directories."""
    log_dir(base, name="d1")
    log_dir(base, PAYMENTS, REBORN, name="d2")


@start_state(log_dirs=("d1", "d1"))
def directory_listed_twice(base: Path) -> None:
    """A log directory is twice in log.dirs."""
    log_dir(base, name="d1")


@start_state(log_dirs=("d1", "d2"))
def directory_listed_twice_by_link(base: Path) -> None:
    """A log directory is listed a second time by a symbolic link."""
    log_dir(base, name="d1")
    (base / "d2").symlink_to(base / "d1")


@start_state()
def log_dir_is_a_file(base: Path) -> None:
    """The log directory is a file."""
    (base / "data").write_text("")


@start_state(log_dirs=("d1", "d2"))
def one_log_dir_is_a_file(base: Path) -> None:
    """One of two log directories is a file."""
    log_dir(base, name="d1")
    (base / "d2").write_text("")


@start_state()
def log_dir_missing(base: Path) -> None:
    """The log directory is not there."""
    assert not (base / "data").exists()


@start_state()
def odd_directory(base: Path) -> None:
    """A directory whose name is not that of a partition."""
    (log_dir(base) / "backup").mkdir()


@start_state()
def odd_directory_lost_and_found(base: Path) -> None:
    """The directory that a file system puts at its root."""
    (log_dir(base) / "lost+found").mkdir()


@start_state()
def odd_directory_with_dash(base: Path) -> None:
    """A directory whose name ends with a dash and no number."""
    shutil.copytree(PAYMENTS, log_dir(base) / "payments-old")


@start_state()
def odd_directory_hidden(base: Path) -> None:
    """A hidden directory."""
    (log_dir(base) / ".snapshots").mkdir()


@start_state()
def odd_directory_copy_suffix(base: Path) -> None:
    """A copy of a partition with a suffix that no broker gives."""
    shutil.copytree(PAYMENTS, log_dir(base) / f"payments-0.{SUFFIX}-backup")


@start_state()
def odd_directory_partition_number(base: Path) -> None:
    """A copy of a partition as another partition of the same topic."""
    root = log_dir(base)
    shutil.copytree(PAYMENTS, root / "payments-7")


@start_state()
def odd_file(base: Path) -> None:
    """A file of an operator is next to the partitions."""
    (log_dir(base) / "notes.txt").write_text("")


@start_state()
def partition_name_is_a_file(base: Path) -> None:
    """A file has the name of a partition."""
    (log_dir(base) / "payments-1").write_text("")


@start_state()
def partition_is_a_link(base: Path) -> None:
    """A partition's directory is a symbolic link to another disk."""
    root = log_dir(base)
    (root / "payments-0").rename(base / "elsewhere")
    (root / "payments-0").symlink_to(base / "elsewhere")


@start_state()
def directory_in_partition(base: Path) -> None:
    """A directory is inside of a partition's directory."""
    (log_dir(base) / "payments-0" / "backup").mkdir()


@start_state()
def directory_named_as_log(base: Path) -> None:
    """A directory inside of a partition's directory is named as a segment."""
    (log_dir(base) / "payments-0" / f"{300:020d}.log").mkdir()


# ---- marked for deletion, set aside, being moved: they are loaded, too


@start_state()
def deleted_partition_zeros_at_end(base: Path) -> None:
    """A partition that is marked for deletion has zeros after its last batch, next to the marker."""
    root = log_dir(base)
    shutil.copytree(REBORN, root / f"reborn-0.{SUFFIX}-delete")
    append(segment(root / f"reborn-0.{SUFFIX}-delete", 77), bytes(4096))


@start_state()
def deleted_partition_topic_id_file_empty(base: Path) -> None:
    """A partition that is marked for deletion has a partition.metadata of 0 bytes."""
    root = log_dir(base)
    shutil.copytree(REBORN, root / f"reborn-0.{SUFFIX}-delete")
    (root / f"reborn-0.{SUFFIX}-delete" / "partition.metadata").write_bytes(b"")


@start_state()
def deleted_partition_leader_epochs_garbage(base: Path) -> None:
    """A partition that is marked for deletion has leader epochs that cannot be parsed."""
    root = log_dir(base)
    shutil.copytree(REBORN, root / f"reborn-0.{SUFFIX}-delete")
    (root / f"reborn-0.{SUFFIX}-delete" / "leader-epoch-checkpoint").write_text("garbage\n")


@start_state()
def deleted_and_made_anew(base: Path) -> None:
    """A partition is marked for deletion, and one of the same name was made since."""
    root = log_dir(base)
    shutil.copytree(PAYMENTS, root / f"payments-0.{SUFFIX}-delete")


@start_state()
def stray_zeros_at_end(base: Path) -> None:
    """A stray of an earlier start has zeros after its last batch, next to the marker."""
    root = log_dir(base)
    shutil.copytree(REBORN, root / f"reborn-0.{SUFFIX}-stray")
    append(segment(root / f"reborn-0.{SUFFIX}-stray", 77), bytes(4096))


@start_state()
def stray_and_partition(base: Path) -> None:
    """A stray of an earlier start, and the partition of the same name."""
    root = log_dir(base)
    shutil.copytree(PAYMENTS, root / f"payments-0.{SUFFIX}-stray")


@start_state(log_dirs=("d1", "d2"))
def two_futures(base: Path) -> None:
    """Two copies named -future of one partition, in two directories."""
    log_dir(base, name="d1")
    log_dir(base, REBORN, name="d2")
    shutil.copytree(PAYMENTS, base / "d1" / f"payments-0.{SUFFIX}-future")
    shutil.copytree(PAYMENTS, base / "d2" / f"payments-0.{SUFFIX}-future")


@start_state()
def future_next_to_partition(base: Path) -> None:
    """A copy named -future in the same directory as the partition."""
    root = log_dir(base)
    shutil.copytree(PAYMENTS, root / f"payments-0.{SUFFIX}-future")


# ---- copies named -future: loaded, and from 3.7.1 on put in the place of the partition if the controller knows them


MOVED: Topics = {**TOPICS, "payments": (PAYMENTS_ID, (1,), DIRECTORY_IDS["d2"])}
ELSEWHERE: Topics = {**TOPICS, "payments": (PAYMENTS_ID, (2,), DIRECTORY_IDS["d2"])}


def _moved(base: Path) -> Path:
    """The partition is in d1, and its copy in d2."""
    log_dir(base, name="d1")
    future = log_dir(base, REBORN, name="d2") / f"payments-0.{SUFFIX}-future"
    shutil.copytree(PAYMENTS, future)
    return future


@start_state(log_dirs=("d1", "d2"), topics=MOVED)
def future_shorter_than_partition(base: Path) -> None:
    """A copy named -future, which the controller knows, lacks the last three batches of the partition."""
    cut_batches(segment(_moved(base), 116), 3)


@start_state(log_dirs=("d1", "d2"), topics=MOVED)
def future_shorter_than_partition_killed(base: Path) -> None:
    """A copy named -future, which the controller knows, lacks the last three batches of the partition; without the marker."""
    cut_batches(segment(_moved(base), 116), 3)
    for name in ("d1", "d2"):
        (base / name / ".kafka_cleanshutdown").unlink()


@start_state(log_dirs=("d1", "d2"))
def future_without_topic_id(base: Path) -> None:
    """A copy named -future has no partition.metadata."""
    (_moved(base) / "partition.metadata").unlink()


@start_state(log_dirs=("d1", "d2"), topics=ELSEWHERE)
def future_of_a_partition_of_another_broker(base: Path) -> None:
    """A partition and its copy named -future; the partition is assigned to another broker."""
    _moved(base)


@start_state(log_dirs=("d1", "d2"))
def future_topic_id_file_empty(base: Path) -> None:
    """A copy named -future has a partition.metadata of 0 bytes."""
    (_moved(base) / "partition.metadata").write_bytes(b"")


@start_state(log_dirs=("d1", "d2"))
def future_leader_epochs_garbage(base: Path) -> None:
    """The leader epochs of a copy named -future cannot be parsed."""
    (_moved(base) / "leader-epoch-checkpoint").write_text("garbage\n")


@start_state(log_dirs=("d1", "d2"))
def future_zeros_at_end(base: Path) -> None:
    """A copy named -future has zeros after its last batch, next to the marker."""
    append(segment(_moved(base), 116), bytes(4096))


@start_state(log_dirs=("d1", "d2"))
def future_alone_not_registered(base: Path) -> None:
    """The copy named -future is all there is, and the controller knows the other directory."""
    _moved(base)
    shutil.rmtree(base / "d1" / "payments-0")


@start_state(log_dirs=("d1", "d2"), topics=MOVED)
def move_future_alone(base: Path) -> None:
    """The copy named -future is all there is, and the controller knows its directory."""
    _moved(base)
    shutil.rmtree(base / "d1" / "payments-0")


@start_state(log_dirs=("d1", "d2"), topics=ELSEWHERE)
def future_alone_of_a_partition_of_another_broker(base: Path) -> None:
    """The copy named -future is all there is; the partition is assigned to another broker."""
    _moved(base)
    shutil.rmtree(base / "d1" / "payments-0")


@start_state(log_dirs=("d1", "d2"))
def future_alone_without_topic_id(base: Path) -> None:
    """The copy named -future is all there is, and has no partition.metadata."""
    (_moved(base) / "partition.metadata").unlink()
    shutil.rmtree(base / "d1" / "payments-0")


@start_state(log_dirs=("d1", "d2"))
def two_futures_without_topic_id(base: Path) -> None:
    """Two copies named -future of one partition, both without partition.metadata."""
    first = base / "d1" / f"payments-0.{SUFFIX}-future"
    second = _moved(base)
    shutil.copytree(second, first)
    for copy in (first, second):
        (copy / "partition.metadata").unlink()


# ---- strays and directories that are marked for deletion, once more


@start_state()
def stray_topic_id_file_empty(base: Path) -> None:
    """A stray of an earlier start has a partition.metadata of 0 bytes."""
    root = log_dir(base)
    shutil.copytree(REBORN, root / f"reborn-0.{SUFFIX}-stray")
    (root / f"reborn-0.{SUFFIX}-stray" / "partition.metadata").write_bytes(b"")


@start_state()
def stray_without_topic_id(base: Path) -> None:
    """A stray of an earlier start has no partition.metadata, which is why it was set aside."""
    root = log_dir(base)
    shutil.copytree(REBORN, root / f"reborn-0.{SUFFIX}-stray")
    (root / f"reborn-0.{SUFFIX}-stray" / "partition.metadata").unlink()


@start_state()
def stray_leader_epochs_garbage(base: Path) -> None:
    """The leader epochs of a stray of an earlier start cannot be parsed."""
    root = log_dir(base)
    shutil.copytree(REBORN, root / f"reborn-0.{SUFFIX}-stray")
    (root / f"reborn-0.{SUFFIX}-stray" / "leader-epoch-checkpoint").write_text("garbage\n")


@start_state(log_dirs=("d1", "d2"))
def stray_in_two_directories(base: Path) -> None:
    """Strays of one partition are in two directories."""
    log_dir(base, name="d1")
    log_dir(base, name="d2")
    shutil.rmtree(base / "d2" / "payments-0")
    for name in ("d1", "d2"):
        shutil.copytree(REBORN, base / name / f"reborn-0.{SUFFIX}-stray")


@start_state(log_dirs=("d1", "d2"))
def deleted_in_two_directories(base: Path) -> None:
    """Directories of one partition that are marked for deletion are in two log directories."""
    log_dir(base, name="d1")
    log_dir(base, name="d2")
    shutil.rmtree(base / "d2" / "payments-0")
    for name in ("d1", "d2"):
        shutil.copytree(REBORN, base / name / f"reborn-0.{SUFFIX}-delete")


@start_state()
def deleted_partition_without_topic_id(base: Path) -> None:
    """A partition that is marked for deletion has no partition.metadata."""
    root = log_dir(base)
    shutil.copytree(REBORN, root / f"reborn-0.{SUFFIX}-delete")
    (root / f"reborn-0.{SUFFIX}-delete" / "partition.metadata").unlink()


# ---- the metadata log


@start_state(log_dirs=("d1", "d2"))
def metadata_log_in_second_directory(base: Path) -> None:
    """The metadata log is in the second of log.dirs, and metadata.log.dir is not set: Kafka expects it in the first."""
    log_dir(base, name="d1")
    log_dir(base, REBORN, METADATA, name="d2")


@start_state(log_dirs=("d1", "d2"))
def metadata_log_in_first_directory(base: Path) -> None:
    """The metadata log is in the first of log.dirs, where Kafka expects it."""
    log_dir(base, PAYMENTS, METADATA, name="d1")
    log_dir(base, REBORN, name="d2")


@start_state(log_dirs=("d1", "d2"))
def second_log_dir_empty(base: Path) -> None:
    """The second log directory has no file: its disk is not mounted."""
    log_dir(base, name="d1")
    (base / "d2").mkdir()


@start_state(log_dirs=("d1", "d2"))
def second_log_dir_missing(base: Path) -> None:
    """The second log directory is not there."""
    log_dir(base, name="d1")


@start_state(log_dirs=("d1", "d2"))
def first_log_dir_is_a_file(base: Path) -> None:
    """The first of two log directories, which is that of the metadata log, is a file."""
    (base / "d1").write_text("")
    log_dir(base, REBORN, name="d2")


# ---- one directory fails, the other does not


@start_state(log_dirs=("d1", "d2"))
def one_of_two_offline(base: Path) -> None:
    """The leader epochs of a partition in one of two directories cannot be parsed."""
    log_dir(base, name="d1")
    root = log_dir(base, REBORN, name="d2")
    (root / "reborn-0" / "leader-epoch-checkpoint").write_text("garbage\n")


@start_state(log_dirs=("d1", "d2"))
def both_offline(base: Path) -> None:
    """The leader epochs of a partition in each of two directories cannot be parsed."""
    for root, partition in ((log_dir(base, name="d1"), "payments-0"), (log_dir(base, REBORN, name="d2"), "reborn-0")):
        (root / partition / "leader-epoch-checkpoint").write_text("garbage\n")


@start_state()
def one_of_two_partitions_offline(base: Path) -> None:
    """Two partitions in one directory; the leader epochs of one cannot be parsed."""
    root = log_dir(base, PAYMENTS, REBORN)
    (root / "reborn-0" / "leader-epoch-checkpoint").write_text("garbage\n")


@start_state(log_dirs=("d1", "d2"))
def offline_and_no_start(base: Path) -> None:
    """One directory has leader epochs that cannot be parsed, the other a partition.metadata of 0 bytes."""
    root = log_dir(base, name="d1")
    (root / "payments-0" / "leader-epoch-checkpoint").write_text("garbage\n")
    (log_dir(base, REBORN, name="d2") / "reborn-0" / "partition.metadata").write_bytes(b"")


@start_state()
def recovery_points_of_partitions_that_are_gone(base: Path) -> None:
    """Checkpoints name a partition that is not there."""
    root = log_dir(base)
    for name in ("recovery-point", "replication"):
        write_checkpoint(root / f"{name}-offset-checkpoint", {"payments-0": 173, "gone-0": 99})


# ---- meta.properties, as far as LogManager reads it: the broker reads it before


@start_state()
def meta_properties_missing(base: Path) -> None:
    """meta.properties is gone."""
    (log_dir(base) / "meta.properties").unlink()


@start_state()
def meta_properties_empty(base: Path) -> None:
    """meta.properties has 0 bytes."""
    (log_dir(base) / "meta.properties").write_bytes(b"")


@start_state()
def meta_properties_garbage(base: Path) -> None:
    """meta.properties cannot be parsed."""
    (log_dir(base) / "meta.properties").write_text("version=one\nnode.id=\\u00zz\n")


@start_state()
def meta_properties_no_directory_id(base: Path) -> None:
    """meta.properties has no directory id, as before 3.7."""
    (log_dir(base) / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=Pq2wE8rTSkGz6xYb1nMc3A\n")


@start_state(log_dirs=("d1", "d2"))
def meta_properties_same_directory_id(base: Path) -> None:
    """Two log directories have the same directory id, as of a copied disk."""
    first = log_dir(base, name="d1")
    second = log_dir(base, REBORN, name="d2")
    (second / "meta.properties").write_bytes((first / "meta.properties").read_bytes())
