"""``partition.metadata``, and partitions that the metadata image does not know."""

from pathlib import Path

from .building import (
    DIRECTORY_IDS,
    PAYMENTS_ID,
    TOPICS,
    log_dir,
    segment,
    snapshot,
    start_state,
    write_checkpoint,
    zookeeper_log_dir,
)

OTHER_ID = "AAECAwQFBgcICQoLDA0ODw"
ZERO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def _with_metadata(base: Path, text: str) -> Path:
    path = log_dir(base) / "payments-0" / "partition.metadata"
    path.write_text(text)
    return path


@start_state()
def topic_id_file_empty(base: Path) -> None:
    """partition.metadata has 0 bytes."""
    _with_metadata(base, "")


@start_state()
def topic_id_file_one_line(base: Path) -> None:
    """partition.metadata has the line of the version alone."""
    _with_metadata(base, "version: 0\n")


@start_state()
def topic_id_no_uuid(base: Path) -> None:
    """partition.metadata has an id that is no UUID."""
    _with_metadata(base, "version: 0\ntopic_id: nonsense-that-is-no-uuid!")


@start_state()
def topic_id_zero(base: Path) -> None:
    """partition.metadata has the id zero."""
    _with_metadata(base, f"version: 0\ntopic_id: {ZERO_ID}")


@start_state()
def topic_id_file_garbage(base: Path) -> None:
    """partition.metadata has lines of another kind."""
    _with_metadata(base, "garbage\nmore garbage\n")


@start_state()
def topic_id_file_newer_version(base: Path) -> None:
    """partition.metadata has version 1."""
    _with_metadata(base, f"version: 1\ntopic_id: {PAYMENTS_ID}")


@start_state()
def topic_id_file_zero_bytes_only(base: Path) -> None:
    """partition.metadata has zeros of its length, as after a power failure."""
    _with_metadata(base, "\0" * 43)


@start_state()
def topic_id_file_is_a_directory(base: Path) -> None:
    """partition.metadata cannot be read: it is a directory."""
    path = _with_metadata(base, "")
    path.unlink()
    path.mkdir()


@start_state()
def topic_id_file_missing(base: Path) -> None:
    """partition.metadata is gone."""
    _with_metadata(base, "").unlink()


@start_state()
def topic_id_file_missing_empty_log(base: Path) -> None:
    """partition.metadata is gone, and the log is empty: the topic was being made."""
    path = _with_metadata(base, "")
    path.unlink()
    for each in path.parent.iterdir():
        each.unlink()
    for suffix in (".log", ".index", ".timeindex"):
        segment(path.parent, 0, suffix).write_bytes(b"")
    for name in ("recovery-point", "replication"):
        write_checkpoint(path.parent.parent / f"{name}-offset-checkpoint", {"payments-0": 0})


@start_state(zookeeper=True)
def zookeeper_topic_id_file_empty(base: Path) -> None:
    """With ZooKeeper, partition.metadata has 0 bytes."""
    (zookeeper_log_dir(base) / "payments-0" / "partition.metadata").write_bytes(b"")


@start_state(zookeeper=True, keeps_topic_ids=False, settings={"inter.broker.protocol.version": "2.7"})
def zookeeper_protocol_2_7_topic_id_file_empty(base: Path) -> None:
    """With ZooKeeper and protocol 2.7, partition.metadata has 0 bytes."""
    (zookeeper_log_dir(base) / "payments-0" / "partition.metadata").write_bytes(b"")


# ---- strays


@start_state(topics={**TOPICS, "payments": (PAYMENTS_ID, (2, 3), DIRECTORY_IDS["data"])})
def not_a_replica(base: Path) -> None:
    """By the image other brokers have the replicas: a reassignment ended while this one was down."""
    log_dir(base)


@start_state(topics={**TOPICS, "payments": (OTHER_ID, (1,), DIRECTORY_IDS["data"])})
def another_topic_id(base: Path) -> None:
    """The image has another id for the name: the topic was deleted and made anew."""
    log_dir(base)


@start_state(topics={name: topic for name, topic in TOPICS.items() if name != "payments"})
def topic_not_in_image(base: Path) -> None:
    """The image has no topic of the name: it was deleted."""
    log_dir(base)


@start_state(topics={name: topic for name, topic in TOPICS.items() if name != "payments"})
def topic_not_in_image_without_id(base: Path) -> None:
    """The image has no topic of the name, and partition.metadata is gone."""
    (log_dir(base) / "payments-0" / "partition.metadata").unlink()


@start_state(topics={})
def image_without_topics(base: Path) -> None:
    """The image has no topic at all: the metadata log is that of another cluster, or was replaced."""
    log_dir(base)


@start_state(topics={**TOPICS, "payments": (PAYMENTS_ID, (2, 3), DIRECTORY_IDS["data"])})
def not_a_replica_killed(base: Path) -> None:
    """A replica that moved away, and the broker was killed."""
    partition = log_dir(base, clean=False, recovery_points={"payments-0": 116}) / "payments-0"
    snapshot(partition, 173).unlink()
