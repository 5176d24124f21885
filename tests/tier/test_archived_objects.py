"""Objects archived inside of INTELLIGENT_TIERING, which no listing shows: found by one request each, and by none for other objects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from manifests import FIXTURES

from snaprebuild.findings import Finding
from snaprebuild.storage.bucket_contents import ArchiveTier, BucketSettings, ListedUpload, ListedVersion, UnansweredCall
from snaprebuild.storage.local.store import LocalStore
from snaprebuild.storage.store import Status
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.inventory import bucket_report
from snaprebuild.tier.inventory.inventory import tier_inventory
from snaprebuild.tier.inventory.key_rows import KeyRow
from snaprebuild.tier.inventory.model import TierInventory
from snaprebuild.tier.remote_store import StoreAccess

STORE = FIXTURES / "aiven-layout" / "plain" / "store"
LOGS = sorted(path.relative_to(STORE).as_posix() for path in STORE.rglob("*.log"))
TIERED = "INTELLIGENT_TIERING"


@dataclass(frozen=True)
class ClassedFiles(LocalStore):
    """Files that a listing shows a storage class of.

    Attributes:
        classes: by the end of the name.
        read: names of the files that were read whole.
    """

    classes: dict[str, str] = field(default_factory=dict, hash=False)
    read: list[str] = field(default_factory=list, compare=False)

    def list_below(self, location: str, name_prefix: str = "") -> Iterator[tuple[str, Status]]:
        for key, status in LocalStore.list_below(self, location, name_prefix):
            names = ("st_size", "st_mtime_ns", "st_ino", "st_mode", "st_uid", "st_gid")
            storage_class = self.classes.get(key.rpartition(".")[2], "STANDARD")
            same = {name: getattr(status, name) for name in names}
            yield key, cast(Status, SimpleNamespace(**same, st_storage_class=storage_class))

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        self.read.append(Path(location).name)
        return LocalStore.read_small(self, location, bytes_max)


@dataclass
class ArchivingBucket:
    """A bucket with archived objects.

    Attributes:
        tiers: archive tier by key.
        asked: keys in the order in which they were asked for.
    """

    tiers: dict[str, str]
    asked: list[str] = field(default_factory=list)
    unanswered: list[UnansweredCall] = field(default_factory=list)
    prefix: str = ""
    refuses: UnansweredCall | None = None

    def settings(self) -> BucketSettings:
        return BucketSettings(versioning="Off", lifecycle_rules=(), replication_rules=())

    def archive_tiers(self) -> list[ArchiveTier]:
        return []

    def archived(self, keys: Sequence[str]) -> dict[str, str]:
        self.asked += keys
        if self.refuses is not None:
            self.unanswered.append(self.refuses)
            return {}
        return {key: self.tiers[key] for key in keys if key in self.tiers}

    def versions(self, name_prefix: str) -> Iterator[ListedVersion]:
        yield from ()

    def uploads(self, name_prefix: str) -> Iterator[ListedUpload]:
        yield from ()


def inventory_of(
    bucket: ArchivingBucket, classes: dict[str, str], **more: Any
) -> tuple[TierInventory, list[Finding], ClassedFiles]:
    store = ClassedFiles(classes)
    found, findings = tier_inventory(StoreAccess(StorePath(store, str(STORE))), bucket=bucket, **more)
    return found, findings, store


@pytest.fixture
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of a fixture are smaller than those that S3 archives."""
    monkeypatch.setattr(bucket_report, "NEVER_ARCHIVED_BELOW_BYTES", 0)


def test_archived_objects_are_found(every_size: None) -> None:
    bucket = ArchivingBucket({LOGS[0]: "ARCHIVE_ACCESS", LOGS[1]: "DEEP_ARCHIVE_ACCESS"})
    rows: list[KeyRow] = []
    found, findings, _ = inventory_of(bucket, {"log": TIERED}, on_key=rows.append)
    assert sorted(bucket.asked) == LOGS
    copies = [copy for each in found.partitions for copy in each.copies]
    assert sorted(tier for copy in copies for tier in copy.archive_tiers) == ["ARCHIVE_ACCESS", "DEEP_ARCHIVE_ACCESS"]
    assert all(copy.object_storage_classes == [TIERED, "STANDARD"] for copy in copies)
    assert {row.key: row.archive_tier for row in rows if row.archive_tier is not None} == bucket.tiers
    messages = [each.message for each in findings if each.code == "tier-restore-first"]
    assert len(messages) == sum(any(copy.archive_tiers for copy in each.copies) for each in found.partitions)
    assert all(f"in storage class {TIERED} (" in each for each in messages)


def test_nothing_of_an_archived_copy_is_read(every_size: None) -> None:
    """Its manifest may be archived, too; as with a copy in GLACIER it is left alone."""
    archived = ArchivingBucket({LOGS[0]: "ARCHIVE_ACCESS"})
    in_glacier = inventory_of(ArchivingBucket({}), {"log": "GLACIER"})[2].read
    manifest = Path(LOGS[0]).name.replace(".log", ".rsm-manifest")
    assert manifest in inventory_of(ArchivingBucket({}), {"log": TIERED})[2].read
    read = inventory_of(archived, {"log": TIERED})[2].read
    assert manifest not in read or manifest in in_glacier


@pytest.mark.parametrize("storage_class", ["STANDARD", "STANDARD_IA", "GLACIER", "DEEP_ARCHIVE"])
def test_no_request_for_other_objects(storage_class: str, every_size: None) -> None:
    bucket = ArchivingBucket({})
    inventory_of(bucket, {"log": storage_class, "rsm-manifest": storage_class})
    assert bucket.asked == []


def test_no_request_for_objects_that_are_never_archived() -> None:
    bucket = ArchivingBucket({})
    inventory_of(bucket, {"log": TIERED, "indexes": TIERED, "rsm-manifest": TIERED})
    sizes = {key: (STORE / key).stat().st_size for key in bucket.asked}
    assert all(size >= 128_000 for size in sizes.values())


def test_a_request_without_an_answer_is_named(every_size: None) -> None:
    refuses = UnansweredCall(call="HeadObject", permission="s3:GetObject", denied=True, limited=False, reason="403")
    _, findings, _ = inventory_of(ArchivingBucket({}, refuses=refuses), {"log": TIERED})
    assert [each.code for each in findings if "HeadObject (s3:GetObject)" in each.message] == ["bucket-not-read"]
