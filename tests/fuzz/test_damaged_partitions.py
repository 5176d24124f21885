"""Random damage to real partitions: nothing false is claimed, nothing is lost in silence, nothing throws."""

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from budgets import scaled
from log_dirs import Entries, copy_of, entries_in, truth
from manifests import FIXTURES
from plans import make_plan

from snaprebuild.findings import exit_code_of
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.destination.boundary_result import BoundaryResult
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.rebuild_result import RebuildResult
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.run import Run

pytestmark = pytest.mark.full

PARTITIONS = (("kafka27-mixed", "mixed-0"), ("kafka4-mixed", "mixed-0"), ("kafka27-killed", "k-magicup-0"))
ROUNDS = scaled(24)
"""For each partition."""
AS_OF_MS = 1_795_262_000_000


def damage(path: Path, rng: random.Random) -> tuple[str, int]:
    """Does something to a file. Returns what, and the first position that changed."""
    data = bytearray(path.read_bytes())
    size = len(data)
    at = rng.randrange(size)
    kind = rng.choice(("flip", "flip", "flip", "byte", "cut", "zero", "junk", "insert", "remove"))
    if kind == "flip":
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "byte":
        data[at] = (data[at] + rng.randrange(1, 256)) % 256
    elif kind == "cut":
        del data[at:]
    elif kind == "zero":
        data[at:] = bytes(size - at)
    elif kind == "junk":
        length = min(rng.randrange(1, 200), size - at)
        data[at : at + length] = rng.randbytes(length)
    elif kind == "insert":
        data[at:at] = rng.randbytes(rng.randrange(1, 50))
    else:
        del data[at : at + rng.randrange(1, 100)]
    path.write_bytes(data)
    return kind, at


def rebuilt(source: Path, out: Path) -> RebuildResult:
    request = RebuildRequest(paths=(str(source),), out=str(out), boundaries="all", replay_from="log-start", as_of_ms=AS_OF_MS)
    return rebuild(make_plan(request), Run(jobs=1))


def found_at(boundary: BoundaryResult) -> Entries:
    assert boundary.path is not None
    return entries_in(Path(boundary.path).read_bytes())


@pytest.mark.parametrize(("fixture", "partition"), PARTITIONS, ids=[f"{fixture}-{name}" for fixture, name in PARTITIONS])
def test_no_false_claim_over_a_damaged_segment(fixture: str, partition: str, tmp_path: Path) -> None:
    right = truth(fixture, partition)
    source = FIXTURES / fixture / "logs" / partition
    names = sorted(path.name for path in source.glob("*.log"))
    work = tmp_path / partition
    shutil.copytree(source, work, ignore=shutil.ignore_patterns("*.snapshot", "*.txnindex"))
    classes: Counter[SnapshotClass | None] = Counter()
    for seed in range(ROUNDS):
        rng = random.Random(f"{fixture} {partition} {seed}")
        index = rng.randrange(len(names))
        victim = work / names[index]
        whole = victim.read_bytes()
        kind, at = damage(victim, rng)
        out = tmp_path / "out"
        try:
            result = rebuilt(work, out)
            (only,) = result.partitions
            done = {boundary.offset: boundary for boundary in only.boundaries}
            context = f"seed {seed}: {kind} at byte {at} of {names[index]}"
            below = [offset for offset in right if offset <= int(names[index][:20])]
            for offset in below:
                # Damage above a boundary changes nothing about it.
                assert done[offset].snapshot_class is SnapshotClass.EXACT, context
                assert found_at(done[offset]) == right[offset], context
            for offset, boundary in done.items():
                classes[boundary.snapshot_class] += 1
                if boundary.snapshot_class is SnapshotClass.EXACT and offset in right:
                    assert found_at(boundary) == right[offset], context
                elif boundary.snapshot_class is SnapshotClass.EXACT:
                    # A torn last segment: the log simply ends earlier.
                    assert boundary.is_log_end, context
                    assert index == len(names) - 1, context
            missing = set(right) - {offset for offset, boundary in done.items() if boundary.path is not None}
            cut_last = index == len(names) - 1 and missing == {max(right)}
            if missing and not cut_last:
                assert exit_code_of(result.findings) in (1, 4), context
        finally:
            victim.write_bytes(whole)
            shutil.rmtree(out, ignore_errors=True)
    assert classes[SnapshotClass.EXACT] > ROUNDS
    assert classes[SnapshotClass.UNSOUND] > 0


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", ".txnindex"])
def test_damage_to_any_other_file_changes_no_state(suffix: str, tmp_path: Path) -> None:
    right, work = truth("kafka27-mixed", "mixed-0"), copy_of("kafka27-mixed", tmp_path) / "mixed-0"
    for seed in range(ROUNDS // 2):
        rng = random.Random(f"{suffix} {seed}")
        victim = rng.choice([path for path in sorted(work.glob("*" + suffix)) if path.stat().st_size])
        whole = victim.read_bytes()
        damage(victim, rng)
        out = tmp_path / "out"
        result = rebuilt(work, out)
        assert {boundary.offset for boundary in result.partitions[0].boundaries} == set(right)
        for boundary in result.partitions[0].boundaries:
            assert boundary.snapshot_class is SnapshotClass.EXACT
            assert found_at(boundary) == right[boundary.offset]
        if suffix in (".snapshot", ".txnindex") and whole != victim.read_bytes():
            codes = {finding.code for finding in result.findings}
            assert codes & {"wrong-snapshot", "transaction-index-differs", "unreadable-transaction-index", "corrupt-snapshot"}
        victim.write_bytes(whole)
        shutil.rmtree(out)
