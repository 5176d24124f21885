"""Audits of stores in which leaders rolled, changed, and left copies of what was cut off; expected values by a simple fold."""

import errno
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from budgets import scaled
from hypothesis import given, settings
from hypothesis import strategies as st
from log_dirs import batch, snapshot_bytes
from manifests import FIXTURES
from tier_example import MS, written
from tiers import Copy, write_tier

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.errors import ReadFailedError
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.local.store import LocalStore
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.audit.partition_audit import SnapshotVerdict
from snaprebuild.tier.inventory.inventory import tier_inventory
from snaprebuild.tier.remote_store import StoreAccess

CLOCK = Clock(MS + 1000, 86_400_000)


@dataclass(frozen=True)
class Written:
    """A batch."""

    offset: int
    count: int
    producer: int
    sequence: int
    epoch: int

    @property
    def data(self) -> bytes:
        found = batch(self.offset, producer_id=self.producer, sequence=self.sequence, count=self.count, timestamp=MS + self.offset)
        return written(self.epoch, found)


def continued(log: list[Written], producers: list[tuple[int, int]], epoch: int) -> list[Written]:
    """With more batches of a leader."""
    log = list(log)
    for producer, count in producers:
        offset = log[-1].offset + log[-1].count if log else 0
        sequence = sum(each.count for each in log if each.producer == producer)
        log.append(Written(offset, count, producer, sequence, epoch))
    return log


def right_entries(log: list[Written]) -> list[ProducerEntry]:
    """The newest batch of each producer."""
    newest = {each.producer: each for each in log}
    return [
        ProducerEntry(
            producer, 0, each.sequence + each.count - 1, each.offset + each.count - 1, each.count - 1, MS + each.offset, -1, -1
        )
        for producer, each in sorted(newest.items())
    ]


def epochs_of(log: list[Written]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for each in log:
        if not found or found[-1][0] != each.epoch:
            found.append((each.epoch, each.offset))
    return found


BATCHES = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=5)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Written], list[list[Written]]]:
    """The log as it is, and the logs of leaders before, which may have had more."""
    log: list[Written] = []
    before = []
    for epoch in range(draw(st.integers(0, 3))):
        log = continued(log, draw(BATCHES), epoch)
        before.append(continued(log, draw(st.one_of(st.just([]), BATCHES)), epoch))
    return continued(log, draw(BATCHES), len(before)), before


@settings(max_examples=scaled(100))
@given(histories(), st.data())
def test_copies_of_several_leaders(history: tuple[list[Written], list[list[Written]]], data: st.DataObject) -> None:
    """Every snapshot of the log is right, but the one that was emptied; those of what was cut off are listed, and none is called wrong."""
    log, before = history
    bounds = sorted(data.draw(st.sets(st.integers(1, len(log) - 1), max_size=3)) if len(log) > 1 else set())
    ranges = [(log, first, last) for first, last in zip((0, *bounds), (*bounds, len(log)), strict=True)]
    for _ in range(data.draw(st.integers(0, 4))):
        held = data.draw(st.sampled_from([log, *before]))
        first = data.draw(st.integers(0, len(held) - 1))
        ranges.append((held, first, data.draw(st.integers(first + 1, len(held)))))
    ill = data.draw(st.one_of(st.none(), st.integers(0, len(ranges) - 1)))
    copies, expected = [], []
    for number, (held, first, last) in enumerate(ranges):
        entries = right_entries(held[:last])
        content = b"".join(each.data for each in held[first:last])
        snapshot = snapshot_bytes(entries if number != ill else [])
        copies.append(Copy(held[first].offset, content, epochs_of(held[:last]), snapshot))
        is_of_the_log = held[:last] == log[:last]
        expected.append(
            (SnapshotVerdict.FALSE_EMPTY if number == ill else SnapshotVerdict.RIGHT) if is_of_the_log else SnapshotVerdict.NOT_READ
        )
    with tempfile.TemporaryDirectory() as place:
        audit = tier_audit(
            StoreAccess(StorePath(LocalStore(), str(write_tier(Path(place), "t", 0, copies)))), Run(clock=CLOCK, jobs=1)
        )
    (partition,) = audit.partitions
    found = {audited.copy.segment_id[0] - 1: audited.verdict for audited in partition.copies}
    assert [found[number] for number in range(len(ranges))] == expected
    codes = {each.code for each in audit.findings}
    assert codes == {"tier-wrong-snapshot"} & {
        "tier-wrong-snapshot" for each in expected if each is SnapshotVerdict.FALSE_EMPTY
    } | {"tier-not-audited" for each in expected if each is SnapshotVerdict.NOT_READ}


def test_only_what_is_not_read_twice(tmp_path: Path) -> None:
    """One of two copies with equal records is replayed."""
    log = continued([], [(1, 1), (2, 2), (1, 1), (3, 1)], 0)
    content = b"".join(each.data for each in log)
    copies = [Copy(0, content, [(0, 0)], snapshot_bytes(right_entries(log))) for _ in range(3)]
    audit = tier_audit(StoreAccess(StorePath(LocalStore(), str(write_tier(tmp_path, "t", 0, copies)))), Run(clock=CLOCK, jobs=1))
    assert [each.verdict for each in audit.partitions[0].copies] == [SnapshotVerdict.RIGHT] * 3
    assert audit.partitions[0].read_bytes == len(content)


class SickStore(LocalStore):
    """One file in it cannot be read, or is gone when it is asked for; or none can."""

    sick = 0
    number: int | None = None
    is_gone = False

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        if location.endswith(".snapshot") and f"{self.sick:020d}-" in location:
            if self.is_gone:
                return None
            raise ReadFailedError("cannot be read", path=location, errno=self.number)
        return super().read_small(location, bytes_max)


def test_one_snapshot_that_cannot_be_read_ends_nothing(tmp_path: Path) -> None:
    """With ``structure`` it is reported, and the others are looked at; a store that does not answer at all ends it."""
    log = continued([], [(1, 1), (2, 2), (1, 1), (3, 1)], 0)
    copies = [
        Copy(each.offset, each.data, [(0, each.offset)], snapshot_bytes(right_entries(log[: at + 1])))
        for at, each in enumerate(log)
    ]
    root = str(write_tier(tmp_path, "t", 0, copies))
    for SickStore.number, SickStore.is_gone in ((errno.EIO, False), (None, True)):
        SickStore.sick = log[1].offset
        audit = tier_audit(StoreAccess(StorePath(SickStore(), root)), Run(clock=CLOCK), level=AuditLevel.STRUCTURE)
        verdicts = [each.verdict for each in audit.partitions[0].copies]
        assert verdicts == [SnapshotVerdict.UNPROVEN, SnapshotVerdict.NOT_READ, SnapshotVerdict.UNPROVEN, SnapshotVerdict.UNPROVEN]
        assert [(each.code, each.offset) for each in audit.findings] == [("storage-failed", log[1].offset)]
    SickStore.is_gone = False
    with pytest.raises(ReadFailedError, match="cannot be read"):
        tier_audit(StoreAccess(StorePath(SickStore(), root)), Run(clock=CLOCK), level=AuditLevel.STRUCTURE)


def test_two_damaged_copies_with_one_start_offset_are_two(tmp_path: Path) -> None:
    """Each has its own segment, and the audit counts both."""
    log = continued([], [(1, 1), (2, 2), (1, 1)], 0)
    right = [snapshot_bytes(right_entries(log[: at + 1])) for at in range(len(log))]
    copies = [Copy(each.offset, each.data, [(0, each.offset)], right[at]) for at, each in enumerate(log)]
    copies.append(Copy(log[1].offset, log[1].data, [(0, log[1].offset)], right[1]))
    root = write_tier(tmp_path, "t", 0, copies)
    for path in root.rglob(f"{log[1].offset:020d}-*.leader_epoch_checkpoint"):
        path.unlink()
    whole = tier_audit(StoreAccess(StorePath(LocalStore(), str(root))), Run(clock=CLOCK))
    assert whole.status(whole.findings).damaged == 2
    other = root / "other"
    torn = write_tier(other, "t", 0, copies)
    for path in torn.rglob(f"{log[1].offset:020d}-*.timeindex"):
        path.write_bytes(b"\0" * 5)
    audit = tier_audit(StoreAccess(StorePath(LocalStore(), str(torn))), Run(clock=CLOCK))
    assert audit.status(audit.findings).damaged == 2


class SilentStore(LocalStore):
    """The manifest of each copy from offset 0 on cannot be read, or is torn."""

    is_torn = False

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        if location.endswith(".rsm-manifest") and f"{0:020d}-" in location:
            if self.is_torn:
                return b"{"
            raise ReadFailedError("cannot be read", path=location, errno=errno.EIO)
        return super().read_small(location, bytes_max)


@pytest.mark.parametrize("is_torn", [True, False])
def test_a_copy_that_was_not_handed_out_is_not_damaged(is_torn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run may read it. One whose manifest does not parse is damaged."""
    monkeypatch.setattr(SilentStore, "is_torn", is_torn)
    place = FIXTURES / "aiven-layout" / "plain"
    sick = len(list(place.rglob(f"{0:020d}-*.rsm-manifest")))
    root = StorePath(SilentStore(), str(place))
    inventory, _ = tier_inventory(StoreAccess(root))
    audit = tier_audit(StoreAccess(root), Run(clock=CLOCK), level=AuditLevel.STRUCTURE)
    status = audit.status(audit.findings)
    assert (inventory.counts.damaged, status.damaged) == ((sick, sick) if is_torn else (0, 0))
    assert (inventory.counts.unread, status.unread) == ((0, 0) if is_torn else (sick, sick))
    assert sick > 0
