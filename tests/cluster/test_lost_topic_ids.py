"""The content of a lost ``partition.metadata`` is printed where the metadata history proves it, and never on less. Nothing is written."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from log_dirs import tree
from manifests import FIXTURES

from snaprebuild.broker.start_facts import Assignment, PartitionFacts, Shutdown, TopicIdFile
from snaprebuild.broker.stray_fates import lost_id_remedy
from snaprebuild.cluster.scan_fates import TopicIdHistory

NODE = FIXTURES / "damaged" / "healthy" / "node"
ORIGINAL = (NODE / "payments-0" / "partition.metadata").read_text()
"""The file that the broker of the fixture wrote."""

RELEASE = ("--kafka-release", "4.3.1")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return Path(shutil.copytree(NODE, tmp_path / "node"))


def remedies(node: Path) -> list[str]:
    fates = in_json("scan", node, *RELEASE).document["fates"]
    return [each["remedy"] for each in fates if each["subject"] == "payments-0"]


def _missing(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _rubbish(path: Path) -> None:
    path.write_text("rubbish\nrubbish")


@pytest.mark.parametrize("lose", [_missing, _empty, _rubbish])
def test_the_content_is_printed(lose: Callable[[Path], None], node: Path) -> None:
    lose(node / "payments-0" / "partition.metadata")
    before = tree(node)
    (remedy,) = remedies(node)
    version, topic_id = ORIGINAL.split("\n")
    assert f'the two lines "{version}" and "{topic_id}"' in remedy
    assert topic_id in snaprebuild("scan", node, *RELEASE).stderr
    assert tree(node) == before, "nothing is written"


def _killed(node: Path) -> None:
    """No marker shows how old the metadata log may be."""
    (node / ".kafka_cleanshutdown").unlink()


def _stopped_later(node: Path) -> None:
    """The broker registered after the end of this metadata log."""
    (node / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":100000}')


def _another_disk(node: Path) -> None:
    path = node / "meta.properties"
    path.write_text(path.read_text().replace("OLUQ4H3IOks6dBfUurXmGA", "dSQ-PasJ8-bzJ4N5HoZG4Q"))


def _empty_log(node: Path) -> None:
    for path in (node / "payments-0").glob("*.log"):
        path.write_bytes(b"")


def _metadata_log_cut(node: Path) -> None:
    """The log begins above its first record: a topic of this name may have been deleted before."""
    (first,) = (node / "__cluster_metadata-0").glob("*.log")
    first.rename(first.with_name(f"{4:020d}.log"))


@pytest.mark.parametrize("change", [_killed, _stopped_later, _another_disk, _empty_log, _metadata_log_cut])
def test_less_is_no_proof(change: Callable[[Path], None], node: Path) -> None:
    (node / "payments-0" / "partition.metadata").unlink()
    change(node)
    assert not [each for each in remedies(node) if "topic_id:" in each]


def test_a_name_that_had_two_ids_is_no_proof() -> None:
    """`reborn` was deleted and made again; `orders` was not."""
    history = TopicIdHistory(str(FIXTURES / "kraft-cluster3" / "node1"))
    assert history.only_id("reborn") is None
    assert history.only_id("orders") is not None
    assert history.only_id("never-there") is None


def test_with_a_replica_in_sync_the_safe_way_comes_first() -> None:
    assignment = Assignment(topic_id=b"\1" * 16, is_replica=True, is_current=True, in_sync=(2, 3), lost_topic_id=b"\1" * 16)
    facts = PartitionFacts(
        topic_partition="t-0",
        path="/d/t-0",
        shutdown=Shutdown.CLEAN,
        topic_id=None,
        topic_id_file=TopicIdFile.ABSENT,
        assignment=assignment,
    )
    assert lost_id_remedy(facts).startswith("Safer: brokers 2, 3 are in sync, so move the directory away and let Kafka fetch")
