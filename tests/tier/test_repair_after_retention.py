"""``tier repair`` of a store that begins above offset 0: a state that two other copies confirm is written, and nothing else.

The right snapshots are those of a repair of the whole store, which a replay from offset 0 proved.
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiven_index_reader import fetch_index
from budgets import TIER
from generated_stores import DAY_MS, FAULTS, generated_store, spoilt
from manifests import AIVEN

from formats.partition.producer_snapshot import parse_snapshot
from snaprebuild.findings import exit_code_of
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.local.store import LOCAL, LocalStore
from snaprebuild.storage.store import OpenBytes
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.audit.partition_audit import WRONG, SnapshotVerdict
from snaprebuild.tier.audit.proven_snapshots import ProvenSnapshots
from snaprebuild.tier.ledger.ledger_file import AuditLedger
from snaprebuild.tier.remote_store import StoreAccess
from snaprebuild.tier.repair.repair import StoreRepair, tier_repair
from snaprebuild.tier.repair.repaired_copy import RepairAction

CLOCK = Clock(1_795_132_800_000, 86_400_000)
"""Before the records, so that no producer has expired."""
DISEASED = AIVEN / "diseased" / "store"
BASES = (0, 687, 1231, 1805, 2430, 3017)


@dataclass(frozen=True)
class Example:
    """A store.

    Attributes:
        root: of it.
        undo: where receipts go.
    """

    root: Path
    undo: Path

    def manifest(self, base: int) -> Path:
        (path,) = self.root.rglob(f"{base:020d}-*.rsm-manifest")
        return path

    def spoil(self, base: int) -> None:
        """The wrong snapshot of the fixture: the manifest names it again."""
        (old,) = DISEASED.rglob(f"{base:020d}-*.rsm-manifest")
        shutil.copy(old, self.manifest(base))

    def delete(self, base: int) -> None:
        for path in self.root.rglob(f"{base:020d}-*"):
            path.unlink()

    def snapshot(self, base: int) -> bytes:
        key = str(self.manifest(base)).removesuffix(".rsm-manifest")
        data = fetch_index(lambda path: Path(path).read_bytes(), key, "producerSnapshot", None)
        assert data is not None
        return data

    def repair(self, *, dry_run: bool = False) -> StoreRepair:
        access = StoreAccess(StorePath(LOCAL, str(self.root)))
        number = len(list(self.undo.iterdir()))
        undo_path = None if dry_run else str(self.undo / str(number))
        return tier_repair(access, Run(clock=CLOCK, jobs=1), allow_unverified=True, undo_path=undo_path)

    def verdicts(self) -> list[SnapshotVerdict]:
        audit = tier_audit(StoreAccess(StorePath(LOCAL, str(self.root))), Run(clock=CLOCK, jobs=1))
        return [copy.verdict for partition in audit.partitions for copy in partition.copies]


@pytest.fixture
def healthy(tmp_path: Path) -> Example:
    """A store whose snapshots are right: a replay from offset 0 proved them."""
    shutil.copytree(DISEASED, tmp_path / "store")
    (tmp_path / "undo").mkdir()
    example = Example(tmp_path / "store", tmp_path / "undo")
    assert {each.action for each in example.repair().copies} == {RepairAction.REPAIRED}
    assert set(example.verdicts()) == {SnapshotVerdict.RIGHT}
    return example


@pytest.mark.parametrize("base", BASES[2:5])
def test_a_wrong_snapshot_above_two_good_ones_is_repaired(healthy: Example, base: int) -> None:
    right = healthy.snapshot(base)
    healthy.delete(0)
    assert not set(healthy.verdicts()) & set(WRONG), "the healthy form"
    healthy.spoil(base)
    assert healthy.snapshot(base) != right
    dry = healthy.repair(dry_run=True)
    assert [(each.start_offset, each.action) for each in dry.copies] == [(base, RepairAction.WOULD_REPAIR)]
    done = healthy.repair()
    assert [(each.start_offset, each.action, each.reason) for each in done.copies] == [(base, RepairAction.REPAIRED, "")]
    assert healthy.snapshot(base) == right
    assert not set(healthy.verdicts()) & {*WRONG, SnapshotVerdict.SUSPECT, SnapshotVerdict.UNPROVEN}


def test_the_lowest_copy_is_left_alone(healthy: Example) -> None:
    """No copy below it has the state."""
    healthy.delete(0)
    healthy.spoil(687)
    before = healthy.manifest(687).read_bytes()
    done = healthy.repair()
    (copy,) = done.copies
    assert (copy.action, exit_code_of(done.findings)) == (RepairAction.NOT_REPAIRED, 1)
    assert "no two other snapshots confirm" in copy.reason
    assert healthy.manifest(687).read_bytes() == before


def test_with_one_other_copy_nothing_confirms_the_state(healthy: Example) -> None:
    for base in BASES[:3]:
        healthy.delete(base)
    healthy.delete(BASES[-1])
    healthy.spoil(BASES[4])
    before = healthy.manifest(BASES[4]).read_bytes()
    done = healthy.repair()
    (copy,) = done.copies
    assert copy.action is RepairAction.NOT_REPAIRED
    assert healthy.manifest(BASES[4]).read_bytes() == before


def test_two_wrong_ones_of_four_are_left_alone_or_right(healthy: Example) -> None:
    """Whatever is written is right, whatever else is wrong."""
    rights = {base: healthy.snapshot(base) for base in BASES}
    healthy.delete(0)
    healthy.spoil(1231)
    healthy.spoil(2430)
    for copy in healthy.repair().copies:
        if copy.action is RepairAction.REPAIRED:
            assert healthy.snapshot(copy.start_offset) == rights[copy.start_offset]
        else:
            assert copy.reason


SUSPECT = ("a silent producer is missing", "a silent producer is missing from here on", "epoch", "older sequence")
SUSPECT += ("timestamp", "open transaction", "invented producer")
"""Faults that other snapshots contradict, and no batch: nothing shows which of them is wrong, and nothing is written."""
SEEDS = range({"quick": 3, "full": 8, "night": 100}[TIER])


@pytest.mark.parametrize("fault", FAULTS)
def test_what_would_be_written_is_what_the_whole_log_gives(tmp_path: Path, fault: str) -> None:
    """Generated stores, whose first segments retention has deleted. Nothing that is written differs from the fold from offset 0."""
    count = 0
    for seed in SEEDS:
        store = generated_store(seed, has_transactions=bool(seed % 2))
        for deleted in (1, 2):
            for place in range(deleted, len(store.bases)):
                root = tmp_path / "store"
                shutil.rmtree(root, ignore_errors=True)
                store.write(root, spoilt(store, place, fault), deleted)
                run = Run(clock=Clock(store.as_of_ms, DAY_MS), jobs=1)
                with ProvenSnapshots() as kept:
                    audit = tier_audit(StoreAccess(StorePath(LOCAL, str(root))), run, keep=kept)
                    for number, copy in enumerate(audit.partitions[0].copies, deleted):
                        if copy.proven is None:
                            continue
                        count += 1
                        entries = {each.producer_id: each for each in parse_snapshot(kept.read(copy.proven))}
                        assert entries == store.states[number], (fault, seed, deleted, place, number)
    assert (count > 0) == (fault not in SUSPECT)


@dataclass(frozen=True)
class OpenedStore(LocalStore):
    """Files, and the names of those that were opened to be read in ranges."""

    opened: list[str] = field(default_factory=list, compare=False)

    def open_bytes(self, location: str, *more: Any, **named: Any) -> OpenBytes:
        self.opened.append(Path(location).name)
        return LocalStore.open_bytes(self, location, *more, **named)


@pytest.mark.parametrize("deleted", [0, 1])
def test_a_repair_with_a_ledger_reads_no_segment_again(healthy: Example, tmp_path: Path, deleted: int) -> None:
    rights = {base: healthy.snapshot(base) for base in BASES}
    for base in BASES[:deleted]:
        healthy.delete(base)
    healthy.spoil(1805)
    store = OpenedStore()
    access = StoreAccess(StorePath(store, str(healthy.root)))
    run = Run(clock=CLOCK, jobs=1)
    with AuditLedger.open(str(tmp_path / "ledger"), str(healthy.root)) as ledger:
        audit = tier_audit(access, run, ledger=ledger)
    assert [copy.copy.start_offset for copy in audit.partitions[0].copies if copy.verdict in WRONG] == [1805]
    assert sum(name.endswith(".log") for name in store.opened) == len(BASES) - deleted
    store.opened.clear()
    with AuditLedger.open(str(tmp_path / "ledger"), str(healthy.root)) as ledger:
        done = tier_repair(access, run, allow_unverified=True, undo_path=str(tmp_path / "receipt"), ledger=ledger)
    assert [each.action for each in done.copies] == [RepairAction.REPAIRED]
    assert healthy.snapshot(1805) == rights[1805]
    assert not [name for name in store.opened if name.endswith(".log")]
    # The manifest is another one now: the copy alone is read again, and proven.
    with AuditLedger.open(str(tmp_path / "ledger"), str(healthy.root)) as ledger:
        tier_repair(access, run, allow_unverified=True, ledger=ledger)
    assert [name[:20] for name in store.opened if name.endswith(".log")] == [f"{1805:020d}"]
