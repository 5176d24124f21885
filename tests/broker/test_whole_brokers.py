"""Starts of whole brokers: what ``LogManager`` alone does not show (see ``test_start_fates.py``), and two of its fates to the end."""

import re
import shutil
import time
from pathlib import Path

import pytest
from command import snaprebuild_process
from kafka_node import KafkaNode
from kraft_node import in_kraft
from log_dirs import snapshots_in

pytestmark = pytest.mark.broker

REMOTE = {"remote.storage.enable": "true", "internal.segment.bytes": 2000, "local.retention.ms": -2}
SECONDS = 120.0
RECORDS = 200
NIGHT = pytest.mark.night


def refused(node: KafkaNode) -> str:
    """A start that ends by itself: what the broker logs."""
    mark = node.log_file.stat().st_size
    with pytest.raises(AssertionError, match="the process has ended"):
        node.start()
    return node.log_since(mark)


def written(node: KafkaNode, *topics: str) -> Path:
    """Topics with records, then a clean stop. Returns the directory of the first one's partition."""
    node.start()
    for topic in topics:
        node.create_topic(topic, {})
        node.produce(topic, RECORDS)
    node.stop()
    return node.log_dir / f"{topics[0]}-0"


def test_zeros_after_a_clean_stop_end_one_start(tmp_path: Path) -> None:
    """The marker is gone after the first start, so that the second recovers and cuts the zeros."""
    with KafkaNode(tmp_path, tiering=False) as node:
        (log,) = written(node, "orders").glob("*.log")
        size = log.stat().st_size
        with log.open("ab") as file:
            file.write(bytes(1 << 20))
        assert "CorruptRecordException: Found record size 0 smaller than minimum record overhead" in refused(node)
        assert not (node.log_dir / ".kafka_cleanshutdown").exists()
        node.start()
        assert node.end_offset("orders") == RECORDS
        node.stop()
        assert log.stat().st_size == size
        assert snapshots_in(log.parent).keys() == {RECORDS}


def remote_logs(node: KafkaNode, topic: str) -> set[str]:
    """Names of the segments in remote storage."""
    return {name for name in node.remote_files(f"{topic}-0") if name.endswith(".log")}


def test_a_leader_without_leader_epochs_deletes_what_is_in_remote_storage(tmp_path: Path) -> None:
    """Retention is unlimited. The topic whose file was left as it is keeps all copies."""
    topics = ("emptied", "whole")
    with KafkaNode(tmp_path) as node:
        node.start()
        for topic in topics:
            node.create_topic(topic, REMOTE)
            node.produce(topic, RECORDS)
        rolled = {topic: sorted((node.log_dir / f"{topic}-0").glob("*.log"))[:-1] for topic in topics}
        _wait(lambda: all(len(remote_logs(node, topic)) == len(rolled[topic]) for topic in topics))
        node.stop()
        before = remote_logs(node, "whole")
        assert len(before) >= 3
        (node.log_dir / "emptied-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
        node.start()
        _wait(lambda: not remote_logs(node, "emptied"))
        assert remote_logs(node, "whole") == before
        node.stop()


def _wait(condition) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _leader(node: KafkaNode, topic: str) -> int | None:
    """Which broker leads the one partition; None as long as the broker knows of no partition."""
    partitions = node.topic_partitions(topic)
    return partitions[0].leader if partitions else None


# ---- at night


@NIGHT
@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
@pytest.mark.parametrize(
    ("contents", "reason"),
    [(None, "No readable meta.properties files found"), ("", "is not set|not found|version"), ("\\u00zz\n", "Malformed")],
)
def test_a_node_of_kraft_needs_meta_properties(
    contents: str | None, reason: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_kraft(version, monkeypatch)(tmp_path, version=version, tiering=False) as node:
        written(node, "orders")
        path = node.log_dir / "meta.properties"
        path.unlink()
        if contents is not None:
            path.write_text(contents)
        assert re.search(reason, refused(node)), node.log_file


@NIGHT
def test_with_zookeeper_meta_properties_is_written_anew(tmp_path: Path) -> None:
    with KafkaNode(tmp_path, version="3.9.2", tiering=False) as node:
        written(node, "orders")
        (node.log_dir / "meta.properties").unlink()
        node.start()
        _wait(lambda: _leader(node, "orders") == 1)
        assert node.end_offset("orders") == RECORDS
        node.stop_all()
        assert "cluster.id=" in (node.log_dir / "meta.properties").read_text()


@NIGHT
@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_a_metadata_log_in_another_directory_ends_the_start(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = in_kraft(version, monkeypatch)
    with kind(tmp_path, version=version, tiering=False) as node:
        written(node, "orders")
    other = tmp_path / "other"
    other.mkdir()
    text = (tmp_path / "kafka-logs" / "meta.properties").read_text()
    other.joinpath("meta.properties").write_text(re.sub("directory.id=.*", "directory.id=AAECAwQFBgcICQoLDA0ODw", text))
    shutil.copytree(tmp_path / "kafka-logs" / "__cluster_metadata-0", other / "__cluster_metadata-0")
    settings = {"log.dirs": f"{tmp_path / 'kafka-logs'},{other}", "metadata.log.dir": tmp_path / "kafka-logs"}
    with kind(tmp_path, version=version, tiering=False, settings=settings) as node:
        assert "__cluster_metadata-0" in refused(node)


@NIGHT
@pytest.mark.parametrize(("version", "starts"), [("3.9.2", False), ("4.3.1", True)])
def test_a_directory_that_is_listed_twice(version: str, starts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = in_kraft(version, monkeypatch)
    with kind(tmp_path, version=version, tiering=False) as node:
        written(node, "orders")
    settings = {"log.dirs": f"{tmp_path / 'kafka-logs'},{tmp_path / 'kafka-logs'}"}
    with kind(tmp_path, version=version, tiering=False, settings=settings) as node:
        if starts:
            node.start()
            node.stop()
        else:
            assert re.search("[Dd]uplicate", refused(node))


@NIGHT
@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_a_partition_without_topic_id_is_set_aside(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_kraft(version, monkeypatch)(tmp_path, version=version, tiering=False) as node:
        partition = written(node, "orders")
        (partition / "partition.metadata").unlink()
        mark = node.start()
        assert re.search(r"orders-0 marked stray and renamed to \S+orders-0\.[0-9a-f]{32}-stray", node.log_since(mark))
        (stray,) = node.log_dir.glob("orders-0.*-stray")
        node.wait_for_log("Created log for partition orders-0", mark, SECONDS)
        assert node.end_offset("orders") == 0
        node.stop()
        assert (stray / f"{0:020d}.log").stat().st_size > 0


@NIGHT
def test_release_3_6_takes_the_topic_id_of_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where partition.metadata is gone 3.6.2 starts, keeps the log, and writes the file again."""
    with in_kraft("3.6.2", monkeypatch)(tmp_path, version="3.6.2", tiering=False) as node:
        partition = written(node, "orders")
        before = (partition / "partition.metadata").read_text()
        (partition / "partition.metadata").unlink()
        node.start()
        _wait(lambda: _leader(node, "orders") == 1)
        assert node.end_offset("orders") == RECORDS
        node.stop()
        assert (partition / "partition.metadata").read_text() == before


@NIGHT
def test_release_3_7_0_does_not_start_without_a_topic_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_kraft("3.7.0", monkeypatch)(tmp_path, version="3.7.0", tiering=False) as node:
        partition = written(node, "orders")
        (partition / "partition.metadata").unlink()
        assert "does not have a topic ID" in refused(node)


@NIGHT
@pytest.mark.parametrize(("version", "is_kept"), [("3.6.2", False), ("3.7.0", True), ("4.3.1", True)])
def test_a_partition_that_the_image_does_not_have(
    version: str, is_kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3.6 deletes it after ``file.delete.delay.ms``; 3.7.0 and later set it aside, and keep it."""
    settings = {"file.delete.delay.ms": 1000}
    with in_kraft(version, monkeypatch)(tmp_path, version=version, tiering=False, settings=settings) as node:
        partition = written(node, "orders")
        shutil.copytree(partition, node.log_dir / "orders-7")
        node.start()
        if is_kept:
            _wait(lambda: list(node.log_dir.glob("orders-7.*-stray")))
        else:
            _wait(lambda: not list(node.log_dir.glob("orders-7*")))
        node.stop()
        assert len(list(node.log_dir.glob("orders-7.*-stray"))) == int(is_kept)


@NIGHT
@pytest.mark.parametrize(("version", "kraft"), [("3.6.2", False), ("3.6.2", True), ("4.3.1", True)])
def test_an_empty_log_takes_the_place_of_a_partition_whose_future_copy_is_alone(
    version: str, kraft: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller does not know the directory of the copy. The broker creates an empty log, and cuts the copy to the end of that.

    Renamed before the start, the copy is the partition.
    """
    directories = (tmp_path / "kafka-logs", tmp_path / "other")
    settings = {"log.dirs": ",".join(map(str, directories))}
    kind = in_kraft(version, monkeypatch) if kraft else KafkaNode
    with kind(tmp_path, version=version, tiering=False, settings=settings) as node:
        written(node, "orders")
        (partition,) = tmp_path.glob("*/orders-0")
        kept = shutil.copytree(partition, tmp_path / "kept")
        (other,) = set(directories) - {partition.parent}
        copy = partition.rename(other / f"orders-0.{'0123456789abcdef' * 2}-future")
        node.start()
        _wait(lambda: _leader(node, "orders") is not None)
        assert node.end_offset("orders") == 0
        _wait(lambda: not copy.exists())
        node.stop()
        left = [path for directory in directories for path in directory.glob("orders-0*")]
        assert not any(path.stat().st_size for directory in left for path in directory.glob("*.log"))
        for directory in left:
            shutil.rmtree(directory)
        kept.rename(other / "orders-0")
        node.start()
        _wait(lambda: _leader(node, "orders") is not None)
        assert node.end_offset("orders") == RECORDS
        node.stop()


@NIGHT
def test_a_killed_broker_has_leader_epochs_from_a_log_start_that_it_did_not_write(tmp_path: Path) -> None:
    """They begin in the middle of an epoch: in health, and `scan` does not take them for lost."""
    settings = {"log.flush.start.offset.checkpoint.interval.ms": 3_600_000}
    with KafkaNode(tmp_path, tiering=False, settings=settings) as node:
        node.start()
        node.create_topic("orders", {})
        node.produce("orders", RECORDS)
        node.delete_records("orders", 50)
        epochs = node.log_dir / "orders-0" / "leader-epoch-checkpoint"
        _wait(lambda: epochs.read_text().split()[3:4] == ["50"])
        node.kill()
        assert "orders" not in (node.log_dir / "log-start-offset-checkpoint").read_text()
        assert "leader-epochs-lost" not in snaprebuild_process("scan", "--server-properties", tmp_path / "server.properties").text
        node.start()
        assert epochs.read_text().split()[3:4] == ["50"]
        node.stop()


@NIGHT
@pytest.mark.parametrize(
    ("version", "ends_the_start"), [("3.6.2", ("", "broker.id=x\n", "broker.id=\\u00zz\n")), ("3.9.2", ())], ids=["3.6.2", "3.9.2"]
)
def test_meta_properties_of_a_second_directory_with_zookeeper(
    version: str, ends_the_start: tuple[str, ...], tmp_path: Path
) -> None:
    """3.6 does not start. 3.9 writes an empty file anew, and does without a directory whose file does not parse."""
    path = tmp_path / "other" / "meta.properties"
    settings = {"log.dirs": f"{tmp_path / 'kafka-logs'},{tmp_path / 'other'}"}
    with KafkaNode(tmp_path, version=version, tiering=False, settings=settings) as node:
        written(node, "orders")
        for contents in ("", "broker.id=x\n", "broker.id=\\u00zz\n"):
            path.write_text(contents)
            if contents in ends_the_start:
                refused(node)
                continue
            mark = node.start()
            is_offline = f"Failed to create or validate data directory {path.parent}" in node.log_since(mark)
            node.stop()
            assert is_offline == bool(contents)
            assert ("cluster.id=" in path.read_text()) != is_offline
        path.unlink()
        node.start()
        node.stop_all()
        assert "cluster.id=" in path.read_text()
