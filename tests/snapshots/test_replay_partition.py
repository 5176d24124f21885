"""The replay of a partition at every boundary: bundled logs, damage, and odd shapes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from manifests import PartitionFixture
from replays import (
    DAY_MS,
    EXACT,
    EXACT_FROM_LOG_START,
    FIXTURE_AS_OF_MS,
    NOW,
    OLD,
    UNPROVEN,
    UNSOUND,
    YOUNG,
    Hand,
    Run,
    entries_in,
    run,
)
from simulated_broker import Client, listed
from strategies import CONTROL, batch_of, header_of, message_of

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.replay.running_effect import RunningEffect
from snaprebuild.replay.segment_effect import SegmentEffect
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


def damaged(tmp_path: Path, base: int, change: Callable[[bytes], bytes], mode: ReplayFrom) -> Run:
    log, _ = four_segments()
    directory = log.write(tmp_path / "t-0")
    path = tmp_path / "t-0" / f"{base:020d}.log"
    path.write_bytes(change(path.read_bytes()))
    return run(listed(Path(directory.path)), mode, as_of_ms=NOW)


@MODES
@pytest.mark.parametrize("tail", [1, 16, 17, 18, 60])
def test_torn_last_segment_ends_the_log_earlier(tail: int, mode: ReplayFrom, tmp_path: Path) -> None:
    result = damaged(tmp_path, 6, lambda data: data + data[:tail], mode)
    assert result.replay.damage is None
    assert result.classes == dict.fromkeys((2, 4, 6, 8), EXACT)
    assert result.at(8).is_log_end
    assert any("torn" in reason for reason in result.at(8).judgement.reasons)
    cut = damaged(tmp_path / "cut", 6, lambda data: data[:-1], mode)
    assert cut.classes == dict.fromkeys((2, 4, 6, 7), EXACT)


@MODES
@pytest.mark.parametrize("zeros", [1, 16, 17, 18, 100, 1 << 20])
def test_zeros_behind_the_last_batch_are_tolerated_however_few(zeros: int, mode: ReplayFrom, tmp_path: Path) -> None:
    result = damaged(tmp_path, 6, lambda data: data + bytes(zeros), mode)
    assert result.replay.damage is None
    assert result.classes == dict.fromkeys((2, 4, 6, 8), EXACT)
    assert any("zero-filled" in reason for reason in result.at(8).judgement.reasons)
    assert not any("zero" in reason for reason in result.at(6).judgement.reasons)


@MODES
@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data + data[:5],
        lambda data: data + bytes(3),
        lambda data: data + bytes(300),
        lambda data: data + b"\xff" * 100,
    ],
    ids=["torn", "torn-few", "zeros-few", "zeros", "corrupt"],
)
def test_earlier_segment_that_does_not_end_whole_ends_everything(
    change: Callable[[bytes], bytes], mode: ReplayFrom, tmp_path: Path
) -> None:
    result = damaged(tmp_path, 2, change, mode)
    assert result.replay.damage is not None
    assert result.replay.damage.offset in (3, 4)
    assert result.classes == {2: EXACT}


@MODES
def test_corrupt_end_of_the_last_segment(mode: ReplayFrom, tmp_path: Path) -> None:
    """A broker throws there or truncates: no log end is handed out."""
    result = damaged(tmp_path, 6, lambda data: data + b"\xff" * 100, mode)
    assert result.replay.damage is not None
    assert result.replay.damage.offset == 8
    assert result.classes == dict.fromkeys((2, 4, 6), EXACT)


@MODES
def test_wrong_checksum_makes_everything_above_unsound(mode: ReplayFrom, tmp_path: Path) -> None:
    result = damaged(tmp_path, 2, lambda data: data[:30] + bytes((data[30] ^ 1,)) + data[31:], mode)
    assert result.replay.damage is None
    assert result.classes == {2: EXACT, 4: UNSOUND, 6: UNSOUND, 8: UNSOUND}
    assert all("checksum" in result.at(offset).judgement.reasons[0] for offset in (4, 6, 8))


@MODES
def test_batch_on_which_every_broker_throws(mode: ReplayFrom, tmp_path: Path) -> None:
    """Boundaries below it are fine, none at or above it is made, however far behind its transaction it stands."""
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
def test_gap_between_segments(mode: ReplayFrom, tmp_path: Path) -> None:
    """The boundary is the base offset of the next segment, whatever lies before it; from the hole on it may be wrong."""
    log, client = Hand(), Client(7, is_transactional=False)
    log.data(client, YOUNG)
    log.roll(5)
    log.data(client, YOUNG)
    result = run(log.write(tmp_path / "t-0"), mode, as_of_ms=NOW)
    assert result.classes == {5: UNSOUND, 6: UNSOUND}
    assert entries_in(result.at(5).entries)[7].last_offset == 0


@MODES
def test_overlapping_segments(mode: ReplayFrom, tmp_path: Path) -> None:
    """The state at the next base already holds what lies behind it: told there, not one segment later."""
    log, client = Hand(), Client(7, is_transactional=False)
    log.data(client, YOUNG)
    log.data(client, YOUNG)
    log.roll(1)
    log.data(client, YOUNG)
    result = run(log.write(tmp_path / "t-0"), mode, as_of_ms=NOW)
    assert result.classes == {1: UNSOUND, 2: UNSOUND}
    assert "above the base 1 of the next one" in result.at(1).judgement.reasons[0]


@MODES
def test_first_batch_below_the_base_of_its_segment(mode: ReplayFrom, tmp_path: Path) -> None:
    for count, offsets in ((1, {1: EXACT}), (3, {1: EXACT, 3: UNSOUND})):
        log, client = Hand(), Client(7, is_transactional=False)
        log.data(client, YOUNG)
        log.roll()
        log.end = 0
        log.data(client, YOUNG, count)
        assert run(log.write(tmp_path / str(count) / "t-0"), mode, as_of_ms=NOW).classes == offsets


@MODES
@pytest.mark.parametrize("rest", [b"", bytes(1000), b"\0" * 10, b"\1" * 30, b"\xff" * 30])
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


@MODES
@pytest.mark.parametrize("magic", [0, 1])
def test_first_segment_of_old_messages(magic: int, mode: ReplayFrom, tmp_path: Path) -> None:
    """A wrapper stands at the offset of its last message: what it wraps is no hole, and the log end is behind it."""
    log = Hand()
    log.add(message_of(magic, 4, b"five of them", attributes=1))
    boundary = log.roll()
    log.add(message_of(magic, 7, b"three", attributes=1))
    log.data(Client(7, is_transactional=False), YOUNG)
    result = run(log.write(tmp_path / "t-0"), mode, as_of_ms=NOW)
    assert boundary == 5
    assert result.classes == {5: EXACT, 9: EXACT}
    assert entries_in(result.at(9).entries) == {7: ProducerEntry(7, 0, 0, 8, 0, YOUNG)}
    assert len(result.at(5).entries) == 0


@MODES
def test_compacted_log_is_unsound_from_there_on(mode: ReplayFrom, tmp_path: Path) -> None:
    for number, batch in enumerate(
        (
            batch_of(header_of(1, last_offset_delta=4, record_count=2), b""),
            batch_of(header_of(1, attributes=CONTROL, producer_id=7, producer_epoch=0, record_count=0), b""),
            batch_of(header_of(3), b""),
        )
    ):
        log = Hand()
        log.data(Client(7, is_transactional=False), YOUNG)
        first = log.roll()
        log.add(batch)
        result = run(log.write(tmp_path / str(number) / "t-0"), mode, as_of_ms=NOW)
        assert result.classes == {first: EXACT, log.end: UNSOUND}


def test_doubts_of_a_long_compacted_log_are_not_repeated_at_every_boundary(tmp_path: Path) -> None:
    log = Hand()
    for _ in range(40):
        log.add(batch_of(header_of(log.end, last_offset_delta=4, record_count=2), b""))
        log.roll()
    log.data(Client(7, is_transactional=False), YOUNG)
    result = run(log.write(tmp_path / "t-0"), as_of_ms=NOW)
    assert len(result.at(log.end).judgement.reasons) == 11
    assert result.at(log.end).judgement.reasons[-1] == "and 30 more"


@MODES
def test_epoch_that_goes_down_leaves_it_unproven(mode: ReplayFrom, tmp_path: Path) -> None:
    log, client = Hand(), Client(7, is_transactional=False, epoch=3)
    log.data(client, YOUNG)
    first = log.roll()
    client.epoch = 2
    log.data(client, YOUNG)
    result = run(log.write(tmp_path / "t-0"), mode, as_of_ms=NOW)
    assert result.classes == {first: EXACT, log.end: UNPROVEN}
