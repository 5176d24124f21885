"""``tier repair --audit``: the document of an audit in place of reading again gives, byte for byte, what a repair without it gives.

The reference is ``tier repair`` without the document. What was read is counted by requests and bytes.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from budgets import TIER
from faulty_store import FaultyStore, objects_below
from generated_stores import DAY_MS, FAULTS, Store, generated_store, spoilt
from manifests import AIVEN
from uploads import files

from snaprebuild.cli.render.tier import TierAuditView
from snaprebuild.documents.envelope import members_of_document
from snaprebuild.documents.saved_audits import saved_audit
from snaprebuild.errors import RefusedError, UsageError
from snaprebuild.findings import exit_code_of
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.local.store import LOCAL, LocalStore
from snaprebuild.storage.private_keys import PrivateKeys
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import OpenBytes, S3Settings
from snaprebuild.storage.store import Store as AnyStore
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.audit.partition_audit import WRONG
from snaprebuild.tier.remote_store import StoreAccess
from snaprebuild.tier.repair import earlier_audit, repair
from snaprebuild.tier.repair.repair import StoreRepair, tier_repair
from snaprebuild.tier.repair.repaired_copy import RepairAction

CLOCK = Clock(1_795_132_800_000, DAY_MS)
"""Before the records of the fixtures, so that no producer has expired."""
DISEASED = AIVEN / "diseased" / "store"
KEYS = PrivateKeys.of([str(AIVEN / "keys" / "key1.private.pem")])
SEEDS = range({"quick": 3, "full": 6, "night": 60}[TIER])
FAULTS_TRIED = ("empty", "a writing producer is missing", "sequence", "stale") if TIER == "quick" else FAULTS


@dataclass(frozen=True)
class CountedStore(LocalStore):
    """Files, with the names of those that were opened in ranges, and the count of bytes of others that were read whole."""

    opened: list[str] = field(default_factory=list, compare=False)

    def open_bytes(self, location: str, *more: Any, **named: Any) -> OpenBytes:
        self.opened.append(Path(location).name)
        return LocalStore.open_bytes(self, location, *more, **named)

    def segments(self) -> Counter[int]:
        """How often each segment was opened, by base offset."""
        return Counter(int(name[:20]) for name in self.opened if name.endswith(".log"))


@dataclass
class Place:
    """A store, the clock of its audits, and a directory for documents and receipts."""

    root: str
    clock: Clock
    work: Path
    store: AnyStore = LOCAL

    def access(self) -> StoreAccess:
        return StoreAccess(StorePath(self.store, self.root), private_keys=KEYS)

    def audit(self, name: str = "audit.json", *, level: AuditLevel = AuditLevel.FULL, max_read_bytes: int | None = None) -> Path:
        """The document of an audit, as the command writes it."""
        stores = S3Settings(run=name, max_read_bytes=max_read_bytes)
        run = Run(clock=self.clock, jobs=1, stores=stores)
        audit = tier_audit(self.access(), run, level=level)
        view = TierAuditView(audit, self.clock, 0.0, ())
        members = members_of_document(view.document(), view.findings)
        members["findings"] = list(members["findings"])
        path = self.work / name
        path.write_bytes(msgspec.json.encode(members))
        return path

    def repair(self, document: Path | None, *, dry_run: bool = False) -> StoreRepair:
        number = len(list(self.work.iterdir()))
        return tier_repair(
            self.access(),
            Run(clock=self.clock, jobs=1),
            allow_unverified=True,
            undo_path=None if dry_run else str(self.work / f"receipt-{number}"),
            earlier=None if document is None else saved_audit(str(document)),
        )


def place_of(tmp_path: Path, name: str = "store") -> Place:
    work = tmp_path / f"work-{name}"
    work.mkdir(exist_ok=True)
    return Place(str(tmp_path / name), CLOCK, work)


def results(repair: StoreRepair) -> list[tuple[int, RepairAction, str]]:
    return [(each.start_offset, each.action, each.verdict or "") for each in repair.copies]


def codes(repair: StoreRepair) -> list[tuple[str, int, int | None]]:
    return sorted((each.code, each.severity, each.offset) for each in repair.findings)


def needed_segments(store: Store, wrong: set[int], exact: set[int]) -> set[int]:
    """Base offsets of the segments from the nearest exact snapshot below each wrong one up to it."""
    needed = set()
    for base in wrong:
        number = store.bases.index(base)
        needed.add(base)
        while number > 0 and store.bases[number - 1] not in exact:
            number -= 1
            needed.add(store.bases[number])
    return needed


@pytest.mark.parametrize("expires", [False, True])
@pytest.mark.parametrize("deleted", [0, 1, 2])
@pytest.mark.parametrize("fault", FAULTS_TRIED)
def test_generated_stores_are_repaired_as_without_it(tmp_path: Path, fault: str, deleted: int, *, expires: bool) -> None:
    for seed in SEEDS:
        store = generated_store(seed, has_transactions=bool(seed % 2), expires=expires)
        clock = Clock(store.as_of_ms, DAY_MS)
        for at in range(deleted, len(store.bases)):
            for name in ("with", "without"):
                shutil.rmtree(tmp_path / name, ignore_errors=True)
                store.write_aiven(tmp_path / name, spoilt(store, at, fault), deleted)
            reported = seed, fault, deleted, at, expires
            one, other = (place_of(tmp_path, name) for name in ("with", "without"))
            one.clock = other.clock = clock
            document = one.audit()
            counted = CountedStore()
            one.store = counted
            found, expected = one.repair(document), other.repair(None)
            assert results(found) == results(expected), reported
            assert files(Path(one.root)) == files(Path(other.root)), reported
            assert exit_code_of(found.findings) == exit_code_of(expected.findings), reported
            assert found.status == expected.status, reported
            copies = json.loads(document.read_text())["partitions"][0]["copies"]
            exact = {each["start_offset"] for each in copies if each["is_exact"]}
            repaired = {each.start_offset for each in found.copies if each.action is RepairAction.REPAIRED}
            assert counted.segments() == dict.fromkeys(needed_segments(store, repaired, exact), 1), reported
            if not expires and not deleted:
                assert set(counted.segments()) == repaired, reported


@pytest.mark.parametrize("name", ["diseased", "diseased-zstd", "diseased-encrypted"])
def test_wrong_ones_in_a_row_are_replayed_in_a_row(tmp_path: Path, name: str) -> None:
    for root in ("with", "without"):
        shutil.copytree(AIVEN / name / "store", tmp_path / root)
    one, other = (place_of(tmp_path, root) for root in ("with", "without"))
    document = one.audit()
    counted = CountedStore()
    one.store = counted
    found, expected = one.repair(document), other.repair(None)
    assert results(found) == results(expected)
    assert {each.action for each in found.copies} == {RepairAction.REPAIRED}
    assert set(counted.segments()) == {each.start_offset for each in found.copies}
    if name != "diseased-encrypted":  # whose initialization vectors are random
        assert files(Path(one.root)) == files(Path(other.root))
    assert not [each for each in other_verdicts(one) if each in WRONG]
    assert exit_code_of(found.findings) == 0


def other_verdicts(place: Place) -> list[str]:
    audit = tier_audit(place.access(), Run(clock=place.clock, jobs=1))
    return [copy.verdict for partition in audit.partitions for copy in partition.copies]


@pytest.mark.parametrize("name", ["diseased", "diseased-encrypted"])
def test_an_object_store(tmp_path: Path, faulty: FaultyStore, name: str) -> None:
    """The segments of wrong copies are read once each, of the others no byte; of snapshots that of one start alone."""
    faulty.objects |= objects_below(AIVEN / name / "store", "bucket/kafka")
    (tmp_path / "work").mkdir()
    remote = S3Store(S3Settings(endpoint_url=faulty.endpoint, path_style=True))
    place = Place("s3://bucket/kafka", CLOCK, tmp_path / "work", remote)
    document = place.audit()
    before = dict(faulty.objects)
    faulty.seen.clear()
    found = place.repair(document, dry_run=True)
    wrong = {each.manifest_key.removesuffix(".rsm-manifest") for each in found.copies if each.manifest_key is not None}
    assert {each.action for each in found.copies} == {RepairAction.WOULD_REPAIR}
    read: Counter[str] = Counter()
    for method, path, headers in faulty.seen:
        assert method == "GET", path
        if path.partition("?")[0].endswith(".log"):
            first, last = (int(each) for each in headers["range"].removeprefix("bytes=").split("-"))
            read[path.partition("?")[0].removeprefix("/bucket/kafka/")] += last - first + 1
    assert read == {f"{stem}.log": len(before[f"bucket/kafka/{stem}.log"]) for stem in wrong}
    manifests = [path for _, path, _ in faulty.seen if path.endswith(".rsm-manifest")]
    assert len(set(manifests)) <= len(wrong) + 2, "of the copy below them, and one that names the topic"
    assert {each.action for each in place.repair(document).copies} == {RepairAction.REPAIRED}
    faulty.objects, repaired = before, dict(faulty.objects)
    assert {each.action for each in place.repair(None).copies} == {RepairAction.REPAIRED}
    if name == "diseased":
        assert faulty.objects == repaired


def test_a_manifest_that_is_not_handed_out_ends_its_copy_alone(tmp_path: Path, faulty: FaultyStore) -> None:
    """And the copies above it, whose right snapshots follow from it."""
    faulty.objects |= objects_below(AIVEN / "diseased" / "store", "bucket/kafka")
    (tmp_path / "work").mkdir()
    remote = S3Store(S3Settings(endpoint_url=faulty.endpoint, path_style=True))
    place = Place("s3://bucket/kafka", CLOCK, tmp_path / "work", remote)
    document = place.audit()
    faulty.choose = lambda method, path, _: "403" if method == "GET" and f"{1805:020d}" in path and "manifest" in path else ""
    found = place.repair(document, dry_run=True)
    actions = {each.start_offset: each.action for each in found.copies}
    assert actions == {
        687: RepairAction.WOULD_REPAIR,
        1231: RepairAction.WOULD_REPAIR,
        1805: RepairAction.REFUSED,
        2430: RepairAction.REFUSED,
    }


# ------------------------------------------------------------------------------------------------------------------ refused


@pytest.fixture
def diseased(tmp_path: Path) -> Place:
    shutil.copytree(DISEASED, tmp_path / "store")
    return place_of(tmp_path)


def object_of(place: Place, base: int, suffix: str) -> Path:
    (path,) = Path(place.root).rglob(f"{base:020d}-*.{suffix}")
    return path


def touched(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def test_a_changed_segment_is_refused_for_its_copy(diseased: Place) -> None:
    """And for the copies above it, up to the next start, whose right snapshots follow from it."""
    document = diseased.audit()
    touched(object_of(diseased, 1805, "log"))
    found = diseased.repair(document)
    actions = {each.start_offset: (each.action, each.reason) for each in found.copies}
    assert [actions[base][0] for base in (687, 1231)] == [RepairAction.REPAIRED] * 2
    action, reason = actions[1805]
    assert action is RepairAction.REFUSED
    assert "changed since the audit: expected" in reason
    assert ", found " in reason
    action, reason = actions[2430]
    assert action is RepairAction.REFUSED
    assert "the copy below it, from 1805 on, cannot be replayed" in reason
    assert exit_code_of(found.findings) == 3
    refused = [each for each in found.findings if each.code == "refused"]
    assert {Path(each.path).name for each in refused} == {object_of(diseased, base, "log").name for base in (1805, 2430)}


@pytest.mark.parametrize("suffix", ["rsm-manifest", "indexes"])
def test_a_changed_start_is_not_used(diseased: Place, suffix: str) -> None:
    """The segment of that copy is read, too; its snapshot was not judged again."""
    document = diseased.audit()
    touched(object_of(diseased, 0, suffix))
    found = diseased.repair(document)
    assert {each.action for each in found.copies} == {RepairAction.REFUSED}
    assert all("cannot be replayed" in each.reason for each in found.copies[:1])
    (finding,) = [each for each in found.findings if each.code == "tier-not-audited"]
    assert "expected" in finding.message
    assert "found" in finding.message


@pytest.mark.parametrize("suffix", ["rsm-manifest", "indexes"])
def test_a_changed_wrong_snapshot_is_refused(diseased: Place, suffix: str) -> None:
    document = diseased.audit()
    touched(object_of(diseased, 2430, suffix))
    found = diseased.repair(document)
    actions = {each.start_offset: each.action for each in found.copies}
    assert actions.pop(2430) is RepairAction.REFUSED
    assert set(actions.values()) == {RepairAction.REPAIRED}
    assert "changed since the audit" in found.copies[-1].reason


@pytest.mark.parametrize("half", ["the snapshot is appended", "the manifest is written, too"])
def test_the_command_is_run_again_after_an_interruption(diseased: Place, tmp_path: Path, half: str) -> None:
    document = diseased.audit()
    shutil.copytree(DISEASED, tmp_path / "repaired")
    other = place_of(tmp_path, "repaired")
    other.repair(None)
    for base in (687, 1231):
        shutil.copy(object_of(other, base, "indexes"), object_of(diseased, base, "indexes"))
        if half != "the snapshot is appended":
            shutil.copy(object_of(other, base, "rsm-manifest"), object_of(diseased, base, "rsm-manifest"))
    found = diseased.repair(document)
    bases = [1805, 2430] if half != "the snapshot is appended" else [687, 1231, 1805, 2430]
    assert results(found) == [(base, RepairAction.REPAIRED, verdict) for base, _, verdict in results(found)]
    assert [each.start_offset for each in found.copies] == bases
    assert files(Path(diseased.root)) == files(Path(other.root))
    assert exit_code_of(found.findings) == 0
    again = diseased.repair(document)
    assert (again.copies, exit_code_of(again.findings)) == ([], 0)


@pytest.mark.parametrize("base", [0, 687, 1805, 3017])
def test_damage_has_the_same_result_and_reasons(diseased: Place, tmp_path: Path, base: int) -> None:
    path = object_of(diseased, base, "log")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    shutil.copytree(diseased.root, tmp_path / "without")
    other = place_of(tmp_path, "without")
    found, expected = diseased.repair(diseased.audit()), other.repair(None)
    assert [(each.start_offset, each.action, each.reason) for each in found.copies] == [
        (each.start_offset, each.action, each.reason) for each in expected.copies
    ]
    assert {each.reason for each in found.copies} != {""} or base == 3017
    assert (codes(found), found.status) == (codes(expected), expected.status)
    assert files(Path(diseased.root)) == files(Path(other.root))


def edited(document: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    members = json.loads(document.read_text())
    edit(members)
    path = document.with_name("edited.json")
    path.write_text(json.dumps(members))
    return path


def test_a_document_that_lacks_the_objects(diseased: Place) -> None:
    def older(members: dict[str, Any]) -> None:
        for copy in members["partitions"][0]["copies"]:
            for name in ("objects", "is_exact", "is_damaged", "right_sha256", "unproven_reason"):
                del copy[name]

    before = files(Path(diseased.root))
    found = diseased.repair(edited(diseased.audit(), older))
    assert {each.action for each in found.copies} == {RepairAction.REFUSED}
    assert all("whose program was older" in each.reason for each in found.copies)
    assert files(Path(diseased.root)) == before


@pytest.mark.parametrize("suffix", ["log", "indexes", "rsm-manifest"])
def test_a_document_that_lacks_one_object_of_each_copy(diseased: Place, suffix: str) -> None:
    """Whether that object has changed is unknown."""

    def without(members: dict[str, Any]) -> None:
        for copy in members["partitions"][0]["copies"]:
            copy["objects"] = [each for each in copy["objects"] if each["suffix"] != suffix]

    before = files(Path(diseased.root))
    document = edited(diseased.audit(), without)
    for base in (687, 1231):
        touched(object_of(diseased, base, suffix))
    found = diseased.repair(document)
    assert RepairAction.REPAIRED not in {each.action for each in found.copies}
    assert files(Path(diseased.root)) == before


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_segments_are_read_some_at_a_time(diseased: Place, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(earlier_audit, "SEGMENTS_AT_ONCE", at_once)
    document = diseased.audit()
    counted = CountedStore()
    diseased.store = counted
    found = diseased.repair(document)
    assert {each.action for each in found.copies} == {RepairAction.REPAIRED}
    assert counted.segments() == {each.start_offset: 1 for each in found.copies}


def test_another_right_snapshot_is_refused(diseased: Place) -> None:
    """The replay must give the snapshot that the audit proved."""

    def wrong(members: dict[str, Any]) -> None:
        members["partitions"][0]["copies"][3]["right_sha256"] = "0" * 64

    found = diseased.repair(edited(diseased.audit(), wrong))
    actions = {each.start_offset: each.action for each in found.copies}
    assert actions[1805] is RepairAction.REFUSED
    assert f"expected SHA-256 {'0' * 64}, found" in next(each.reason for each in found.copies if each.start_offset == 1805)
    assert [actions[base] for base in (687, 1231)] == [RepairAction.REPAIRED] * 2


@pytest.mark.parametrize(
    ("edit", "reason", "error"),
    [
        (lambda each: each.update(schema="snaprebuild.tier-audit/2"), "is of another version", UsageError),
        (lambda each: each.update(location="/elsewhere"), "is the audit of another store", RefusedError),
        (lambda each: each["partitions"][0].update(topic_id="A" * 22), "is the audit of another cluster", RefusedError),
        (lambda each: each.update(level="structure"), "does not replay every segment", UsageError),
        (lambda each: each.update(level="reachable"), "does not replay every segment", UsageError),
        (lambda each: each["partitions"][0]["copies"][0].update(right_sha256="x"), "is damaged: partitions", UsageError),
        (lambda each: each.pop("partitions"), "expected a member partitions, found none", UsageError),
        (lambda each: each.update(elapsed_seconds=1e308), "is damaged: elapsed_seconds", UsageError),
        (lambda each: each["partitions"].append(each["partitions"][0]), "is damaged: partitions: expected each once", UsageError),
        (
            lambda each: each["partitions"][0]["copies"].append({**each["partitions"][0]["copies"][3], "verdict": "right"}),
            "is damaged: copies of .*: expected each once",
            UsageError,
        ),
    ],
)
def test_a_document_that_is_not_taken(
    diseased: Place, edit: Callable[[dict[str, Any]], None], reason: str, error: type[Exception]
) -> None:
    document = edited(diseased.audit(), edit)
    with pytest.raises(error, match=reason):
        diseased.repair(document)


def test_what_a_limit_left_unread_stays_unrepaired(diseased: Place) -> None:
    document = diseased.audit()
    limited = json.loads(document.read_text())
    for copy in limited["partitions"][0]["copies"][3:]:
        copy.update(verdict="not-read", reason="it was not read: max_read_bytes", right_sha256=None, is_exact=False)
    limited["findings"].append(
        {"code": "tier-limit", "severity": "finding", "path": diseased.root, "message": "limit", "offset": None, "reason": None}
    )
    limited["unread_paths"].append(diseased.root)
    document.write_text(json.dumps(limited))
    found = diseased.repair(document)
    assert [(each.start_offset, each.action) for each in found.copies] == [
        (687, RepairAction.REPAIRED),
        (1231, RepairAction.REPAIRED),
    ]
    assert exit_code_of(found.findings) == 1
    assert found.status.unproven == 3


def test_newer_copies_are_named_and_no_alarm(diseased: Place) -> None:
    hidden = {path: path.read_bytes() for path in Path(diseased.root).rglob(f"{3017:020d}-*")}
    for path in hidden:
        path.unlink()
    document = diseased.audit()
    for path, data in hidden.items():
        path.write_bytes(data)
    found = diseased.repair(document)
    assert {each.action for each in found.copies} == {RepairAction.REPAIRED}
    assert exit_code_of(found.findings) == 0
    assert [each.message for each in found.findings if each.code == "tier-waits"] == [
        "1 copy is newer than the audit, and not judged"
    ]


def test_copies_that_were_not_selected_are_a_finding(diseased: Place) -> None:
    """They were there before the audit."""

    def without_last(members: dict[str, Any]) -> None:
        del members["partitions"][0]["copies"][-1]
        members["run"]["at_ms"] += 3_600_000

    found = diseased.repair(edited(diseased.audit(), without_last))
    assert {each.action for each in found.copies} == {RepairAction.REPAIRED}
    assert exit_code_of(found.findings) == 1
    assert found.status.unproven == 1
    (finding,) = found.findings
    assert finding.message.startswith("1 copy is not in the audit")


def test_a_copy_below_that_retention_deleted(diseased: Place) -> None:
    """The right snapshots are still proven, and no snapshot is there on which they can be replayed."""
    document = diseased.audit()
    for path in Path(diseased.root).rglob(f"{0:020d}-*"):
        path.unlink()
    found = diseased.repair(document)
    assert {each.action for each in found.copies} == {RepairAction.REFUSED}
    assert "no copy below 687 has a snapshot" in found.copies[0].reason


def test_the_time_grows_with_the_count_of_wrong_copies(diseased: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """All copies of a partition are looked at a few times, not once more for each wrong one."""
    document = diseased.audit()
    calls: Counter[str] = Counter()
    shared_from = repair._shared_from
    monkeypatch.setattr(repair, "_shared_from", lambda partition: (calls.update(["calls"]), shared_from(partition))[1])
    assert len(diseased.repair(document).copies) == 4
    assert calls["calls"] == 2
