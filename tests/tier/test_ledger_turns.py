"""``tier audit --ledger``: audits in turns give what one whole audit gives, each byte is read once, and a killed run loses nothing else.

Faults and healthy forms side by side, under random limits and interruptions. The reference is the audit without a ledger.
"""

import random
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from budgets import TIER
from generated_stores import DAY_MS, FAULTS, Entries, Store, generated_store, spoilt
from stores_like_objects import ObjectLikeStore, copies_of

from snaprebuild.errors import HeldError, ReadFailedError
from snaprebuild.findings import Severity, exit_code_of
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.store import FileIdentity, OpenBytes, S3Settings
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.audit.partition_audit import ProofKind, SnapshotVerdict, StoreAudit
from snaprebuild.tier.ledger.ledger_file import AuditLedger
from snaprebuild.tier.remote_store import StoreAccess

GOOD = (SnapshotVerdict.RIGHT, SnapshotVerdict.CONSISTENT)
TURNS_MAX = 60


class StoppedError(BaseException):
    """Ends a run at once, as an interrupt does."""


@dataclass(frozen=True)
class CountingStore(ObjectLikeStore):
    """A run ends when it has sent so many requests. The file of one name cannot be opened."""

    stops_at: int | None = None
    fails_at: str | None = None

    def request(self, location: str) -> None:
        if self.stops_at is not None and len(self.requests) >= self.stops_at:
            raise StoppedError
        super().request(location)

    def open_bytes(
        self, location: str, identity: FileIdentity | None = None, deadline: float | None = None, may_grow: bool = False
    ) -> OpenBytes:
        source = super().open_bytes(location, identity, deadline, may_grow)
        if Path(location).name == self.fails_at:
            source.close()
            raise ReadFailedError("cannot be read: Permission denied", path=location, errno=13)
        return source


@dataclass
class Turns:
    """A store and its ledger."""

    root: Path
    ledger: Path
    as_of_ms: int
    requests: Counter[str] = field(default_factory=Counter)

    def whole(self) -> StoreAudit:
        """One audit, without a ledger."""
        return self._audit(CountingStore(), None, None)

    def turn(self, max_read_bytes: int | None = None, stops_at: int | None = None, fails_at: str | None = None) -> StoreAudit:
        """One turn. Its requests are counted, also those of a turn that is stopped."""
        store = CountingStore(stops_at=stops_at, fails_at=fails_at)
        try:
            with AuditLedger.open(str(self.ledger), str(self.root)) as ledger:
                return self._audit(store, ledger, max_read_bytes)
        finally:
            self.requests.update(Path(each).name for each in store.requests)

    def _audit(self, store: CountingStore, ledger: AuditLedger | None, max_read_bytes: int | None) -> StoreAudit:
        stores = S3Settings(run=secrets.token_hex(8), max_read_bytes=max_read_bytes)
        run = Run(clock=Clock(self.as_of_ms, DAY_MS), jobs=1, stores=stores)
        return tier_audit(StoreAccess(StorePath(store, str(self.root))), run, ledger=ledger)


def verdicts(audit: StoreAudit) -> list[SnapshotVerdict]:
    return [copy.verdict for copy in copies_of(audit)]


def codes(audit: StoreAudit) -> list[tuple[str, Severity, int | None]]:
    """Findings without notes, which a limit adds."""
    return sorted((each.code, each.severity, each.offset) for each in audit.findings if each.severity > Severity.NOTE)


def written(path: Path, store: Store, snapshots: list[Entries], deleted: int, hole: int | None) -> Turns:
    root = path / "store"
    shutil.rmtree(root, ignore_errors=True)
    (path / "ledger").unlink(missing_ok=True)
    store.write(root, snapshots, deleted)
    if hole is not None:
        for file in sorted(root.rglob(f"{store.bases[hole]:020d}-*")):
            file.unlink()
    return Turns(root, path / "ledger", store.as_of_ms)


def proven_of(audit: StoreAudit) -> int:
    assert audit.ledger is not None
    return audit.ledger.proven


def in_turns(turns: Turns, rng: random.Random, largest: int, *, is_stopped: bool) -> tuple[StoreAudit, int]:
    """Turns under random limits until a round is over. Some are stopped, or lose the end of the ledger, as a power failure may."""
    stops = 0
    round_began_ms: int | None = None
    for _ in range(TURNS_MAX):
        before = turns.requests.copy()
        stops_at = rng.randrange(60) if is_stopped and rng.random() < 0.5 else None
        try:
            audit = turns.turn(rng.randrange(largest, 4 * largest), stops_at)
        except StoppedError:
            stops += 1
            size = turns.ledger.stat().st_size
            with turns.ledger.open("r+b") as file:
                file.truncate(size - rng.randrange(40) if size > 1000 else size)
            continue
        assert audit.ledger is not None
        if round_began_ms not in (None, audit.ledger.round_began_ms):
            # A run had read the last segment of the round before it was stopped: this turn is the first of the next round.
            # Of its requests those count that the round before it still needed.
            turns.requests = before + Counter(turns.requests.keys() - before.keys())
            return audit, stops
        if not audit.ledger.due_segments:
            return audit, stops
        round_began_ms = audit.ledger.round_began_ms
    raise AssertionError("the round does not end")


def needed_bytes(root: Path) -> int:
    """The most that one segment needs with the files of its copy."""
    sizes: Counter[str] = Counter()
    for path in root.rglob("*"):
        sizes[path.name[:20]] += path.stat().st_size if path.is_file() else 0
    return max(sizes.values())


FORMS = [(0, None), (2, None), (0, 3)] if TIER == "quick" else [(0, None), (2, None), (0, 3), (1, 4), (2, 4)]
"""Segments that retention deleted, and a segment that is gone from the middle."""
FAULTS_TRIED = (None, "a silent producer is missing", "older sequence", "empty") if TIER == "quick" else (None, *FAULTS)


@pytest.mark.parametrize(("deleted", "hole"), FORMS)
@pytest.mark.parametrize("fault", FAULTS_TRIED)
def test_turns_give_what_one_audit_gives_and_read_each_byte_once(
    tmp_path: Path, fault: str | None, deleted: int, hole: int | None
) -> None:
    for seed in {"quick": (1,), "full": range(3), "night": range(12)}[TIER]:
        store = generated_store(seed, has_transactions=bool(seed % 2), expires=seed == 2)
        snapshots = store.states if fault is None else spoilt(store, 4, fault)
        turns = written(tmp_path, store, snapshots, deleted, hole)
        whole = turns.whole()
        turns.turn()
        once = turns.requests
        turns = written(tmp_path, store, snapshots, deleted, hole)
        last, _ = in_turns(turns, random.Random(f"{seed} {fault} {deleted}"), needed_bytes(turns.root), is_stopped=False)
        reported = seed, fault, deleted, hole
        assert verdicts(last) == verdicts(whole), reported
        assert codes(last) == codes(whole), reported
        assert exit_code_of(last.findings) == exit_code_of(whole.findings), reported
        assert turns.requests == once, reported
        assert proven_of(last) == sum(verdict in GOOD for verdict in verdicts(whole)), reported


@pytest.mark.parametrize(("deleted", "hole"), FORMS)
def test_a_stopped_run_loses_what_it_was_reading_and_nothing_else(tmp_path: Path, deleted: int, hole: int | None) -> None:
    for seed in range({"quick": 2, "full": 4, "night": 40}[TIER]):
        store = generated_store(seed, has_transactions=bool(seed % 2))
        turns = written(tmp_path, store, store.states, deleted, hole)
        whole = turns.whole()
        turns.turn()
        once = turns.requests
        turns = written(tmp_path, store, store.states, deleted, hole)
        last, stops = in_turns(turns, random.Random(seed), needed_bytes(turns.root), is_stopped=True)
        assert verdicts(last) == verdicts(whole), seed
        assert codes(last) == codes(whole), seed
        again = turns.requests - once
        # A segment and the files next to it are read for one line of the ledger, and the end of the file is lost with another one.
        assert again.total() <= 10 * stops, (seed, again)
        assert set(turns.requests) == set(once), seed


def test_healthy_turns_exit_with_0(tmp_path: Path) -> None:
    store = generated_store(3, has_transactions=True)
    turns = written(tmp_path, store, store.states, 0, None)
    largest = needed_bytes(turns.root)
    found = [turns.turn(largest)]
    while found[-1].ledger is not None and found[-1].ledger.due_segments:
        assert exit_code_of(found[-1].findings) == 0
        assert [each.code for each in found[-1].findings] == ["tier-waits"]
        found.append(turns.turn(largest))
    counts = [proven_of(each) for each in found]
    assert counts == sorted(counts)
    assert counts[-1] == len(store.bases)
    assert len(found) > 3
    assert exit_code_of(found[-1].findings) == 0


def test_a_limit_below_the_first_segment_is_a_finding(tmp_path: Path) -> None:
    """Otherwise runs would do nothing for ever, with exit code 0."""
    store = generated_store(3)
    turns = written(tmp_path, store, store.states, 0, None)
    assert exit_code_of(turns.turn(100).findings) == 0  # the ends of segments were read
    audit = turns.turn(100)
    assert [(each.code, each.severity) for each in audit.findings] == [("tier-limit", Severity.FINDING)]


def test_a_fault_is_found_in_the_turn_that_reads_it_and_in_each_one_after(tmp_path: Path) -> None:
    store = generated_store(1)
    turns = written(tmp_path, store, spoilt(store, 1, "a writing producer is missing"), 0, None)
    exits = [exit_code_of(turns.turn(needed_bytes(turns.root)).findings) for _ in store.bases]
    assert exits[0] == 0
    assert set(exits[2:]) == {1}


def test_the_next_round_reads_first_what_was_read_first(tmp_path: Path) -> None:
    store = generated_store(3)
    turns = written(tmp_path, store, store.states, 0, None)
    turns.turn()
    since = turns.turn(needed_bytes(turns.root)).ledger
    assert since is not None
    assert since.proven == len(store.bases)
    turns.requests.clear()
    turns.turn(needed_bytes(turns.root))
    read = sorted(name for name in turns.requests if name.endswith(".log"))
    assert read[0] > f"{store.bases[0]:020d}", "the run before it has read the first one"
    later = turns.turn().ledger
    assert later is not None
    assert later.since_ms is not None
    assert since.since_ms is not None
    assert later.since_ms > since.since_ms


def test_a_new_copy_is_read_before_anything_is_read_again(tmp_path: Path) -> None:
    store = generated_store(3)
    turns = written(tmp_path, store, store.states, 0, None)
    newest = sorted(turns.root.rglob(f"{store.bases[-1]:020d}-*"))
    aside = tmp_path / "aside"
    aside.mkdir()
    for path in newest:
        path.rename(aside / path.name)
    turns.turn()
    for path in newest:
        (aside / path.name).rename(path)
    turns.requests.clear()
    audit = turns.turn(needed_bytes(turns.root))
    assert audit.ledger is not None
    assert next(name for name in turns.requests if name.endswith(".log")).startswith(f"{store.bases[-1]:020d}")
    assert verdicts(audit) == [SnapshotVerdict.RIGHT] * len(store.bases)
    assert proven_of(audit) == len(store.bases)


@pytest.mark.parametrize("kept", [1, 3])
def test_what_retention_deletes_makes_no_finding(tmp_path: Path, kept: int) -> None:
    """A lone copy is unproven for an audit that knows nothing of its past. Its earlier proof holds as long as its objects are the same."""
    store = generated_store(3)
    turns = written(tmp_path, store, store.states, 0, None)
    turns.turn()
    for base in store.bases[:-kept]:
        for path in turns.root.rglob(f"{base:020d}-*"):
            path.unlink()
    audit = turns.turn()
    assert set(verdicts(audit)) <= set(GOOD)
    assert (proven_of(audit), exit_code_of(audit.findings)) == (kept, 0)
    if kept == 1:
        assert verdicts(turns.whole()) == [SnapshotVerdict.UNPROVEN]
        assert copies_of(audit)[0].proof is ProofKind.EARLIER
        again = turns.turn()
        assert (proven_of(again), exit_code_of(again.findings)) == (1, 0)


def test_a_changed_copy_is_unproven_until_it_was_read_again(tmp_path: Path) -> None:
    store = generated_store(3)
    turns = written(tmp_path, store, store.states, 0, None)
    turns.turn()
    turns.turn(needed_bytes(turns.root))  # a round begins, of which most is left
    (snapshot,) = turns.root.rglob(f"{store.bases[4]:020d}-*.snapshot")
    data = snapshot.read_bytes()
    snapshot.unlink()
    snapshot.write_bytes(data)  # another file with the same bytes
    audit = turns.turn(1)
    assert proven_of(audit) == len(store.bases) - 1
    assert verdicts(audit)[4] is SnapshotVerdict.NOT_READ
    assert "tier-newly-unproven" in [each.code for each in audit.findings]
    assert exit_code_of(audit.findings) == 1
    turns.requests.clear()
    healed = turns.turn(needed_bytes(turns.root))
    assert next(name for name in turns.requests if name.endswith(".log")).startswith(f"{store.bases[4]:020d}")
    assert proven_of(healed) == len(store.bases)
    assert exit_code_of(healed.findings) == 0


def test_a_snapshot_that_is_not_proven_any_more_is_a_finding(tmp_path: Path) -> None:
    """A copy is gone from the middle: that is no retention, and what is above does not follow from what is below."""
    store = generated_store(3, has_transactions=True)
    turns = written(tmp_path, store, store.states, 0, None)
    turns.turn()
    for path in sorted(turns.root.rglob(f"{store.bases[5]:020d}-*")):
        path.unlink()
    audit = turns.turn()
    assert verdicts(audit)[5] is SnapshotVerdict.UNPROVEN
    found = [(each.code, each.offset) for each in audit.findings if each.code == "tier-newly-unproven"]
    assert found == [("tier-newly-unproven", store.bases[6])]
    assert exit_code_of(audit.findings) == 1


@pytest.mark.parametrize("failing", [0, 4, -1])
def test_a_failed_read_counts_until_the_segment_was_read_again(tmp_path: Path, failing: int) -> None:
    """The summary of an earlier round does not hide it, and a run whose limit allows no other try reports it too."""
    store = generated_store(3)
    turns = written(tmp_path, store, store.states, 0, None)
    turns.turn()
    (segment,) = turns.root.rglob(f"{store.bases[failing]:020d}-*.log")
    failed = turns.turn(fails_at=segment.name)
    later = turns.turn(max_read_bytes=1)
    assert exit_code_of(failed.findings) == 5
    assert exit_code_of(later.findings) == 5
    assert verdicts(later) == verdicts(failed)
    assert proven_of(later) == proven_of(failed) < len(store.bases)
    healed = turns.turn()
    assert proven_of(healed) == len(store.bases)
    assert exit_code_of(healed.findings) == 0


def test_a_failed_read_counts_next_to_a_new_copy_that_takes_the_limit(tmp_path: Path) -> None:
    store = generated_store(3)
    turns = written(tmp_path, store, store.states, 0, None)
    turns.turn()
    (segment,) = turns.root.rglob(f"{store.bases[6]:020d}-*.log")
    turns.turn(fails_at=segment.name)
    (changed,) = turns.root.rglob(f"{store.bases[2]:020d}-*.log")
    data = changed.read_bytes()
    changed.unlink()
    changed.write_bytes(data)  # another file with the same bytes
    audit = turns.turn(max_read_bytes=1)
    assert verdicts(audit)[6] is SnapshotVerdict.UNPROVEN
    assert exit_code_of(audit.findings) != 0


def test_one_run_at_a_time(tmp_path: Path) -> None:
    store = generated_store(3)
    turns = written(tmp_path, store, store.states, 0, None)
    turns.turn()
    with AuditLedger.open(str(turns.ledger), str(turns.root)), pytest.raises(HeldError) as error:
        turns.turn()
    assert error.value.path == str(turns.ledger)
    assert error.value.exit_code == 3


def test_the_file_does_not_grow_with_each_round(tmp_path: Path) -> None:
    store = generated_store(3)
    turns = written(tmp_path, store, store.states, 0, None)
    sizes = []
    for _ in range(8):
        turns.turn()
        sizes.append(turns.ledger.stat().st_size)
    assert max(sizes) < 3 * sizes[0]
    assert verdicts(turns.turn()) == verdicts(turns.whole())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ledger", "store"]


def _prefixes(size: int) -> Iterator[int]:
    step = 97 if TIER == "quick" else 7
    return iter(range(1, size, step))


def test_each_beginning_of_a_ledger_is_one(tmp_path: Path) -> None:
    """A run that is killed leaves a beginning of what it would have written."""
    store = generated_store(3)
    turns = written(tmp_path, store, store.states, 0, None)
    whole = turns.turn()
    data = turns.ledger.read_bytes()
    header = data.index(b"\n") + 1
    for size in _prefixes(len(data)):
        if size < header:
            continue  # the file gets its name with this line
        turns.ledger.write_bytes(data[:size])
        with AuditLedger.open(str(turns.ledger), str(turns.root)) as ledger:
            assert len(ledger.copies) <= len(store.bases)
        assert data.startswith(turns.ledger.read_bytes())
    turns.ledger.write_bytes(data[: len(data) // 2])
    assert verdicts(turns.turn()) == verdicts(whole)
