"""``tier audit`` of a store that does not begin at offset 0: what retention deleted is unknown, and most of it can be proven.

What is right is what Kafka's own brokers wrote (fixtures), or the fold of a simulated broker from offset 0.
"""

import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from log_dirs import EMPTY_SNAPSHOT, batch, snapshot_bytes
from manifests import FIXTURES
from replays import Case, case_of
from sentences import ARE_IN_NO_COPY
from simulated_broker import EXPIRATION_MS, loaded
from tiers import Copy, write_tier

from formats.log.record_batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.findings import exit_code_of
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.local.store import LocalStore
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.audit.partition_audit import WRONG, SnapshotVerdict, StoreAudit
from snaprebuild.tier.remote_store import StoreAccess

DAY_MS = 86_400_000
LIVE = Clock(1_795_132_800_000, DAY_MS)
"""Before the records of the fixtures, so that no producer has expired."""


def audited(root: Path, clock: Clock = LIVE, level: AuditLevel = AuditLevel.FULL) -> StoreAudit:
    return tier_audit(StoreAccess(StorePath(LocalStore(), str(root))), Run(clock=clock, jobs=1), level=level)


def store_of(directory: Path, root: Path) -> Path:
    """The rolled segments of a partition directory of a broker, with its snapshots, as copies."""
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    copies = [
        Copy(base, (directory / f"{base:020d}.log").read_bytes(), ((0, 0),), (directory / f"{end:020d}.snapshot").read_bytes())
        for base, end in pairwise(bases)
    ]
    return write_tier(root, "payments", 0, copies)


def verdicts(audit: StoreAudit) -> list[SnapshotVerdict]:
    return [copy.verdict for partition in audit.partitions for copy in partition.copies]


@pytest.mark.parametrize("level", [AuditLevel.FULL, AuditLevel.REACHABLE])
def test_a_broker_that_lost_its_state_is_not_called_right(tmp_path: Path, level: AuditLevel) -> None:
    """All of its snapshots agree with each other and with the segments, and none is right."""
    store = store_of(FIXTURES / "follower-lost-state" / "node2" / "payments-0", tmp_path)
    found = verdicts(audited(store, level=level))
    assert found[-1] is SnapshotVerdict.UNPROVEN
    assert SnapshotVerdict.RIGHT not in found


def test_a_broker_that_kept_its_state_is_not_called_wrong(tmp_path: Path) -> None:
    """The first snapshot is the base of the others; nothing else confirms it, and all of them follow from it."""
    found = verdicts(audited(store_of(FIXTURES / "follower-lost-state" / "node1" / "payments-0", tmp_path)))
    assert found == [SnapshotVerdict.CONSISTENT] + [SnapshotVerdict.RIGHT] * (len(found) - 1)
    assert len(found) > 3


@pytest.mark.parametrize("deleted", [1, 4, 9, 10])
def test_a_real_store_with_retention_is_proven(tmp_path: Path, deleted: int) -> None:
    shutil.copytree(FIXTURES / "tiered-local" / "remote", tmp_path / "remote")
    bases = sorted({path.name[:20] for path in (tmp_path / "remote").rglob("*.log")})
    for path in list((tmp_path / "remote").rglob("*-*.*")):
        if path.is_file() and path.name[:20] in bases[:deleted]:
            path.unlink()
    audit = audited(tmp_path / "remote")
    found = verdicts(audit)
    assert exit_code_of(audit.findings) == 0
    assert len(found) == 12 - deleted
    # The second one may have a transaction that began in its own segment: whether one was open before, only the base says.
    assert set(found[:2]) <= {SnapshotVerdict.RIGHT, SnapshotVerdict.CONSISTENT}
    assert found[2:] == [SnapshotVerdict.RIGHT] * (10 - deleted)


def test_an_empty_snapshot_above_zero_is_unproven(tmp_path: Path) -> None:
    """No producer wrote in what is left; whether one is alive below, nothing shows."""
    log = batch(500, producer_id=-1) + batch(501, producer_id=-1)
    (partition,) = audited(write_tier(tmp_path, "t", 0, [Copy(500, log, ((0, 0),), EMPTY_SNAPSHOT)])).partitions
    assert [copy.verdict for copy in partition.copies] == [SnapshotVerdict.UNPROVEN]
    assert f"records deleted below 500 {ARE_IN_NO_COPY}" in partition.copies[0].reason


def is_open_below(entry: ProducerEntry, offset: int) -> bool:
    return 0 <= entry.current_txn_first_offset < offset


def shows_transactions(case: Case) -> bool:
    batches = (each.header for segment in case.broker.segments[case.deleted :] for each in segment.batches)
    return any(header.attributes & (ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL) for header in batches)


def test_no_false_acquittal_of_simulated_logs(tmp_path: Path) -> None:
    """A broker that lost its state where the store begins writes what the rest of the log gives."""
    reached: Counter[str] = Counter()
    for seed in range(32):
        case = case_of(seed)
        if not case.deleted:
            continue
        for is_lost in (False, True):
            entries = [list((case.broker.folded(end, case.deleted) if is_lost else case.live(end)).values()) for end in case.ends]
            copies = [
                Copy(segment.base_offset, segment.data, ((0, 0),), snapshot_bytes(found), max(segment.largest_timestamp, 0))
                for segment, found in zip(case.broker.segments[case.deleted :], entries, strict=True)
            ]
            store = write_tier(tmp_path / f"{seed}-{is_lost}", "t", 0, copies)
            (partition,) = audited(store, Clock(case.as_of_ms, EXPIRATION_MS)).partitions
            for copy, end, held in zip(partition.copies, case.ends, entries, strict=True):
                reported = (seed, is_lost, end, copy.reason)
                reached[f"{'lost' if is_lost else 'kept'} {copy.verdict.value}"] += 1
                if copy.verdict is SnapshotVerdict.RIGHT:
                    truths = [loaded(each.values(), case.as_of_ms) for each in (case.live(end), case.truth(end))]
                    # The limit: a transaction that was opened below, of a log that shows no other transaction.
                    opened = {
                        producer for truth in truths for producer, entry in truth.items() if is_open_below(entry, case.bases[0])
                    }
                    is_known = loaded(held, case.as_of_ms) in truths
                    assert is_known or (opened and not shows_transactions(case)), reported
                if not is_lost:
                    assert copy.verdict not in WRONG, reported
    assert reached["kept right"] > 10, reached
    assert reached["lost unproven"] + reached["lost consistent"] > 10, reached
