"""``tier audit`` under every limit, and around every segment that cannot be read: what was read is judged, and never better than by all.

Faults and healthy forms side by side. The reference is the run without a limit, and the fold of the generated log.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from budgets import TIER
from generated_stores import DAY_MS, FAULTS, Entries, Store, generated_store, spoilt
from stores_like_objects import ObjectLikeStore, copies_of

from snaprebuild.errors import LimitReachedError, ReadFailedError
from snaprebuild.findings import exit_code_of
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.audit.partition_audit import WRONG, SnapshotVerdict, StoreAudit
from snaprebuild.tier.audit.window import read_local_starts
from snaprebuild.tier.remote_store import StoreAccess

GOOD = (SnapshotVerdict.RIGHT, SnapshotVerdict.CONSISTENT)


@dataclass(frozen=True)
class LimitedStore(ObjectLikeStore):
    """A store with a limit of requests. One file can be read only once, to find its end."""

    requests_max: int | None = None
    unreadable: str | None = None

    def request(self, location: str) -> None:
        if self.requests_max is not None and len(self.requests) >= self.requests_max:
            raise LimitReachedError(f"the limit of max_requests {self.requests_max} is used up")
        is_again = location in self.requests
        super().request(location)
        if is_again and self.unreadable is not None and self.unreadable in location:
            raise ReadFailedError("403 AccessDenied", path=location, errno=13)


def audited(store: LimitedStore, root: Path, level: AuditLevel, as_of_ms: int) -> StoreAudit:
    starts = read_local_starts(["t-0=0"], (), Run())
    return tier_audit(
        StoreAccess(StorePath(store, str(root))), Run(clock=Clock(as_of_ms, DAY_MS), jobs=1), level=level, local_starts=starts
    )


@contextmanager
def written(root: Path, store: Store, snapshots: list[Entries], deleted: int, hole: int | None) -> Iterator[None]:
    store.write(root, snapshots, deleted)
    if hole is not None:
        for path in sorted(root.rglob(f"{store.bases[hole]:020d}-*")):
            path.unlink()
    yield
    shutil.rmtree(root)


def check_limited(whole: StoreAudit, limited: StoreAudit, reported: object) -> Counter[str]:
    """Each verdict is that of the whole run, or weaker."""
    counts: Counter[str] = Counter()
    has_alarm = any(copy.verdict in (*WRONG, SnapshotVerdict.SUSPECT) for copy in copies_of(whole))
    assert exit_code_of(limited.findings) >= 1, reported
    assert [each.code for each in limited.findings].count("tier-limit") == 1, reported
    for one, other in zip(copies_of(limited), copies_of(whole), strict=True):
        counts[one.verdict.value] += 1
        place = reported, one.copy.start_offset, one.verdict, one.reason, other.verdict, other.reason
        if one.verdict is SnapshotVerdict.SUSPECT:  # what would decide between two was not read
            assert has_alarm, place
        elif one.verdict is SnapshotVerdict.UNPROVEN:
            assert one.reason, place
        elif one.verdict is SnapshotVerdict.NOT_READ:
            assert "max_requests" in one.reason or other.verdict is SnapshotVerdict.NOT_READ, place
        else:
            assert one.verdict is other.verdict, place
    return counts


def under_limits(root: Path, level: AuditLevel, as_of_ms: int, every: int, reported: object) -> Counter[str]:
    """Audits under limits at a distance ``every``, in requests."""
    counts: Counter[str] = Counter()
    store = LimitedStore()
    whole = audited(store, root, level, as_of_ms)
    before = 0
    for most in range(every - 1, len(store.requests), every):
        limited = audited(LimitedStore(requests_max=most), root, level, as_of_ms)
        found = check_limited(whole, limited, (reported, level, most))
        judged = found.total() - found["not-read"]
        assert judged >= before, "a higher limit judges no less"
        before = judged
        counts += found
    again = audited(LimitedStore(requests_max=len(store.requests)), root, level, as_of_ms)
    assert [copy.verdict for copy in copies_of(again)] == [copy.verdict for copy in copies_of(whole)]
    return counts


HEALTHY = [(2, None), (0, 3)] if TIER == "quick" else [(0, None), (2, None), (0, 3), (2, 4)]
"""Segments that retention deleted, and a segment that is gone from the middle."""
EVERY = 9 if TIER == "quick" else 2
"""Distance between two limits that are tried, in requests."""


LEVELS = [level for level in AuditLevel if level is not AuditLevel.RECORDS]
"""Levels by which a generated store is healthy: its batches count records that they do not have (``test_audit_records.py``)."""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("deleted", "hole"), HEALTHY)
def test_healthy_stores_under_limits(tmp_path: Path, level: AuditLevel, deleted: int, hole: int | None) -> None:
    store = generated_store(3, has_transactions=True)
    with written(tmp_path / "store", store, store.states, deleted, hole):
        counts = under_limits(tmp_path / "store", level, store.as_of_ms, EVERY, (deleted, hole))
    assert set(counts) <= {"right", "consistent", "unproven", "not-read"}, counts
    assert counts["unproven"] + counts["right"] > 0, counts
    assert (counts["right"] > 0) == (deleted == 0 and level is not AuditLevel.STRUCTURE), counts


@pytest.mark.parametrize("fault", ["a silent producer is missing", "older sequence"])
def test_faults_under_limits(tmp_path: Path, fault: str) -> None:
    store, place = generated_store(1, has_transactions=True), 3
    counts: Counter[str] = Counter()
    with written(tmp_path / "store", store, spoilt(store, place, fault), 2, None):
        counts += under_limits(tmp_path / "store", AuditLevel.FULL, store.as_of_ms, EVERY, fault)
    assert counts["not-read"] > 0
    assert counts["unproven"] > 0
    assert counts["right"] + counts["consistent"] == 0


@pytest.mark.full
@pytest.mark.parametrize("level", list(AuditLevel))
def test_every_fault_under_every_limit(tmp_path: Path, level: AuditLevel) -> None:
    counts: Counter[str] = Counter()
    for seed in (0, 1) if TIER == "night" else (1,):
        store = generated_store(seed, has_transactions=bool(seed))
        for fault in (None, *FAULTS):
            for deleted, hole in ((0, None), (2, None), (1, 4)):
                snapshots = store.states if fault is None else spoilt(store, 3, fault)
                with written(tmp_path / "store", store, snapshots, deleted, hole):
                    reported = seed, fault, deleted, hole
                    every = 1 if TIER == "night" else 5
                    found = under_limits(tmp_path / "store", level, store.as_of_ms, every, reported)
                if fault is None:
                    assert set(found) <= {"right", "consistent", "unproven", "not-read"}, (reported, found)
                counts += found
    assert counts["not-read"] > 0
    assert counts["unproven"] > 0


@pytest.mark.parametrize("level", [AuditLevel.FULL, AuditLevel.REACHABLE])
@pytest.mark.parametrize("deleted", [0, 2])
def test_a_segment_that_cannot_be_read_is_a_hole(tmp_path: Path, level: AuditLevel, deleted: int) -> None:
    """Segments below and above are judged as if the copy were gone; the finding is that of the object."""
    store, place = generated_store(3), 4
    name = f"{store.bases[place]:020d}-"
    for fault in (None, "a writing producer is missing"):
        for wrong_at in (3, 6) if fault else (3,):
            snapshots = store.states if fault is None else spoilt(store, wrong_at, fault)
            with written(tmp_path / "store", store, snapshots, deleted, None):
                (log,) = (tmp_path / "store").rglob(f"{name}*.log")
                audit = audited(LimitedStore(unreadable=log.name), tmp_path / "store", level, store.as_of_ms)
            found = [copy.verdict for copy in copies_of(audit)]
            reported = fault, wrong_at, [(copy.verdict, copy.reason) for copy in copies_of(audit)]
            if fault is None:
                assert not set(found) & {SnapshotVerdict.SUSPECT, *WRONG}, reported
                assert found[0] in GOOD, reported
            else:
                assert found[wrong_at - deleted] in WRONG, reported
            assert SnapshotVerdict.UNPROVEN in found[place - deleted :], reported
            assert exit_code_of(audit.findings) == 5, reported
