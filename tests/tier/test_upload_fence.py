"""Two uploaders of one broker with different broker epochs: the stale one completes nothing, and announces nothing (KIP-903)."""

import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiven_reader import read_copies
from log_dirs import copy_of
from manifests import FIXTURES
from metadata_logs import append_metadata_record
from object_store import ObjectStore
from uploads import files, upload

from formats.metadata.cluster_metadata import MetadataRecordType
from formats.partition.partition_metadata import uuid_to_text
from formats.remote.upload_claim import UploadClaim
from snaprebuild.cluster.metadata.batches import FileBatches, MetadataBatch
from snaprebuild.cluster.source_check.metadata_logs import MetadataLogs
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Severity
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.storage.local.segment_file import SegmentFile
from snaprebuild.storage.local.store import LocalStore
from snaprebuild.storage.store import S3Settings
from snaprebuild.tier.upload.fence import BrokerIdentity, UploadFence
from snaprebuild.tier.upload.model import StoreUpload, UploadAction
from snaprebuild.tier.upload.source_check import UploadSources

SEGMENTS = 2
DIRECTORY_ID = bytes(range(1, 17))

Everything = Callable[[], dict[str, bytes]]


@pytest.fixture(params=["directory", pytest.param("object store", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Everything]:
    """A location, and what is there."""
    if request.param == "directory":
        root = tmp_path / "store"
        return str(root), lambda: files(root)
    store: ObjectStore = request.getfixturevalue("object_store")
    location = f"s3://{store.bucket()}/tier"
    return location, lambda: store.files(location)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """The two rolled segments of one partition."""
    logs = copy_of("kafka4-mixed", tmp_path)
    for path in logs.iterdir():
        if path.is_dir() and path.name != "deleted-0":
            shutil.rmtree(path)
    return logs


def run(
    logs: Path,
    root: str,
    epoch: int | None,
    *,
    name: str = "me",
    node_id: int | None = 1,
    epoch_now: Callable[[], int | None] | None = None,
    dry_run: bool = False,
) -> StoreUpload:
    identity = BrokerIdentity(node_id, DIRECTORY_ID, epoch)
    return upload(
        logs,
        root,
        S3Settings(run=f"epoch-{epoch}"),
        uploader=name,
        dry_run=dry_run,
        fence=lambda _: UploadFence(identity, epoch_now or (lambda: epoch)),
    )


def actions(result: StoreUpload) -> list[UploadAction]:
    return [segment.action for partition in result.partitions for segment in partition.segments]


def codes(result: StoreUpload) -> list[str]:
    return [finding.code for finding in result.findings if finding.severity]


def test_a_newer_epoch_takes_over_while_the_stale_one_is_at_work(logs: Path, place: tuple[str, Everything]) -> None:
    """The stale one has claimed the first segment and written all but its manifest when its broker registers again, and uploads."""
    root, everything = place
    newer: list[StoreUpload] = []

    def newer_runs_now() -> int:
        if not newer:
            assert sum(key.endswith((".log", ".indexes")) for key in everything()) == 2, "the stale one has begun"
            newer.append(run(logs, root, 20))
        return 10  # its own metadata log does not know yet: only the claim shows

    stale = run(logs, root, 10, epoch_now=newer_runs_now)
    (new,) = newer
    assert actions(new) == [UploadAction.UPLOADED] * SEGMENTS
    assert actions(stale) == [UploadAction.REFUSED, UploadAction.HELD_BACK]
    assert codes(stale) == ["tier-upload-stale"]
    assert "was taken over by 'me', run epoch-20 (node 1, broker epoch 20)" in stale.findings[0].message
    assert stale.copies == []
    copies = read_copies({key: data for key, data in everything().items() if not _is_left_over(key, stale)})
    assert [copy.base_offset for copy in copies] == [segment.start_offset for segment in new.partitions[0].segments]
    assert [finding.code for finding in new.findings] == ["tier-upload-took-over"]
    (taken, _) = new.partitions[0].segments
    assert taken.took_over is not None
    assert (taken.took_over.broker_epoch, taken.took_over.run) == (10, "epoch-10")
    assert taken.segment_id != taken.took_over.segment_id, "the objects of the stale one are none of the new one's"
    assert len(new.confirm()) == SEGMENTS


def _is_left_over(key: str, stale: StoreUpload) -> bool:
    """Objects of the copy that the stale uploader did not complete: no manifest among them, so that no one reads them."""
    segment_id = stale.partitions[0].segments[0].segment_id
    assert segment_id is not None
    is_its = uuid_to_text(segment_id) in key
    assert not (is_its and key.endswith(".rsm-manifest"))
    return is_its


def test_the_registration_is_read_again_before_the_manifest(logs: Path, place: tuple[str, Everything]) -> None:
    root, everything = place
    stale = run(logs, root, 10, epoch_now=lambda: 20)
    assert (actions(stale), codes(stale)) == ([UploadAction.REFUSED, UploadAction.HELD_BACK], ["tier-upload-stale"])
    assert "the broker epoch was 10 when the upload began, and is 20 now: the broker registered again" in stale.findings[0].message
    assert not any(key.endswith(".rsm-manifest") for key in everything())


def test_the_stale_one_comes_second(logs: Path, place: tuple[str, Everything]) -> None:
    root, everything = place
    run(logs, root, 20)
    before = everything()
    stale = run(logs, root, 10, name="another name does not help")
    assert (actions(stale), codes(stale)) == ([UploadAction.REFUSED, UploadAction.HELD_BACK], ["tier-upload-stale"])
    assert all(finding.severity is Severity.REFUSED for finding in stale.findings if finding.code == "tier-upload-stale")
    assert everything() == before


def test_complete_copies_are_taken_over_as_they_are(logs: Path, place: tuple[str, Everything]) -> None:
    """The newer registration reports what an earlier one has completed; the earlier one, still running, reports nothing any more."""
    root, everything = place
    older = run(logs, root, 10)
    before = everything()
    dry = run(logs, root, 20, dry_run=True)
    assert (actions(dry), everything()) == ([UploadAction.FINISHED_BEFORE] * SEGMENTS, before)
    newer = run(logs, root, 20)
    assert actions(newer) == [UploadAction.FINISHED_BEFORE] * SEGMENTS
    assert [copy.segment for copy in newer.copies] == [copy.segment for copy in older.copies]
    assert len(newer.confirm()) == SEGMENTS
    assert older.confirm() == []
    assert codes(older) == ["tier-upload-stale"] * SEGMENTS
    assert {key for key in everything() if ".snaprebuild-claims" not in key} == {
        key for key in before if ".snaprebuild-claims" not in key
    }


def test_epochs_of_different_brokers_say_nothing_of_each_other(logs: Path, place: tuple[str, Everything]) -> None:
    root, everything = place
    first = run(logs, root, 10, epoch_now=lambda: None)  # claims, and completes nothing
    assert actions(first) == [UploadAction.REFUSED, UploadAction.HELD_BACK]
    before = everything()
    other = run(logs, root, 20, name="other", node_id=2)
    assert (actions(other), everything()) == ([UploadAction.CLAIMED, UploadAction.HELD_BACK], before)


def test_which_claims_are_superseded() -> None:
    mine = BrokerIdentity(1, DIRECTORY_ID, 20)
    for node_id, epoch, supersedes, is_stale in (
        (1, 10, True, False),
        (1, 20, False, False),
        (1, 30, False, True),
        (2, 10, False, False),
        (2, 30, False, False),
        (None, None, False, False),
        (1, None, False, False),
    ):
        claim = UploadClaim(bytes(range(16)), "me", "r", 1, node_id, None, epoch)
        assert (mine.supersedes(claim), mine.is_stale_for(claim)) == (supersedes, is_stale), (node_id, epoch)
    nobody = BrokerIdentity()
    assert not nobody.supersedes(claim)
    assert not nobody.is_stale_for(claim)


def test_a_run_that_knows_no_epoch_continues_with_no_claim_that_has_one(logs: Path, place: tuple[str, Everything]) -> None:
    """It may be of an earlier registration than the claim. Of another broker an epoch says nothing, and its name is said by hand."""
    root, everything = place
    run(logs, root, 20, epoch_now=lambda: None)  # claims, and completes nothing
    before = everything()
    for node_id in (1, None):
        unknown = run(logs, root, None, node_id=node_id)
        assert (actions(unknown), codes(unknown)) == ([UploadAction.REFUSED, UploadAction.HELD_BACK], ["tier-upload-refused"])
        assert "the epoch of this broker is unknown" in unknown.findings[0].message
        assert "(unknown-broker-epoch)" in unknown.findings[0].message
        assert everything() == before
    assert actions(run(logs, root, None, node_id=2)) == [UploadAction.UPLOADED] * SEGMENTS


def test_the_fence_reads_what_the_metadata_log_has_grown_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once each, also where it was rolled; and all of it where it was cut, by a controller that continues meanwhile."""
    node = Path(shutil.copytree(FIXTURES / "kraft-cluster3" / "node1", tmp_path / "node1"))
    directory = node / "__cluster_metadata-0"
    read = MetadataLogs(str(node)).named()
    assert read is not None
    seen: list[int] = []
    walked = FileBatches.__iter__

    def noted(self: FileBatches) -> Iterator[MetadataBatch]:
        for each in walked(self):
            seen.append(each.base_offset)
            yield each

    monkeypatch.setattr(FileBatches, "__iter__", noted)

    def epoch() -> int | None:
        seen.clear()
        return read.broker_epoch_now(1, 15)

    assert (epoch(), seen) == (15, [])
    (log,) = directory.glob("*.log")
    append_metadata_record(node, MetadataRecordType.NO_OP, {}, 0, 348)
    assert (epoch(), seen) == (15, [348])
    size = log.stat().st_size
    append_metadata_record(node, MetadataRecordType.UNREGISTER_BROKER, {"brokerId": 1, "brokerEpoch": 15}, 0, 349)
    (directory / f"{349:020d}.log").write_bytes(log.read_bytes()[size:])
    with log.open("r+b") as file:
        file.truncate(size)
    assert (epoch(), seen) == (None, [349]), "rolled: the record behind is in a new segment"
    assert (epoch(), seen) == (None, [])

    # A new leader of the quorum had another end of the log: what was taken of it is not the cluster's.
    (directory / f"{349:020d}.log").unlink()
    assert epoch() == 15
    assert seen[-1] == 348
    # A file that goes between the listing and the reading, as a controller deletes it, is listed again, three times at most.
    (directory / f"{349:020d}.log").touch()
    opened, attempts = LocalStore.open_bytes, []

    def gone(self: LocalStore, location: str, *more: Any) -> SegmentFile:
        if location.endswith(".log"):
            attempts.append(location)
            if len(attempts) < 3:
                raise ReadFailedError("is gone", path=location, errno=errno.ENOENT)
        return opened(self, location, *more)

    monkeypatch.setattr(LocalStore, "open_bytes", gone)
    assert (epoch(), len(attempts) >= 3) == (15, True)

    def always_gone(_store: LocalStore, location: str, *_more: Any) -> SegmentFile:
        raise ReadFailedError("is gone", path=location, errno=errno.ENOENT)

    monkeypatch.setattr(LocalStore, "open_bytes", always_gone)
    with pytest.raises(ReadFailedError):
        epoch()


def test_what_the_fence_of_a_stopped_broker_reads_again(tmp_path: Path) -> None:
    """Its clean-shutdown marker, which a start removes, and its registration, by what the metadata log has grown by."""
    node = Path(shutil.copytree(FIXTURES / "kraft-cluster3" / "node1", tmp_path / "node1"))
    (source,) = [each for each in open_source([str(node)]).partitions if each.directory.topic_partition == "orders-1"]
    sources = UploadSources([source], None, Run())
    fence = sources.fence(source)
    assert (fence.identity.node_id, fence.identity.broker_epoch) == (1, 15)
    assert fence.epoch_now is not None
    assert fence.epoch_now() == 15
    (node / ".kafka_cleanshutdown").rename(tmp_path / "marker")
    assert fence.epoch_now() is None
    (tmp_path / "marker").rename(node / ".kafka_cleanshutdown")
    assert fence.epoch_now() == 15
    unregister = {"brokerId": 1, "brokerEpoch": 15}
    append_metadata_record(node, MetadataRecordType.UNREGISTER_BROKER, unregister, 0)
    assert fence.epoch_now() is None
