"""Damaged indexes of copies in remote storage, which brokers load and follow (``RemoteIndexCache``).

The stores are those that the real plugin and Kafka's ``LocalTieredStorage`` wrote: what they hold is valid.
"""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from command import in_json
from manifests import AIVEN, FIXTURES, LONG_AGO

from snaprebuild.findings import Severity
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine import index_check
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.local.store import LocalStore
from snaprebuild.storage.partition_dir import SegmentFiles
from snaprebuild.storage.private_keys import PrivateKeys
from snaprebuild.storage.store_path import ReadPath, StorePath
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.audit.partition_audit import SnapshotVerdict, StoreAudit
from snaprebuild.tier.audit.window import read_local_starts
from snaprebuild.tier.remote_store import StoreAccess

pytestmark = pytest.mark.full

CLOCK = Clock(1_795_132_800_000, 86_400_000)
SEGMENT = "00000000000000003089"
"""The segment whose offset index has two entries."""

Change = Callable[[bytes], bytes]


def packed(layout: str, number: int, change: Callable[..., tuple[int, ...]]) -> Change:
    """Changes one entry; a negative number counts from the end."""

    def changed(data: bytes) -> bytes:
        entries = list(struct.iter_unpack(layout, data))
        entries[number] = change(*entries[number])
        return b"".join(struct.pack(layout, *each) for each in entries)

    return changed


CHANGES: dict[str, tuple[str, Change, str]] = {
    "not-sorted": (".index", lambda data: data[8:16] + data[:8] + data[16:], "offset index relative offset: expected more than"),
    "no-batch-begins-there": (
        ".index",
        packed(">ii", 0, lambda offset, position: (offset, position + 1)),
        "entry 0 of its offset index has offset",
    ),
    "no-batch-ends-there": (
        ".index",
        packed(">ii", -1, lambda offset, position: (offset - 1, position)),
        "of its offset index has offset",
    ),
    "of-another-segment": (".index", lambda _: struct.pack(">ii", 3, 4_000_000), "at byte 4000000, where no batch"),
    "padded": (".index", lambda data: data + bytes(8), "expected nothing after its last entry, found 8 bytes of zeros"),
    "no-such-time": (
        ".timeindex",
        packed(">qi", -1, lambda timestamp, offset: (timestamp + 1, offset)),
        "of its time index has timestamp",
    ),
    "another-epoch": (
        ".leader_epoch_checkpoint",
        lambda data: data[: data.rindex(b"\n", 0, -1) + 1] + b"7 0\n",
        "of leader epoch 0, and its checkpoint has epoch 7 there",
    ),
    "no-epochs": (".leader_epoch_checkpoint", lambda _: b"0\n0\n", "its leader epoch checkpoint is empty"),
    "no-checkpoint-at-all": (".leader_epoch_checkpoint", lambda _: b"rubbish\n", "leader epoch checkpoint"),
    "epochs-that-go-back": (".leader_epoch_checkpoint", lambda _: b"0\n2\n3 0\n0 4\n", "expected more than epoch 3 at offset 0"),
}


def audited(store: Path, level: AuditLevel = AuditLevel.FULL, key: Path | None = None) -> StoreAudit:
    starts = read_local_starts(["mixed-0=0"], [], Run()) if level is AuditLevel.REACHABLE else None
    keys = PrivateKeys.of([] if key is None else [str(key)])
    return tier_audit(
        StoreAccess(StorePath(LocalStore(), str(store)), private_keys=keys),
        Run(clock=CLOCK, jobs=1),
        level=level,
        local_starts=starts,
    )


def verdicts(audit: StoreAudit) -> list[SnapshotVerdict]:
    return [copy.verdict for partition in audit.partitions for copy in partition.copies]


@pytest.mark.parametrize("name", CHANGES)
def test_a_damaged_index_is_a_bad_copy(name: str, tmp_path: Path) -> None:
    suffix, change, message = CHANGES[name]
    store = Path(shutil.copytree(FIXTURES / "tiered-local" / "remote", tmp_path / "store"))
    (path,) = store.rglob(f"{SEGMENT}-*{suffix}")
    path.write_bytes(change(path.read_bytes()))
    audit = audited(store)
    (found,) = (each for each in audit.findings if each.code == "tier-bad-copy")
    assert (found.severity, found.offset) == (Severity.DAMAGED, int(SEGMENT))
    assert message in found.message
    if suffix != ".leader_epoch_checkpoint":  # which, without a metadata log, also decides which copies make the log
        assert verdicts(audit) == [SnapshotVerdict.RIGHT] * 12  # the segment is whole, and proves its snapshot


def test_the_window_of_reachable_snapshots_is_checked_too(tmp_path: Path) -> None:
    store = Path(shutil.copytree(FIXTURES / "tiered-local" / "remote", tmp_path / "store"))
    (path,) = store.rglob(f"{SEGMENT}-*.timeindex")
    path.write_bytes(CHANGES["no-such-time"][1](path.read_bytes()))
    audit = audited(store, AuditLevel.REACHABLE)
    assert [each.offset for each in audit.findings if each.code == "tier-bad-copy"] == [int(SEGMENT)]


@pytest.mark.parametrize("name", ["plain", "zstd", "encrypted"])
def test_an_index_object_of_the_plugin(name: str, tmp_path: Path) -> None:
    store = Path(shutil.copytree(AIVEN / name / "store", tmp_path / "store"))
    key = AIVEN / "keys" / "key1.private.pem"
    healthy = verdicts(audited(store, key=key))
    manifest = max(store.rglob("*.rsm-manifest"), key=lambda each: json.loads(each.read_text())["segmentIndexes"]["offset"]["size"])
    indexes, document = manifest.with_suffix(".indexes"), json.loads(manifest.read_text())
    places, data = document["segmentIndexes"], indexes.read_bytes()
    time = places["timestamp"]
    if name == "encrypted":  # without the key nothing can be changed unnoticed: the tag differs
        at = time["position"] + time["size"] - 1
        indexes.write_bytes(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :])
    else:
        assert time["size"] >= 12
        end = time["position"] + time["size"]
        (timestamp,) = struct.unpack(">q", data[end - 12 : end - 4])
        indexes.write_bytes(data[: end - 12] + struct.pack(">q", timestamp + 1) + data[end - 4 :])
    audit = audited(store, key=key)
    assert [each.severity for each in audit.findings if each.code == "tier-bad-copy"] == [Severity.DAMAGED]
    assert verdicts(audit) == healthy


def test_a_healthy_segment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over its batches are enough; DeleteRecords removed the first epochs of one copy."""
    asked: list[str] = []
    real = index_check.index_fault

    def counted(log: ReadPath, segment: SegmentFiles) -> str | None:
        asked.append(log.path)
        return real(log, segment)

    monkeypatch.setattr(index_check, "index_fault", counted)
    for store in (AIVEN / "plain" / "store", AIVEN / "epochs" / "store", FIXTURES / "tiered-local" / "remote"):
        assert not [each for each in audited(store).findings if each.code == "tier-bad-copy"]
    assert asked == []


def test_a_follower_that_is_built_from_such_copies(tmp_path: Path) -> None:
    store = Path(shutil.copytree(FIXTURES / "tiered-local" / "remote", tmp_path / "store"))
    (path,) = store.rglob(f"{SEGMENT}-*.index")
    path.write_bytes(CHANGES["no-batch-begins-there"][1](path.read_bytes()))
    (tmp_path / "logs").mkdir()
    run = in_json("follower build", store, tmp_path / "logs", "--topic-partition", "mixed-0", "--dry-run", *LONG_AGO)
    assert (run.exit_code, run.codes["tier-bad-copy"]) == (4, 1)
    assert "entry 0 of its offset index has offset" in run.messages("tier-bad-copy")
