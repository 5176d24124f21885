"""The two writes of a repair: killed before and after each call, with answers lost, and raced; the store is old or right, never worse."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from aiven_index_reader import INDEXES, entries_sha256, fetch_index
from faulty_store import FaultyStore
from manifests import AIVEN, READS

from snaprebuild.errors import OutcomeUnknownError, RefusedError, WriteFailedError
from snaprebuild.findings import exit_code_of
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.local.journal_file import JournalFile
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.private_keys import PrivateKeys
from snaprebuild.storage.s3 import store as s3
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import S3Settings, Store, WholeObject
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.audit.partition_audit import SnapshotVerdict
from snaprebuild.tier.remote_store import StoreAccess
from snaprebuild.tier.repair.repair import StoreRepair, tier_repair
from snaprebuild.tier.repair.repaired_copy import RepairAction
from snaprebuild.tier.repair.undo import StoreUndo, load_repair_receipt, undo_repairs

PEM = AIVEN / "keys" / "key1.private.pem"
CLOCK = Clock(1_795_132_800_000, 86_400_000)
"""Before the records, so that no one has expired."""

NAMES = ("diseased-zstd", pytest.param("diseased-encrypted", marks=pytest.mark.night))
"""The calls are the same; keys of RSA take their time."""


class Killed(BaseException):
    """A signal that no one survives."""


@dataclass
class Dying:
    """A store that ends the run at one of its calls that replace; anything else is the real one's.

    Attributes:
        base: the real one.
        at: number of the call.
        how: ``before`` it, ``after`` it, or after a replacement with its answer lost.
        calls: so far.
    """

    base: Store
    at: int
    how: str
    calls: int = 0

    def _call(self, name: str, work: Callable[[], Any]) -> Any:
        self.calls += 1
        is_due = self.calls - 1 == self.at
        if is_due and self.how == "before":
            raise Killed
        result = work()
        if is_due and self.how == "after":
            raise Killed
        if is_due and self.how == "lost" and name == "replace":
            raise OutcomeUnknownError("nobody tells")
        return result

    def read_whole(self, location: str, bytes_max: int) -> WholeObject | None:
        found: WholeObject | None = self._call("read_whole", lambda: self.base.read_whole(location, bytes_max))
        return found

    def prepare_replacing(self, directory: str) -> None:
        self._call("prepare_replacing", lambda: self.base.prepare_replacing(directory))

    def replace(self, location: str, data: bytes, was: WholeObject) -> None:
        self._call("replace", lambda: self.base.replace(location, data, was))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)


@dataclass
class Place:
    """A store with the objects of a variant."""

    name: str
    store: Store
    root: str
    get: Callable[[str], bytes]
    undo_files: Iterator[Path] = field(default_factory=lambda: iter(()))

    @property
    def segments(self) -> list[dict[str, Any]]:
        found = READS["variants"][self.name]["segments"]
        assert isinstance(found, list)
        return found

    def repair(self) -> StoreRepair:
        undo = str(next(self.undo_files))
        return tier_repair(
            StoreAccess(StorePath(self.store, self.root), private_keys=PrivateKeys.of([str(PEM)])),
            Run(clock=CLOCK, jobs=1),
            allow_unverified=True,
            undo_path=undo,
        )

    def verdicts(self) -> dict[int, SnapshotVerdict]:
        audit = tier_audit(
            StoreAccess(StorePath(self.store, self.root), private_keys=PrivateKeys.of([str(PEM)])), Run(clock=CLOCK, jobs=1)
        )
        return {copy.copy.start_offset: copy.verdict for partition in audit.partitions for copy in partition.copies}

    def is_right(self) -> list[bool]:
        """Whether each segment is right, by an independent reader; a segment that is neither old nor right fails."""
        found = []
        for segment in self.segments:
            read = {index: fetch_index(self.get, segment["key"], index, PEM.read_bytes()) for index in INDEXES}
            snapshot = read["producerSnapshot"]
            assert snapshot is not None
            is_right = bool(snapshot) and entries_sha256(snapshot) == segment["right_snapshot"]["entries_sha256"]
            old = segment["golden"]["producer_snapshot"]["size"]
            assert is_right or (len(snapshot) == old and segment["disease"] is not None)
            for index, golden in (("offset", "offset"), ("timestamp", "timestamp"), ("leaderEpoch", "leader_epoch")):
                assert len(read[index] or b"") == segment["golden"][golden]["size"]
            found.append(is_right)
        return found


def local_place(name: str, to: Path) -> Place:
    root = Path(shutil.copytree(AIVEN / READS["variants"][name]["store"], to / "store"))
    files = (to / f"undo-{number}.jsonl" for number in count())
    return Place(name, LOCAL, str(root), lambda key: (root / key).read_bytes(), files)


def dying(monkeypatch: pytest.MonkeyPatch, place: Place, at: int, how: str) -> Dying:
    store = Dying(place.store, at, how)
    monkeypatch.setattr(place, "store", store)
    return store


@pytest.mark.full
@pytest.mark.parametrize("how", ["before", "after", "lost"])
@pytest.mark.parametrize("name", NAMES)
def test_killed_at_each_call(name: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = sum(segment["disease"] is not None for segment in READS["variants"][name]["segments"])
    seen: set[int] = set()
    for at in count():
        place = local_place(name, tmp_path / str(at))
        before = place.verdicts()
        with monkeypatch.context() as patch:
            made = dying(patch, place, at, how)
            try:
                result = place.repair()
            except Killed:
                assert how != "lost"
            else:
                unknown = [each for each in result.copies if each.action is RepairAction.UNKNOWN]
                assert how == "lost" or made.calls <= at
                assert exit_code_of(result.findings) == (5 if unknown else 0)
                assert len(unknown) <= 1
        right = place.is_right()
        seen.add(sum(right))
        after = place.verdicts()
        assert all(after[start] in (verdict, SnapshotVerdict.RIGHT) for start, verdict in before.items())
        again = place.repair()
        assert exit_code_of(again.findings) == 0
        assert all(place.is_right())
        assert set(place.verdicts().values()) == {SnapshotVerdict.RIGHT}
        if at >= made.calls:
            assert made.calls == 1 + 6 * wrong
            break
    assert len(seen) > 1


def undone(store: Store, receipt: str) -> StoreUndo:
    root, announced = load_repair_receipt(receipt)
    return undo_repairs(StorePath(store, root), announced, receipt, dry_run=False)


@pytest.mark.parametrize("at", [2, 3, 6])
def test_what_undo_makes_of_a_killed_run(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = local_place("diseased-encrypted", tmp_path)
    before = {segment["key"]: place.get(f"{segment['key']}.rsm-manifest") for segment in place.segments}
    with monkeypatch.context() as patch:
        dying(patch, place, at, "after")
        with pytest.raises(Killed):
            place.repair()
    undo = tmp_path / "undo-0.jsonl"
    if undo.exists():
        result = undone(LOCAL, str(undo))
        assert exit_code_of(result.findings) == 0
        assert len(result.copies) == 1
    else:
        assert at < 3, "announced before the first write"
    assert {key: place.get(f"{key}.rsm-manifest") for key in before} == before


def test_without_an_undo_file_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = local_place("diseased-zstd", tmp_path)
    before = {path: path.read_bytes() for path in Path(place.root).rglob("*") if path.is_file()}

    def full(*_: object) -> None:
        raise WriteFailedError("cannot be written: No space left on device")

    monkeypatch.setattr(JournalFile, "append", full)
    result = place.repair()
    assert {each.action for each in result.copies} == {RepairAction.FAILED}
    assert exit_code_of(result.findings) == 5
    assert {path: path.read_bytes() for path in before} == before


def test_a_device_that_is_full_at_the_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repaired copies are reported all the same."""
    place, append = local_place("diseased-encrypted", tmp_path), JournalFile.append

    def full(journal: JournalFile, line: str, *, sync: bool = True) -> None:
        if '"step":"end"' in line:
            raise WriteFailedError("cannot be written: No space left on device")
        append(journal, line, sync=sync)

    monkeypatch.setattr(JournalFile, "append", full)
    result = place.repair()
    assert {each.action for each in result.copies} == {RepairAction.REPAIRED}
    assert (exit_code_of(result.findings), result.receipt) == (5, str(tmp_path / "undo-0.jsonl"))
    assert all(place.is_right())


@pytest.mark.full
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("how", ["before", "after", "lost"])
def test_an_undo_that_is_killed(how: str, at: int, tmp_path: Path) -> None:
    """At its probe, its read and its write: the manifest is that of the repair or the old one, and a second undo ends right."""
    place = local_place("diseased-encrypted", tmp_path)
    before = {segment["key"]: place.get(f"{segment['key']}.rsm-manifest") for segment in place.segments}
    place.repair()
    undo = str(tmp_path / "undo-0.jsonl")
    store = cast("Store", Dying(LOCAL, at, how))
    try:
        result = undone(store, undo)
    except Killed:
        assert how != "lost"
    else:
        assert [each.action.value for each in result.copies] == ["unknown" if at == 2 else "restored"]
    place.is_right()
    undone(LOCAL, undo)
    assert {key: place.get(f"{key}.rsm-manifest") for key in before} == before


@dataclass
class Overtaken(Dying):
    """Lets another run go first."""

    other: Callable[[], object] = lambda: None

    def _call(self, name: str, work: Callable[[], Any]) -> Any:
        self.calls += 1
        if self.calls - 1 == self.at:
            self.other()
        return work()


def race(place: Place, at: int) -> tuple[StoreRepair, StoreRepair]:
    """One run that is overtaken by a whole other one at a call; both results."""
    results: list[StoreRepair] = []

    store = Overtaken(place.store, at, "", other=lambda: results.append(place.repair()))
    return replace(place, store=cast("Store", store)).repair(), results[0]


def check_race(place: Place, slow: StoreRepair, fast: StoreRepair) -> None:
    """The one who came first to an object did it; the other says so, and has not touched it."""
    assert all(place.is_right())
    assert set(place.verdicts().values()) == {SnapshotVerdict.RIGHT}
    for one in slow.copies:
        assert one.action in (RepairAction.REPAIRED, RepairAction.REFUSED)
        others = [each.action for each in fast.copies if each.segment_id == one.segment_id]
        assert RepairAction.REPAIRED in (one.action, *others)
        if one.action is RepairAction.REFUSED:
            assert "changed since" in one.reason
    refused = any(each.action is RepairAction.REFUSED for each in slow.copies)
    assert exit_code_of(slow.findings) == (3 if refused else 0)
    assert exit_code_of(fast.findings) == 0


@pytest.mark.full
@pytest.mark.parametrize("at", range(7))
def test_two_runs(at: int, tmp_path: Path) -> None:
    place = local_place("diseased-zstd", tmp_path)
    check_race(place, *race(place, at))


@pytest.mark.parametrize("name", ["plain-chunks-api4", "epochs", "zstd-heuristic", "encrypted-zstd"])
def test_every_layout(name: str, tmp_path: Path) -> None:
    """Snapshots of no bytes: compressed, encrypted, without a transaction index, of the API of Kafka 4."""
    place = local_place(name, tmp_path)
    starts: dict[str, int] = {}
    for segment in place.segments:
        path = Path(place.root) / f"{segment['key']}.rsm-manifest"
        manifest = json.loads(path.read_text())
        manifest["segmentIndexes"]["producerSnapshot"]["size"] = 0
        path.write_text(json.dumps(manifest, separators=(",", ":")))
        known = segment["metadata"]
        starts[known["topic_id"]] = min(known["start_offset"], starts.get(known["topic_id"], known["start_offset"]))
    result = place.repair()
    repaired = {each.segment_id for each in result.copies if each.action is RepairAction.REPAIRED}
    assert len(result.copies) == len(place.segments)
    for segment in place.segments:
        known = segment["metadata"]
        # Two segments of one variant are not next to each other: nothing is proven up to the end of the first, nor after the gap.
        is_proven = starts[known["topic_id"]] == 0 and name != "zstd-heuristic"
        assert (known["segment_id"] in repaired) == is_proven
        if is_proven:
            read = {index: fetch_index(place.get, segment["key"], index, PEM.read_bytes()) for index in INDEXES}
            assert read["producerSnapshot"] is not None
            assert entries_sha256(read["producerSnapshot"]) == segment["right_snapshot"]["entries_sha256"]


def test_a_copy_below_two_prefixes(tmp_path: Path) -> None:
    """With a backup next to the objects nothing shows which of them brokers read."""
    place = local_place("diseased-encrypted", tmp_path)
    before = {path: path.read_bytes() for path in Path(place.root).rglob("*") if path.is_file()}
    shutil.copytree(Path(place.root) / "tier", Path(place.root) / "backup")
    result = place.repair()
    assert [each.action for each in result.copies] == [RepairAction.REFUSED]
    assert "are below several prefixes" in result.copies[0].reason
    assert all(path.read_bytes() == data for path, data in before.items())


# ---------------------------------------------------------------------------------------------------------------- object stores


def remote_place(name: str, faulty: FaultyStore, to: Path) -> Place:
    local = AIVEN / READS["variants"][name]["store"]
    faulty.objects |= {f"bucket/{path.relative_to(local)}": path.read_bytes() for path in local.rglob("*") if path.is_file()}
    store = S3Store(S3Settings(endpoint_url=faulty.endpoint, path_style=True))
    files = (to / f"undo-{number}.jsonl" for number in count())
    return Place(name, store, "s3://bucket", lambda key: faulty.objects[f"bucket/{key}"], files)


def nth_put(number: int, fault: str) -> Callable[[str, str, dict[str, str]], str]:
    """The fault of one PUT of an object of the tier."""
    puts = iter(range(1000))

    def choose(method: str, path: str, headers: dict[str, str]) -> str:
        is_due = method == "PUT" and s3.PROBE_NAME not in path and next(puts) == number
        return fault if is_due else ""

    return choose


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "action", "code"),
    [("412", RepairAction.REFUSED, 3), ("403", RepairAction.FAILED, 5), ("another", RepairAction.REFUSED, 3)],
)
@pytest.mark.parametrize("number", range(2))
def test_a_write_that_fails(number: int, fault: str, action: RepairAction, code: int, faulty: FaultyStore, tmp_path: Path) -> None:
    place = remote_place("diseased-encrypted", faulty, tmp_path)
    faulty.choose = nth_put(number, fault)
    result = place.repair()
    assert [each.action for each in result.copies] == [action]
    assert exit_code_of(result.findings) == code
    if fault == "another":
        return  # these are bytes of another program
    assert not all(place.is_right())
    faulty.choose = lambda *_: ""
    assert exit_code_of(place.repair().findings) == 0
    assert all(place.is_right())


def test_an_outcome_that_is_unknown(faulty: FaultyStore, tmp_path: Path) -> None:
    place = remote_place("diseased-encrypted", faulty, tmp_path)
    faulty.choose = lambda method, path, _: "500" if method == "PUT" and path.endswith(".rsm-manifest") else ""
    result = place.repair()
    assert [each.action for each in result.copies] == [RepairAction.UNKNOWN]
    assert exit_code_of(result.findings) == 5
    faulty.choose = lambda *_: ""
    again = place.repair()
    assert [each.appended_bytes for each in again.copies if each.place is not None] == [0]
    assert all(place.is_right())


def test_a_store_that_ignores_conditions_is_refused(faulty: FaultyStore, tmp_path: Path) -> None:
    place = remote_place("diseased-zstd", faulty, tmp_path)
    before = dict(faulty.objects)
    faulty.ignores_if_match = True
    with pytest.raises(RefusedError, match="the store ignores If-Match"):
        place.repair()
    assert faulty.objects == before
    assert not (tmp_path / "undo-0.jsonl").exists()


def test_a_copy_that_brokers_delete_meanwhile(faulty: FaultyStore, tmp_path: Path) -> None:
    """Nothing of it comes back."""
    for at in (3, 4):
        place = remote_place("diseased-zstd", faulty, tmp_path / str(at))
        (wrong,) = [segment["key"] for segment in place.segments if segment["disease"] is not None][:1]

        def delete(wrong: str = wrong) -> None:
            for suffix in ("log", "indexes", "rsm-manifest"):
                faulty.objects.pop(f"bucket/{wrong}.{suffix}", None)

        overtaken = Overtaken(place.store, at, "", other=delete)
        result = replace(place, store=cast("Store", overtaken)).repair()
        assert result.copies[0].action is (RepairAction.REFUSED if at == 3 else RepairAction.UNKNOWN)
        assert not [key for key in faulty.objects if key.startswith(f"bucket/{wrong}")]


def test_a_dry_run_sends_nothing_that_writes(faulty: FaultyStore, tmp_path: Path) -> None:
    place = remote_place("diseased-zstd", faulty, tmp_path)
    result = tier_repair(
        StoreAccess(StorePath(place.store, place.root), private_keys=PrivateKeys.of([str(PEM)])),
        Run(clock=CLOCK, jobs=1),
        allow_unverified=True,
    )
    assert {each.action for each in result.copies} == {RepairAction.WOULD_REPAIR}
    assert set(faulty.methods()) == {"GET"}
