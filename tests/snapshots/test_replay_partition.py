"""The replay of a partition at every boundary: bundled logs, damage, and last segments without a batch."""

from collections.abc import Callable
from pathlib import Path

import pytest
from manifests import PartitionFixture
from replays import DAY_MS, EXACT, EXACT_FROM_LOG_START, FIXTURE_AS_OF_MS, NOW, OLD, UNPROVEN, UNSOUND, YOUNG, Hand, entries_in, run
from simulated_broker import Client, listed

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.replay.segment_effect import RunningEffect, SegmentEffect
from snaprebuild.snapshots.engine.partition_replay import ReplayFrom


@pytest.mark.parametrize("mode", [ReplayFrom.AUTO, ReplayFrom.LOG_START])
def test_bundled_partitions_at_every_boundary(partition_fixture: PartitionFixture, mode: ReplayFrom) -> None:
    """Kafka's entries, and no class better than the partition deserves."""
    directory = listed(partition_fixture.directory)
    result = run(directory, mode, as_of_ms=FIXTURE_AS_OF_MS, expiration_ms=DAY_MS)
    first = partition_fixture.segments[0].base_offset
    for part in partition_fixture.segments:
        if part.snapshot_offset == 0 or (part is partition_fixture.segments[-1] and part.batches == 0):
            continue
        state = result.at(part.snapshot_offset)
        assert frozenset(entries_in(state.entries).values()) == part.entries
        klass = state.judgement.snapshot_class
        if partition_fixture.partition == "bad-crc-0" and klass is UNSOUND:
            assert any("checksum" in reason for reason in state.judgement.reasons)
        elif "compacted" not in partition_fixture.partition and not partition_fixture.partition.startswith("__"):
            assert klass is (EXACT_FROM_LOG_START if first else EXACT) or (first and klass is EXACT)


def four_segments() -> tuple[Hand, Client]:
    """Bases 0, 2, 4, 6; log end 8; two batches each of one producer."""
    log, client = Hand(), Client(7, is_transactional=False)
    for index in range(4):
        if index:
            log.roll()
        log.data(client, YOUNG)
        log.data(client, YOUNG)
    return log, client


MODES = pytest.mark.parametrize("mode", [ReplayFrom.AUTO, ReplayFrom.LOG_START])


def count_totals(monkeypatch: pytest.MonkeyPatch) -> list[RunningEffect]:
    """Whose total is asked for from now on."""
    asked, total = [], RunningEffect.total

    def counted(running: RunningEffect) -> SegmentEffect:
        asked.append(running)
        return total(running)

    monkeypatch.setattr(RunningEffect, "total", counted)
    return asked


def test_nothing_is_composed_before_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is never too late to ask."""
    asked = count_totals(monkeypatch)
    log, _ = four_segments()
    result = run(log.write(tmp_path / "t-0"), as_of_ms=NOW, cuts=(3,))
    assert [state.offset for state in result.states] == [2, 3, 4, 6, 8]
    assert not asked
    for state in (result.at(4), result.at(3), result.at(8), result.at(2)):
        last = state.offset - 1
        assert entries_in(state.entries) == {7: ProducerEntry(7, 0, last, last, 0, YOUNG)}
        assert state.judgement.snapshot_class is EXACT
        assert {each is state.prefix for each in asked} == {True}
        asked.clear()


def test_a_window_is_settled_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, client = Hand(), Client(7, is_transactional=False)
    for timestamp in (OLD, YOUNG, YOUNG, YOUNG):
        log.data(client, timestamp)
        log.roll()
    log.data(client, YOUNG)
    directory = log.write(tmp_path / "t-0")
    result = run(directory, ReplayFrom.WINDOW, as_of_ms=NOW, window=1)
    asked = count_totals(monkeypatch)
    assert len(result.at(3).entries) == 1
    assert asked == [result.at(3).prefix]
    assert result.at(3).judgement.snapshot_class is UNPROVEN


Change = Callable[[bytes], bytes]
DAMAGE: dict[str, tuple[int, Change, int | None, dict[int, SnapshotClass], str]] = {
    # Base of the segment, change; offset of the damage, classes, and what the last one says. tests/replay/test_classes.py has every tail.
    "the last segment is torn": (6, lambda data: data + data[:17], None, dict.fromkeys((2, 4, 6, 8), EXACT), "torn"),
    "its last batch is torn": (6, lambda data: data[:-1], None, dict.fromkeys((2, 4, 6, 7), EXACT), "torn"),
    "zeros are behind it": (6, lambda data: data + bytes(18), None, dict.fromkeys((2, 4, 6, 8), EXACT), "zero-filled"),
    # A broker throws there or truncates: no log end is handed out.
    "its end is corrupt": (6, lambda data: data + b"\xff" * 100, 8, dict.fromkeys((2, 4, 6), EXACT), ""),
    "an earlier one is torn": (2, lambda data: data[:-1], 3, {2: EXACT}, ""),
    "zeros are behind an earlier one": (2, lambda data: data + bytes(300), 4, {2: EXACT}, ""),
    "the end of an earlier one is corrupt": (2, lambda data: data + b"\xff" * 100, 4, {2: EXACT}, ""),
    "a checksum differs": (
        2,
        lambda data: data[:30] + bytes((data[30] ^ 1,)) + data[31:],
        None,
        {2: EXACT, 4: UNSOUND, 6: UNSOUND, 8: UNSOUND},
        "checksum",
    ),
}


@MODES
@pytest.mark.parametrize("name", DAMAGE)
def test_damage(name: str, mode: ReplayFrom, tmp_path: Path) -> None:
    base, change, damage, classes, says = DAMAGE[name]
    log, _ = four_segments()
    log.write(tmp_path / "t-0")
    path = tmp_path / "t-0" / f"{base:020d}.log"
    path.write_bytes(change(path.read_bytes()))
    result = run(listed(path.parent), mode, as_of_ms=NOW)
    assert (result.replay.damage and result.replay.damage.offset) == damage
    assert result.classes == classes
    last = result.states[-1]
    assert last.is_log_end is (damage is None)
    assert says in "; ".join(last.judgement.reasons)


@MODES
def test_batch_on_which_every_broker_throws(mode: ReplayFrom, tmp_path: Path) -> None:
    """Boundaries below it are fine, none at or above it is made, however far after its transaction it is."""
    log = Hand()
    client = Client(7, is_transactional=True)
    log.data(client, YOUNG)
    first = log.roll()
    log.data(Client(8, is_transactional=False), YOUNG)
    second = log.roll()
    client.is_transactional = False
    failing = log.data(client, YOUNG)
    log.roll()
    log.data(Client(8, is_transactional=False, sequence=1), YOUNG)
    result = run(log.write(tmp_path / "t-0"), mode, as_of_ms=NOW)
    assert result.classes == {first: EXACT, second: EXACT}
    assert result.replay.damage is not None
    assert result.replay.damage.offset == failing
    assert "InvalidTxnStateException" in result.replay.damage.reason


# ---------------------------------------------------------------------------------------------------------------- shapes


@MODES
@pytest.mark.parametrize("rest", [b"", bytes(1000), b"\1" * 30, b"\xff" * 30])
def test_last_segment_without_a_batch(rest: bytes, mode: ReplayFrom, tmp_path: Path) -> None:
    """One boundary, at its base, once, whether the file is empty or was only laid out."""
    log, client = Hand(), Client(7, is_transactional=False)
    log.data(client, YOUNG)
    base = log.roll()
    log.segments[-1][1].append(rest)
    result = run(log.write(tmp_path / "t-0"), mode, as_of_ms=NOW)
    assert result.classes == {base: EXACT}
    assert (result.replay.damage is None) is (rest[:1] != b"\xff")


@MODES
@pytest.mark.parametrize("rest", [b"", bytes(1000)])
def test_single_empty_segment(rest: bytes, mode: ReplayFrom, tmp_path: Path) -> None:
    at_zero = Hand()
    at_zero.segments[0][1].append(rest)
    assert run(at_zero.write(tmp_path / "zero" / "t-0"), mode, as_of_ms=NOW).states == []
    behind = Hand(9)
    behind.segments[0][1].append(rest)
    # Its own snapshot does not confirm itself.
    for name, snapshots in (("bare", {}), ("told", {9: [ProducerEntry(7, 0, 0, 8, 0, YOUNG)]})):
        result = run(behind.write(tmp_path / name / "t-0", snapshots), mode, as_of_ms=NOW)
        assert result.classes == {9: EXACT_FROM_LOG_START}
        assert len(result.at(9).entries) == 0
        assert result.at(9).is_log_end
