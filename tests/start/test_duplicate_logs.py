"""The start of a broker with a partition, a future copy or a log directory that is there twice, and the healthy forms next to
these."""

import shutil
from pathlib import Path

import msgspec
import pytest
from command import in_json, snaprebuild
from sentences import NO_START
from stopped_broker import made

from formats.partition.file_names import DirectoryForm
from formats.partition.partition_metadata import uuid_from_text
from snaprebuild.broker.duplicate_logs import future_in_two_places, log_dir_listed_twice, partition_in_two_places
from snaprebuild.broker.fates import FateKind
from snaprebuild.broker.releases import Release, ReleaseRange
from snaprebuild.broker.start_facts import Assignment, BrokerFacts, PartitionFacts, Shutdown, TopicIdFile
from snaprebuild.storage.log_dir import ClusterKind

OLD_ID, NEW_ID = (uuid_from_text(text) for text in ("jbhM2bicRN6uA2U4lwDEMw", "gm2mFj46QE-Snp46ULzMsA"))


def broker_of(release: Release) -> BrokerFacts:
    return BrokerFacts(cluster_kind=ClusterKind.KRAFT, releases=ReleaseRange(release, release))


def partition(path: str, topic_id: bytes | None, *, is_known: bool = True) -> PartitionFacts:
    return PartitionFacts(
        topic_partition=path.rpartition("/")[2],
        path=path,
        shutdown=Shutdown.CLEAN,
        topic_id=topic_id,
        topic_id_file=TopicIdFile.ABSENT if topic_id is None else TopicIdFile.PRESENT,
        assignment=Assignment(topic_id=NEW_ID, is_replica=True, is_current=True) if is_known else None,
    )


def future(path: str, shutdown: Shutdown) -> PartitionFacts:
    facts = partition(path, NEW_ID)
    return msgspec.structs.replace(facts, path=f"{path}.{'a' * 32}-future", shutdown=shutdown, form=DirectoryForm.FUTURE)


@pytest.mark.parametrize("release", [(2, 8, 2), (3, 6, 2), (3, 7, 2), (4, 4, 0)])
def test_a_partition_in_two_directories(release: Release) -> None:
    same = [partition("/d1/t-0", NEW_ID), partition("/d2/t-0", NEW_ID)]
    (fate,) = partition_in_two_places(same, broker_of(release))
    assert (fate.kind, fate.path, fate.detail) == (FateKind.NO_START, "/d2/t-0", "also in /d1/t-0")
    assert partition_in_two_places([same[0], partition("/d2/t-1", NEW_ID)], broker_of(release)) == []


@pytest.mark.parametrize("topic_id", [OLD_ID, None])
@pytest.mark.parametrize(("release", "starts"), [((3, 7, 0), False), ((3, 7, 1), True), ((4, 4, 0), True)])
def test_a_stray_in_the_second_directory_is_set_aside_first(release: Release, topic_id: bytes | None, *, starts: bool) -> None:
    same = [partition("/d1/t-0", NEW_ID), partition("/d2/t-0", topic_id)]
    assert (partition_in_two_places(same, broker_of(release)) == []) is starts
    unknown = [partition("/d1/t-0", NEW_ID, is_known=False), partition("/d2/t-0", NEW_ID, is_known=False)]
    assert len(partition_in_two_places(unknown, broker_of(release))) == 1, "without an image nothing is a stray"


@pytest.mark.parametrize(
    ("futures", "shutdown", "expected"),
    [
        ((("t-0",), ()), Shutdown.CLEAN, 0),
        ((("t-0",), ("t-1",)), Shutdown.CLEAN, 0),
        ((("t-0",), ("t-0",)), Shutdown.CLEAN, 1),
        ((("t-0", "t-0"), ()), Shutdown.UNCLEAN, 1),
        ((("t-0",), ("t-0",)), Shutdown.RUNNING, 0),
    ],
)
def test_future_copies(futures: tuple[tuple[str, ...], ...], shutdown: Shutdown, expected: int) -> None:
    copies = [future(f"/d{index}/{name}", shutdown) for index, each in enumerate(futures) for name in each]
    found = future_in_two_places(copies, broker_of((4, 3, 1)))
    assert [fate.kind for fate in found] == [FateKind.NO_START] * expected


@pytest.mark.parametrize(("release", "starts"), [((3, 7, 0), False), ((3, 7, 1), True), ((4, 4, 0), True)])
def test_future_copies_that_are_set_aside_first(release: Release, *, starts: bool) -> None:
    copies = [
        msgspec.structs.replace(future(path, Shutdown.CLEAN), topic_id_file=TopicIdFile.ABSENT) for path in ("/d1/t-0", "/d2/t-0")
    ]
    assert (future_in_two_places(copies, broker_of(release)) == []) is starts


@pytest.mark.parametrize("release", [(3, 9, 2), (4, 1, 0), (4, 2, 0), (4, 3, 1)])
def test_a_directory_that_is_listed_twice(tmp_path: Path, release: Release) -> None:
    one, two, link = (str(tmp_path / name) for name in ("one", "two", "link"))
    Path(one).mkdir()
    Path(link).symlink_to(one)
    assert log_dir_listed_twice([one, two], broker_of(release)) == []
    assert len(log_dir_listed_twice([one, two, one], broker_of(release))) == (1 if release < (4, 2, 0) else 0)
    assert [fate.detail for fate in log_dir_listed_twice([one, link], broker_of(release))] == [f"{link} is {one}"]


def test_scan_reports_each_of_them_once(tmp_path: Path) -> None:
    """Only the directories of one configuration: a copy of a disk elsewhere is no duplicate."""
    first = made(tmp_path / "d1").parent
    second = Path(shutil.copytree(first, tmp_path / "d2"))
    other_id = (second / "meta.properties").read_text().replace("directory.id=1", "directory.id=2")
    (second / "meta.properties").write_text(other_id)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={first},{second}\n")
    options = ("--server-properties", properties, "--kafka-release", "4.3.1")
    assert f"{NO_START}a partition in two log directories (orders-0)." in snaprebuild("scan", *options).text
    findings = in_json("scan", *options).document["findings"]
    assert [each["code"] for each in findings if each["severity"] == "damaged"] == ["partition-in-two-log-dirs"]
    assert in_json("scan", first, second, "--kafka-release", "4.3.1").exit_code == 0
    for log_dir in (first, second):
        (log_dir / "orders-0").rename(log_dir / f"orders-0.{'a' * 32}-future")
    shutil.copytree(second / f"orders-0.{'a' * 32}-future", first / "orders-1")
    shutil.copytree(second / f"orders-0.{'a' * 32}-future", second / "orders-2")
    assert f"{NO_START}two future copies of a partition" in snaprebuild("scan", *options).text
    properties.write_text(f"log.dirs={first},{tmp_path}/link\n")
    (tmp_path / "link").symlink_to(first)
    assert f"{NO_START}a log directory twice in log.dirs" in snaprebuild("scan", *options).text
