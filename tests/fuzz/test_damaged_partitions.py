"""Random damage to real partitions: nothing false is claimed, nothing is lost in silence, nothing throws."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from budgets import scaled
from plans import make_plan

from formats.partition.producer_snapshot import ProducerEntry, parse_snapshot
from snaprebuild.findings import exit_code_of
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.plan.plan_model import Request
from snaprebuild.snapshots.rebuild.rebuild import rebuild
from snaprebuild.snapshots.rebuild.result import RebuildResult

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
FIELDS = tuple(ProducerEntry.__dataclass_fields__)
PARTITIONS = (
    ("kafka27-mixed", "logs", "mixed-0"),
    ("kafka27-mixed", "logs", "logappend-0"),
    ("kafka4-mixed", "logs", "mixed-0"),
    ("kafka27-killed", "logs", "k-magicup-0"),
)
ROUNDS = scaled(400)
AS_OF_MS = 1_795_262_000_000

State = set[tuple[int, ...]]


def truth(fixture: str, partition: str) -> dict[int, State]:
    """Kafka's answer at every boundary of the undamaged partition."""
    facts = json.loads((ROOT / "fixtures" / fixture / "manifest.json").read_text())["partitions"][partition]
    return {
        segment["snapshot_offset"]: {tuple(entry[name] for name in FIELDS) for entry in segment["entries"]}
        for segment in facts["segments"]
    }


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
    request = Request(paths=(str(source),), out=str(out), boundaries="all", replay_from="log-start", as_of_ms=AS_OF_MS)
    return rebuild(make_plan(request), jobs=1)


def state_in(path: str) -> State:
    return {tuple(getattr(entry, name) for name in FIELDS) for entry in parse_snapshot(Path(path).read_bytes())}


@pytest.mark.parametrize(("fixture", "logs", "partition"), PARTITIONS, ids=[f"{f}-{p}" for f, _, p in PARTITIONS])
def test_no_false_claim_over_a_damaged_segment(fixture: str, logs: str, partition: str, tmp_path: Path) -> None:
    right = truth(fixture, partition)
    source = ROOT / "fixtures" / fixture / logs / partition
    names = sorted(path.name for path in source.glob("*.log"))
    work = tmp_path / partition
    shutil.copytree(source, work, ignore=shutil.ignore_patterns("*.snapshot", "*.txnindex"))
    classes: dict[str, int] = {}
    for seed in range(ROUNDS // len(PARTITIONS)):
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
                assert state_in(str(done[offset].path)) == right[offset], context
            for offset, boundary in done.items():
                name = "none" if boundary.snapshot_class is None else boundary.snapshot_class.value
                classes[name] = classes.get(name, 0) + 1
                if boundary.snapshot_class is SnapshotClass.EXACT and offset in right:
                    assert state_in(str(boundary.path)) == right[offset], context
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
    assert classes.get("EXACT", 0) > ROUNDS // len(PARTITIONS)
    assert classes.get("UNSOUND", 0) > 0


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", ".txnindex"])
def test_damage_to_any_other_file_changes_no_state(suffix: str, tmp_path: Path) -> None:
    fixture, logs, partition = PARTITIONS[0]
    right = truth(fixture, partition)
    source = ROOT / "fixtures" / fixture / logs / partition
    work = tmp_path / partition
    shutil.copytree(source, work)
    for seed in range(ROUNDS // 8):
        rng = random.Random(f"{suffix} {seed}")
        victim = rng.choice([path for path in sorted(work.glob("*" + suffix)) if path.stat().st_size])
        whole = victim.read_bytes()
        damage(victim, rng)
        out = tmp_path / "out"
        result = rebuilt(work, out)
        assert {boundary.offset for boundary in result.partitions[0].boundaries} == set(right)
        for boundary in result.partitions[0].boundaries:
            assert boundary.snapshot_class is SnapshotClass.EXACT
            assert state_in(str(boundary.path)) == right[boundary.offset]
        if suffix in (".snapshot", ".txnindex") and whole != victim.read_bytes():
            codes = {finding.code for finding in result.findings}
            assert codes & {"wrong-snapshot", "transaction-index-differs", "unreadable-transaction-index", "corrupt-snapshot"}
        victim.write_bytes(whole)
        shutil.rmtree(out)
