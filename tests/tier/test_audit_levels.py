"""Faults and healthy forms of stores side by side, at every level of ``tier audit``: what each level says, and that none says less.

No wrong copy is called right or consistent by a replay. Healthy stores have no alarm. A more expensive level never takes back what a
cheaper one reported, except by the verdict that the other one of two snapshots is wrong.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from archives import unpack
from budgets import TIER
from command import in_json
from generated_stores import DAY_MS, FAULTS, SEGMENTS, Entries, Store, changed, generated_store, spoilt
from log_dirs import flip
from manifests import FIXTURES

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.findings import Severity, exit_code_of
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.local.store import LocalStore
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.audit.partition_audit import WRONG, CopyAudit, SnapshotVerdict, StoreAudit
from snaprebuild.tier.audit.window import LocalStarts, read_local_starts
from snaprebuild.tier.remote_store import StoreAccess

GOOD = (SnapshotVerdict.RIGHT, SnapshotVerdict.CONSISTENT)
LEVELS = (AuditLevel.STRUCTURE, AuditLevel.REACHABLE, AuditLevel.FULL)
SEEDS = 1 if TIER == "quick" else 3
"""Healthy stores of each kind."""


def audited(root: Path, level: AuditLevel, as_of_ms: int, expiration_ms: int = DAY_MS) -> StoreAudit:
    starts = read_local_starts(["t-0=0"], (), Run())
    clock = Clock(as_of_ms, expiration_ms)
    return tier_audit(StoreAccess(StorePath(LocalStore(), str(root))), Run(clock=clock, jobs=1), level=level, local_starts=starts)


def copies_of(audit: StoreAudit) -> list[CopyAudit]:
    (partition,) = audit.partitions
    return partition.copies


def check_levels(audits: list[StoreAudit], reported: object) -> None:
    """None says less than the one before."""
    for cheaper, dearer in pairwise(audits):
        # What is unproven at one level may be proven at the next.
        codes = exit_code_of(each for each in cheaper.findings if each.code != "tier-unproven"), exit_code_of(dearer.findings)
        assert codes[0] <= codes[1], (reported, codes)
        before, after = copies_of(cheaper), copies_of(dearer)
        has_wrong = any(copy.verdict in WRONG for copy in after)
        for one, other in zip(before, after, strict=True):
            if one.verdict in WRONG:
                assert other.verdict in WRONG, (reported, one.copy.start_offset, one.verdict, other.verdict)
            if one.verdict is SnapshotVerdict.SUSPECT and other.verdict in GOOD:
                assert has_wrong, (reported, one.copy.start_offset, other.reason)


def at_all_levels(root: Path, store: Store, snapshots: list[Entries], deleted: int, reported: object) -> list[StoreAudit]:
    store.write(root, snapshots, deleted)
    audits = [audited(root, level, store.as_of_ms) for level in LEVELS]
    check_levels(audits, reported)
    shutil.rmtree(root)
    return audits


def found_faults(root: Path, seeds: Iterable[int], places: Iterable[int]) -> Counter[str]:
    """Audits each fault at each place, with and without retention, and counts by the verdict of the level ``full``."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        store = generated_store(seed, has_transactions=bool(seed % 2))
        for deleted in (0, 2):
            for fault in FAULTS:
                for place in places:
                    if place < deleted or (deleted and place == deleted and "from here on" in fault):
                        continue  # no record and no snapshot of such a store shows that it lost the producer
                    reported = seed, deleted, fault, place
                    audits = at_all_levels(root, store, spoilt(store, place, fault), deleted, reported)
                    copy = copies_of(audits[-1])[place - deleted]
                    assert copy.verdict not in GOOD, (reported, copy.reason)
                    assert exit_code_of(audits[-1].findings) in (1, 4), reported
                    if not deleted:
                        assert copy.verdict in WRONG, (reported, copy.reason)
                    counts["retention " * bool(deleted) + copy.verdict.value] += 1
                    counts["by structure"] += exit_code_of(audits[0].findings) != 0
                    if "from here on" not in fault:
                        others = [each for each in copies_of(audits[-1]) if each is not copy]
                        assert not any(each.verdict in WRONG for each in others), reported
    return counts


@pytest.mark.full
def test_every_fault_at_every_place(tmp_path: Path) -> None:
    """The quick tier has each fault in either of two copies."""
    counts = found_faults(tmp_path / "store", [0], [2, 4])
    assert counts.total() - counts["by structure"] == len(FAULTS) * 4 - 1


@pytest.mark.night
def test_every_fault_in_more_logs(tmp_path: Path) -> None:
    counts = found_faults(tmp_path / "store", [1, 2], range(SEGMENTS))
    assert counts["retention suspect"] > 12, counts
    assert counts["retention unproven"] * 5 < counts.total(), counts


@pytest.mark.parametrize("expires", [False, True])
@pytest.mark.parametrize("has_transactions", [False, True])
def test_healthy_stores_have_no_alarm(tmp_path: Path, has_transactions: bool, expires: bool) -> None:
    """From offset 0, and after retention as long as two copies are left.

    Only where retention has deleted all that producers wrote before they expired, the newest is unproven: then no snapshot shows that its
    broker knew what was below.
    """
    verdicts: Counter[str] = Counter()
    alarms = 0
    for seed in range(SEEDS):
        store = generated_store(seed, has_transactions=has_transactions, expires=expires)
        for deleted in range(SEGMENTS - 1):
            reported = seed, deleted
            audits = at_all_levels(tmp_path / "store", store, store.states, deleted, reported)
            for audit in audits:
                found = {copy.verdict for copy in copies_of(audit)}
                assert not found & {SnapshotVerdict.SUSPECT, *WRONG}, (reported, audit.level, found)
            full = copies_of(audits[-1])
            verdicts.update(copy.verdict.value for copy in full)
            if not deleted:
                assert {copy.verdict for copy in full} == {SnapshotVerdict.RIGHT}, reported
            assert {copy.verdict for copy in full[:-1]} <= set(GOOD), reported
            is_known = knows_below(store, deleted)
            for audit in audits[1:]:
                alarm = exit_code_of(audit.findings)
                assert not (alarm and is_known), (reported, audit.level, [each.message for each in audit.findings])
            alarms += exit_code_of(audits[-1].findings)
            assert full[-1].verdict is not SnapshotVerdict.CONSISTENT or is_known, reported
    assert verdicts["right"] > 3 * verdicts["unproven"], verdicts
    assert verdicts["consistent"] > 0, verdicts
    assert alarms == SEEDS * {(False, False): 0, (True, False): 0, (False, True): 1, (True, True): 2}[has_transactions, expires]
    assert verdicts["unproven"] == alarms


def knows_below(store: Store, deleted: int) -> bool:
    """Whether a snapshot that is left has an entry of what was deleted."""
    return not deleted or any(
        entry.last_offset < store.bases[deleted] for each in store.states[deleted:] for entry in each.values()
    )


REFUTED: dict[str, dict[str, Callable[[ProducerEntry], int]]] = {
    "a higher epoch": {"epoch": lambda entry: entry.epoch + 1},
    "an epoch that began with another sequence": {"epoch": lambda entry: entry.epoch - 1},
    "another sequence": {"last_sequence": lambda entry: entry.last_sequence + 5},
    "an open transaction of a client without any": {"current_txn_first_offset": lambda entry: entry.last_offset},
    "a higher coordinator epoch": {"coordinator_epoch": lambda entry: entry.coordinator_epoch + 1},
}
"""Changes of an entry that a batch above the snapshot contradicts (``replay.base_judge``: B1 to B5)."""


QUICK_REFUTED = ("a higher epoch", "another sequence")


@pytest.mark.parametrize("fault", [pytest.param(each, marks=() if each in QUICK_REFUTED else pytest.mark.full) for each in REFUTED])
def test_records_above_contradict_a_copy(tmp_path: Path, fault: str) -> None:
    """The producer is silent in the copy and writes above it: no record below the snapshot shows that it is wrong."""
    counts: Counter[str] = Counter()
    for seed, deleted in ((0, 2), (1, 2), (3, 2)):
        store = generated_store(seed, has_transactions=bool(seed), first_epoch=2)
        for place in range(deleted, SEGMENTS - 1):
            for producer in silent_producers(store, place, fault)[:1]:
                entry = store.states[place][producer]
                fields = {name: change(entry) for name, change in REFUTED[fault].items()}
                states = list(store.states)
                states[place] = changed(states[place], producer, **fields)
                reported = seed, deleted, place, producer
                for audit in at_all_levels(tmp_path / "store", store, states, deleted, reported)[1:]:
                    copies = copies_of(audit)
                    assert [copy.copy.start_offset for copy in copies if copy.verdict in WRONG] == [store.bases[place]], reported
                    assert exit_code_of(audit.findings) == 1, reported
                    counts["lowest" if place == deleted else "inner"] += 1
    assert counts["lowest"] >= 2, counts
    assert counts["inner"] >= 2, counts


def silent_producers(store: Store, place: int, fault: str) -> list[int]:
    """Producers that a fault of ``REFUTED`` can concern: silent in a copy, and writing above it."""
    later = {each.header.producer_id for batches in store.segments[place + 1 :] for each in batches}
    silent = [key for key, each in store.states[place].items() if each.last_offset < store.bases[place] and key in later]
    if "coordinator" in fault:
        return [key for key in silent if store.states[place][key].coordinator_epoch >= 0]
    if "transaction" in fault:
        return [key for key in silent if store.states[place][key].coordinator_epoch < 0]
    return silent


def test_a_lowest_copy_that_others_contradict_is_suspect(tmp_path: Path) -> None:
    """It lacks the coordinator epoch of a producer, which no record above writes: another broker may have lost that, but not this one."""
    store, deleted = generated_store(1, has_transactions=True), 2
    silent = next(
        key for key, each in store.states[-1].items() if each.coordinator_epoch >= 0 and each.last_offset < store.bases[deleted]
    )
    states = list(store.states)
    states[deleted] = changed(states[deleted], silent, coordinator_epoch=-1)
    for audit in at_all_levels(tmp_path / "store", store, states, deleted, silent)[1:]:
        verdicts = [copy.verdict for copy in copies_of(audit)]
        assert verdicts[0] is SnapshotVerdict.SUSPECT
        assert not set(verdicts[1:]) & set(GOOD)
        assert exit_code_of(audit.findings) == 1


def test_faults_of_two_copies(tmp_path: Path) -> None:
    """Two healthy ones are consistent; a fault in either is found."""
    count = 0
    seeds = (1,) if TIER == "quick" else (0, 1)
    for seed in seeds:
        store, deleted = generated_store(seed, has_transactions=bool(seed)), SEGMENTS - 2
        for place in (deleted, deleted + 1):
            for fault in FAULTS:
                if place == deleted and "from here on" in fault:
                    continue
                reported = seed, place, fault
                audit = at_all_levels(tmp_path / "store", store, spoilt(store, place, fault), deleted, reported)[-1]
                assert copies_of(audit)[place - deleted].verdict not in GOOD, reported
                assert exit_code_of(audit.findings) in (1, 4), reported
                count += 1
    assert count == len(seeds) * (2 * len(FAULTS) - 1)


def test_between_a_day_and_the_expiration_is_a_note(tmp_path: Path) -> None:
    """Brokers before 3.4 keep idle producers for seven days; a store of later ones is not suspect for it."""
    store = generated_store(1, expires=True)
    store.write(tmp_path / "store", store.states, 1)
    audit = audited(tmp_path / "store", AuditLevel.FULL, store.as_of_ms, 7 * DAY_MS)
    assert SnapshotVerdict.SUSPECT not in {copy.verdict for copy in copies_of(audit)}
    assert {each.severity for each in audit.findings if each.code == "tier-expiry-unknown"} == {Severity.NOTE}


HOLES = ("gone", "cut", *(pytest.param(each, marks=pytest.mark.full) for each in ("no batch is whole", "a flipped bit")))


@pytest.mark.parametrize("hole", HOLES)
def test_the_audit_begins_again_above_a_hole(tmp_path: Path, hole: str) -> None:
    """Each fault above it is found as in a store that begins there; healthy copies above it are not called wrong."""
    store, place = generated_store(3), 2
    for fault in (None, "empty", "a writing producer is missing", "sequence", "a silent producer is missing"):
        wrong_at = SEGMENTS - 3
        root = store.write(tmp_path / str(fault), store.states if fault is None else spoilt(store, wrong_at, fault))
        alone = store.write(
            tmp_path / f"{fault} alone", store.states if fault is None else spoilt(store, wrong_at, fault), place + 1
        )
        (log,) = root.rglob(f"{store.bases[place]:020d}-*.log")
        if hole == "gone":
            for path in sorted(log.parent.glob(f"{log.name[:43]}*")):
                path.unlink()
        elif hole == "no batch is whole":
            log.write_bytes(bytes(log.stat().st_size))
        elif hole == "a flipped bit":
            flip(log, log.stat().st_size // 2)
        else:
            log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
        expected = [copy.verdict for copy in copies_of(audited(alone, AuditLevel.FULL, store.as_of_ms))]
        audit = audited(root, AuditLevel.FULL, store.as_of_ms)
        found = [copy.verdict for copy in copies_of(audit)]
        reported = hole, fault, found
        assert found[:place] == [SnapshotVerdict.RIGHT] * place, reported
        above = found[-len(expected) :]
        # What retention would make consistent is unproven above a hole.
        allowed = {
            SnapshotVerdict.CONSISTENT: (SnapshotVerdict.UNPROVEN,),
            SnapshotVerdict.RIGHT: (SnapshotVerdict.RIGHT,),
            SnapshotVerdict.UNPROVEN: (SnapshotVerdict.UNPROVEN, SnapshotVerdict.SUSPECT),
        }
        for one, other in zip(above, expected, strict=True):
            assert one in allowed.get(other, (other,)), reported
        if fault is None:
            if hole == "cut":
                del found[place]  # it does not end where its snapshot does: either may be the bad one
            assert not set(found) & {SnapshotVerdict.SUSPECT, *WRONG}, reported
        assert exit_code_of(audit.findings) in (1, 4), reported


def without_segment(root: Path, base_offset: int) -> None:
    for path in sorted(root.rglob(f"{base_offset:020d}-*")):
        path.unlink()


def test_a_right_copy_below_a_hole_is_not_suspect_without_a_replay(tmp_path: Path) -> None:
    """Nothing has the ends of segments. Where a snapshot looks wrong for records in the hole, the end of its segment is read."""
    counts: Counter[str] = Counter()
    for seed in range(3):
        store = generated_store(seed, has_transactions=bool(seed % 2))
        for hole in range(1, SEGMENTS - 1):
            for fault in (None, "empty"):
                place = hole - 1
                root = store.write(tmp_path / "store", store.states if fault is None else spoilt(store, place, fault))
                without_segment(root, store.bases[hole])
                found = copies_of(audited(root, AuditLevel.STRUCTURE, store.as_of_ms))
                shutil.rmtree(root)
                reported = seed, hole, fault
                suspects = [copy.copy.start_offset for copy in found if copy.verdict is SnapshotVerdict.SUSPECT]
                assert (store.bases[place] in suspects) == (fault is not None), (reported, found[place].reason)
                if fault is None:
                    assert suspects == [], reported
                    counts["ends read"] += sum(copy.copy.end_offset is not None for copy in found)
                counts["faults" if fault else "healthy"] += 1
    assert (counts["faults"], counts["healthy"]) == (15, 15)
    assert counts["ends read"] >= 8, "copies that looked wrong by where the next one begins"


def extracted(name: str, tmp_path: Path) -> Path:
    unpack(FIXTURES / "tiered-contradictions" / name, tmp_path)
    return next(path for path in tmp_path.iterdir() if path.is_dir())


@pytest.mark.parametrize("store", ["x567", "x67"])
@pytest.mark.parametrize("level", list(AuditLevel))
def test_a_producer_that_later_snapshots_lack(tmp_path: Path, store: str, level: AuditLevel) -> None:
    place = extracted("wrong-called-right.tgz", tmp_path)
    options = ("--metadata-log", place / f"{store}-log", "--as-of", "1795015000000", "--level", level.value)
    run = in_json("tier audit", place / store, *options)
    verdicts = [copy["verdict"] for copy in run.document["partitions"][0]["copies"]]
    assert verdicts[-2:] == ["suspect", "suspect"]
    assert not set(verdicts) & {"right", "consistent"}
    assert run.exit_code == 1


def test_a_false_empty_above_a_gap(tmp_path: Path) -> None:
    place = extracted("gap-acquits.tgz", tmp_path)
    found = {}
    for store in ("gap", "above"):
        run = in_json("tier audit", place / store, "--as-of", "1795015000000")
        found[store] = {copy["start_offset"]: copy["verdict"] for copy in run.document["partitions"][0]["copies"]}
        assert run.exit_code == 1
    assert found["gap"][164] == found["above"][164] == "false-empty"
    assert (found["gap"][0], found["gap"][41]) == ("right", "right")


def test_a_window_above_offset_0_clears_no_suspicion(tmp_path: Path) -> None:
    """The window proves the newest snapshot by the one below it, and an older one, of which no record was read, has one producer more."""
    store = generated_store(4, expires=True)
    states = [dict(each) for each in store.states]
    silent = min(states[-1], key=lambda key: states[-1][key].last_offset)
    states[-1] = {key: entry for key, entry in states[-1].items() if key != silent}
    store.write(tmp_path / "store", states)
    clock = Clock(store.as_of_ms, DAY_MS)
    for starts in (LocalStarts(), read_local_starts([f"t-0={store.bases[-1]}"], (), Run())):
        audit = tier_audit(
            StoreAccess(StorePath(LocalStore(), str(tmp_path / "store"))),
            Run(clock=clock, jobs=1),
            level=AuditLevel.REACHABLE,
            local_starts=starts,
        )
        assert copies_of(audit)[-1].verdict not in GOOD
        assert exit_code_of(audit.findings) == 1


@pytest.mark.parametrize("place", [0, 3, SEGMENTS - 1])
def test_a_segment_that_lost_its_end_does_not_convict_its_snapshot(tmp_path: Path, place: int) -> None:
    """Without a metadata log the end of a copy is that of its segment, and the right snapshot has offsets above it."""
    store = generated_store(0)
    root = store.write(tmp_path / "store", store.states)
    log = sorted(root.rglob("*.log"))[place]
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    audit = audited(root, AuditLevel.FULL, store.as_of_ms)
    found = [copy.verdict for copy in copies_of(audit)]
    assert found[place] is SnapshotVerdict.NOT_READ
    assert set(found) <= {SnapshotVerdict.RIGHT, SnapshotVerdict.UNPROVEN, SnapshotVerdict.NOT_READ}
    assert [each.offset for each in audit.findings if each.code == "tier-bad-copy"] == [store.bases[place]]
    assert exit_code_of(audit.findings) == 4
