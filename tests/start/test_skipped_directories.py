"""Directories that are no source, and that the next start loads: future copies, strays, those that are marked for deletion, and an
interrupted compaction. Faults next to healthy forms."""

import shutil
from pathlib import Path

import msgspec
import pytest
from command import in_json, snaprebuild
from log_dirs import snapshot_name
from sentences import NO_START
from stopped_broker import append, made

from formats.partition.file_names import DirectoryForm
from snaprebuild.broker.fates import FateKind
from snaprebuild.broker.future_fates import future_fates
from snaprebuild.broker.releases import Release, ReleaseRange
from snaprebuild.broker.start_facts import Assignment, BrokerFacts, PartitionFacts, SegmentEnd, Shutdown
from snaprebuild.storage.log_dir import ClusterKind

RELEASE = ("--kafka-release", "4.3.1")
ID = "a" * 32


def _copy(directory: Path, form: str) -> Path:
    return Path(shutil.copytree(directory, directory.parent / f"payments-0.{ID}-{form}"))


@pytest.mark.parametrize(("form", "exit_code"), [("future", 0), ("delete", 0), ("stray", 1)])
def test_a_healthy_one_is_no_fate(tmp_path: Path, form: str, exit_code: int) -> None:
    """A stray of an earlier start was a finding before."""
    directory = made(tmp_path)
    _copy(directory, form)
    run = in_json("scan", directory.parent, *RELEASE)
    assert run.exit_code == exit_code
    assert run.document["fates"] == []


@pytest.mark.parametrize("form", ["future", "delete", "stray"])
def test_an_empty_topic_id_file_ends_the_start(tmp_path: Path, form: str) -> None:
    directory = made(tmp_path)
    (_copy(directory, form) / "partition.metadata").write_bytes(b"")
    text = snaprebuild("scan", directory.parent, *RELEASE).text
    assert text.startswith(f"{NO_START}partition.metadata is empty or cut (payments-0).")


@pytest.mark.parametrize(("form", "is_read"), [("future", True), ("stray", True), ("delete", False)])
def test_zeros_at_the_end_fail_the_first_start(tmp_path: Path, form: str, *, is_read: bool) -> None:
    """A directory that is marked for deletion is not read to its end."""
    directory = made(tmp_path)
    append(_copy(directory, form) / f"{20:020d}.log", bytes(4096))
    kinds = [each["kind"] for each in in_json("scan", directory.parent, *RELEASE).document["fates"]]
    assert kinds == (["fails-once"] if is_read else [])


def test_snapshots_inside_the_range_of_a_swap(tmp_path: Path) -> None:
    """By Kafka: those at 10 and 19, not the one at 20."""
    directory = made(tmp_path)
    (directory / snapshot_name(19)).write_bytes((directory / snapshot_name(10)).read_bytes())
    (directory / f"{10:020d}.log").rename(directory / f"{10:020d}.log.swap")
    (fate,) = in_json("scan", directory.parent, *RELEASE).document["fates"]
    assert fate["kind"] == "swap-finished"
    text = snaprebuild("scan", directory.parent, *RELEASE).text
    assert "The next start ends a compaction of orders-0 and removes 2 snapshots. Start, stop, run again." in text


def test_a_swap_above_a_cleaned_file_is_removed_itself(tmp_path: Path) -> None:
    directory = made(tmp_path)
    shutil.copy(directory / f"{10:020d}.log", directory / f"{10:020d}.log.swap")
    (directory / f"{0:020d}.log.cleaned").write_bytes(b"")
    assert in_json("scan", directory.parent, *RELEASE).document["fates"] == []


def test_a_future_copy_that_the_controller_knows(tmp_path: Path) -> None:
    """From 3.7.1 on it takes the place of the partition. If it ends lower, records are lost."""
    replica = PartitionFacts(
        topic_partition="t-0",
        path="/d1/t-0",
        shutdown=Shutdown.CLEAN,
        topic_id=bytes(16),
        end=SegmentEnd(30, 1, 1),
        high_watermark=28,
    )
    assignment = Assignment(topic_id=bytes(16), is_replica=True, is_current=True, directory_id=b"2" * 16)
    copy = msgspec.structs.replace(
        replica, path=f"/d2/t-0.{ID}-future", form=DirectoryForm.FUTURE, directory_id=b"2" * 16, assignment=assignment
    )
    short = msgspec.structs.replace(copy, end=SegmentEnd(27, 1, 1))
    not_known = msgspec.structs.replace(copy, directory_id=b"3" * 16)

    def kinds(found: PartitionFacts, release: Release = (4, 3, 1), replica: PartitionFacts = replica) -> list[FateKind]:
        broker = BrokerFacts(cluster_kind=ClusterKind.KRAFT, releases=ReleaseRange(release, release))
        return [fate.kind for fate in future_fates([replica, found], broker)]

    assert kinds(copy) == kinds(msgspec.structs.replace(copy, end=SegmentEnd(28, 1, 1))) == [FateKind.COPY_TAKES_OVER]
    assert kinds(copy, (3, 7, 0)) == kinds(not_known) == kinds(msgspec.structs.replace(copy, shutdown=Shutdown.RUNNING)) == []
    assert kinds(short) == [FateKind.RECORDS_CUT]
    assert kinds(copy, replica=msgspec.structs.replace(replica, path="/d2/t-0")) == [FateKind.NO_START]
