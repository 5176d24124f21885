"""The level ``reachable``: what one window of remote storage shows about the snapshots that a follower may still start from.

A verdict on a window is held against what a simulated broker held and saved.
"""

import random
import shutil
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
from budgets import TIER
from log_dirs import batch, snapshot_bytes
from manifests import FIXTURES
from msgspec.structs import replace
from replays import Case, case_of
from simulated_broker import EXPIRATION_MS, loaded
from tier_example import MS, written
from tiers import Copy, write_tier

from formats.partition.producer_snapshot import ProducerEntry
from formats.remote.remote_log_metadata import TopicIdPartition
from snaprebuild.errors import UsageError
from snaprebuild.findings import Severity
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.storage import thread_pool
from snaprebuild.storage.local.store import LocalStore
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit import window_task
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.audit.partition_audit import WRONG, SnapshotVerdict, StoreAudit
from snaprebuild.tier.audit.window import LocalStarts, read_local_starts
from snaprebuild.tier.remote_store import StoreAccess

REMOTE, LOGS = FIXTURES / "tiered-local" / "remote", str(FIXTURES / "tiered-local" / "logs")


def audited(remote: Path, clock: Clock, local_start: int | None, topic: str = "t") -> StoreAudit:
    starts = LocalStarts() if local_start is None else read_local_starts([f"{topic}-0={local_start}"], (), Run())
    return tier_audit(
        StoreAccess(StorePath(LocalStore(), str(remote))), Run(clock=clock, jobs=1), level=AuditLevel.REACHABLE, local_starts=starts
    )


def write_case(case: Case, remote: Path, entries: list[list[ProducerEntry]]) -> Path:
    """Its segments as copies, with these snapshots."""
    copies = [
        Copy(segment.base_offset, segment.data, ((0, 0),), snapshot_bytes(found), max(segment.largest_timestamp, 0))
        for segment, found in zip(case.broker.segments[case.deleted :], entries, strict=True)
    ]
    return write_tier(remote, "t", 0, copies)


SEEDS = 250 if TIER == "night" else 125


@pytest.mark.full
def test_what_is_called_right_is_right_and_what_is_called_wrong_is_wrong(tmp_path: Path) -> None:
    """The logs are those of a simulated broker. A snapshot may be spoilt. The window may leave a question open, but it never gives
    a wrong answer."""
    reached: Counter[str] = Counter()
    for seed in range(SEEDS):
        case, chance = case_of(seed), random.Random(seed)
        ends = case.ends
        live = [list(case.live(offset).values()) for offset in ends]
        entries = [list(each) for each in live]
        ill = chance.randrange(len(ends)) if chance.random() < 0.6 else None
        if ill is not None:
            entries[ill] = spoilt(entries[ill], chance)
        remote = write_case(case, tmp_path / str(seed), entries)
        local_start = chance.choice([None, *ends])
        audit = audited(remote, Clock(case.as_of_ms, EXPIRATION_MS), local_start)
        (partition,) = audit.partitions
        first = ends[-1] if local_start is None else min((each for each in ends if each >= local_start), default=0)
        for number, copy in enumerate(partition.copies):
            reported, offset = (seed, copy.copy.start_offset, copy.reason), ends[number]
            passed_over = SnapshotVerdict.REACH_UNKNOWN if local_start is None else SnapshotVerdict.UNREACHABLE
            assert copy.verdict is not passed_over or offset < first, reported
            assert offset >= first or copy.verdict in (passed_over, SnapshotVerdict.SUSPECT, SnapshotVerdict.CORRUPT), reported
            if copy.verdict is SnapshotVerdict.RIGHT:
                loads = loaded(entries[number], case.as_of_ms)
                assert loads in (loaded(live[number], case.as_of_ms), loaded(case.truth(offset).values(), case.as_of_ms)), reported
            if copy.verdict in WRONG:
                assert entries[number] != live[number], reported
            if copy.verdict is SnapshotVerdict.UNPROVEN and partition.replayed_from_offset:
                assert "--level full replays" in copy.reason or "records deleted below" in copy.reason, reported
            assert copy.verdict is not SnapshotVerdict.NOT_READ, reported
            if partition.replayed_from_offset and offset >= first:
                reached[copy.verdict.value] += 1
                reached["ill and " + copy.verdict.value] += number == ill
        if partition.replayed_from_offset is not None and partition.replayed_from_offset > case.bases[0]:
            reached["window"] += 1
            assert partition.read_bytes < sum(len(segment.data) for segment in case.broker.segments[case.deleted :])
        shutil.rmtree(remote)
    assert reached["window"] > 60, reached
    assert reached["right"] > 60, reached
    assert reached["unproven"] > 12, reached
    assert reached["ill and right"] < reached["ill and wrong"] + reached["ill and missing-producers"] + reached["ill and unproven"]


def spoilt(entries: list[ProducerEntry], chance: random.Random) -> list[ProducerEntry]:
    """One entry is missing, or not what it was; or all of them are gone."""
    if not entries:
        return [ProducerEntry(1, 0, 0, 0, 0, 1, -1, -1)]
    entries = list(entries)
    place = chance.randrange(len(entries))
    entry = entries[place]
    match chance.randrange(6):
        case 0:
            return []
        case 1:
            del entries[place]
        case 2:
            entries[place] = replace(entry, last_sequence=entry.last_sequence + 1)
        case 3:
            opened = -1 if entry.current_txn_first_offset >= 0 else 0
            entries[place] = replace(entry, current_txn_first_offset=opened)
        case 4:
            entries[place] = replace(entry, coordinator_epoch=entry.coordinator_epoch + 1)
        case 5:
            entries[place] = replace(entry, epoch=entry.epoch + 1)
    return entries


def test_a_log_that_lost_its_state_below_is_not_called_right(tmp_path: Path) -> None:
    """Where all snapshots but the last have no bytes, no one vouches for it."""
    for seed in range(1000):
        case = case_of(seed, may_delete=False)
        if case.window > 1 and case.live(case.ends[-1]):
            break
    entries = [list(case.live(offset).values()) for offset in case.ends]
    remote = write_case(case, tmp_path / "remote", entries)
    clock = Clock(case.as_of_ms, EXPIRATION_MS)
    for path in sorted(remote.rglob("*.snapshot"))[:-1]:
        path.write_bytes(b"")
    last = audited(remote, clock, None).partitions[0].copies[-1]
    assert last.verdict is SnapshotVerdict.UNPROVEN
    assert "no other snapshot proves what is below" in last.reason or "did below is open" in last.reason


def test_without_a_local_log_start_the_last_copy_counts() -> None:
    """Followers of KIP-1023 start from it; the log of the fixture is replayed from its first offset, as its times leap back and forth."""
    audit = audited(REMOTE, Clock(1_795_266_500_000, 86_400_000), None, "mixed")
    (partition,) = audit.partitions
    assert [each.verdict for each in partition.copies] == [SnapshotVerdict.REACH_UNKNOWN] * 11 + [SnapshotVerdict.RIGHT]
    assert (partition.replayed_from_offset, partition.local_log_start_offset) == (0, None)
    (note,) = audit.findings
    assert (note.code, note.severity) == ("tier-reach-unknown", Severity.NOTE)
    assert "add --local-log-start mixed-0=OFFSET or --log-dir DIR" in note.message


def test_a_local_log_start_above_the_last_copy() -> None:
    """No copy ends there: a wrong one must not make all others count as right. A follower may start after the last one in any case."""
    clock = Clock(1_795_000_000_000, EXPIRATION_MS)
    (partition,) = audited(REMOTE, clock, 10**9, "mixed").partitions
    (last,) = audited(REMOTE, clock, None, "mixed").partitions
    verdicts = [each.verdict for each in partition.copies]
    assert verdicts[-1:] == [each.verdict for each in last.copies][-1:]
    assert verdicts.count(SnapshotVerdict.UNREACHABLE) == len(verdicts) - 1


def test_the_local_log_start_of_a_directory() -> None:
    """First base offset on disk; of another topic of the same name nothing is reported."""
    starts = read_local_starts((), [LOGS], Run())
    topic_id = copies_topic_id()
    first = min(int(path.name[:20]) for path in Path(LOGS).rglob("mixed-0/*.log"))
    assert starts.of(TopicIdPartition("mixed", topic_id, 0)) == first
    assert starts.of(TopicIdPartition("mixed", bytes(16), 0)) is None
    assert starts.of(TopicIdPartition("mixed", topic_id, 1)) is None
    both = read_local_starts(["mixed-0=7"], [LOGS], Run())
    assert both.of(TopicIdPartition("mixed", bytes(16), 0)) == 7


def copies_topic_id() -> bytes:
    audit = audited(REMOTE, Clock(1, 1), None, "mixed")
    return audit.partitions[0].remote.id.topic_id


@pytest.mark.parametrize("text", ["mixed-0", "mixed-0=-1", "mixed-0=99999999999999999999", "a/b-0=1"])
def test_local_log_starts_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="expected TOPIC-PARTITION=OFFSET"):
        read_local_starts([text], (), Run())


def test_states_are_held_only_as_long_as_they_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing below the window no snapshot waits for another: four times as many take little more memory."""
    monkeypatch.setattr(window_task, "REMEMBERED_BYTES_MAX", 0)
    monkeypatch.setattr(thread_pool, "AHEAD_BYTES_MAX", 0)
    peaks = []
    for segments in (10, 40):
        copies, entries, offset = [], dict[int, ProducerEntry](), 0
        for number in range(segments):
            first, content = offset, b""
            for producer in range(3000 if number == 0 else 10):
                content += written(0, batch(offset, producer_id=producer, sequence=number, timestamp=MS + offset))
                entries[producer] = ProducerEntry(producer, 0, number, offset, 0, MS + offset, -1, -1)
                offset += 1
            copies.append(Copy(first, content, [(0, first)], snapshot_bytes(entries.values())))
        (tmp_path / str(segments)).mkdir()
        remote = write_tier(tmp_path / str(segments), "t", 0, copies)
        tracemalloc.start()
        audit = audited(Path(remote), Clock(MS + offset, 86_400_000), 1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert [each.verdict for each in audit.partitions[0].copies] == [SnapshotVerdict.RIGHT] * segments
    assert peaks[1] < 2 * peaks[0]
