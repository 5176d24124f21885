"""The start of a metadata log: what moves with it, and the three policies, on small logs that are counted by hand."""

import pytest

from snaprebuild.cluster.quorum.log_start import (
    CheckpointOfLog,
    FollowerMode,
    MetadataLogModel,
    OffsetAndEpoch,
    Progress,
    SegmentOfLog,
    StartCause,
    StartSettings,
    advance_follower,
    advance_leader,
    immediate,
    retention,
)

DAY_MS = 86_400_000
NOTHING = StartSettings(-1, -1, 2 * DAY_MS)


def log(start: int = 0) -> MetadataLogModel:
    """Segments of 1000 bytes at 0, 100, 200; checkpoints of 10 bytes at 50, 100, 150, 250, a day apart; end at 300."""
    checkpoints = [
        CheckpointOfLog(OffsetAndEpoch(offset, 1 + offset // 100), 10, (day + 1) * DAY_MS)
        for day, offset in enumerate((50, 100, 150, 250))
        if offset >= start
    ]
    segments = [SegmentOfLog(base, 1000) for base in (0, 100, 200)]
    return MetadataLogModel(OffsetAndEpoch(start, 1), 300, segments, checkpoints)


def ids(model: MetadataLogModel) -> list[int]:
    return [each.id.offset for each in model.checkpoints]


# ------------------------------------------------------------------------------------------------------------------ the log


def test_ids_are_ordered_by_epoch_first() -> None:
    assert OffsetAndEpoch(500, 1) < OffsetAndEpoch(100, 2) < OffsetAndEpoch(101, 2)
    assert max(OffsetAndEpoch(500, 1), OffsetAndEpoch(100, 2)) == OffsetAndEpoch(100, 2)


@pytest.mark.parametrize(
    ("to", "segments", "checkpoints", "left"),
    [(50, (), (), [50, 100, 150, 250]), (100, (0,), (50,), [100, 150, 250]), (250, (0, 100), (50, 100, 150), [250])],
)
def test_what_lies_below_the_new_start_goes(
    to: int, segments: tuple[int, ...], checkpoints: tuple[int, ...], left: list[int]
) -> None:
    """A segment goes when the next one begins at the start or below it; the last one stays."""
    model = log()
    deleted = model.delete_before(next(each.id for each in model.checkpoints if each.id.offset == to))
    assert deleted is not None
    assert (deleted.segments, tuple(each.offset for each in deleted.checkpoints)) == (segments, checkpoints)
    assert deleted.size_bytes == 1000 * len(segments) + 10 * len(checkpoints)
    assert (model.start.offset, ids(model)) == (to, left)
    assert model.size_bytes == 3040 - deleted.size_bytes


@pytest.mark.parametrize("to", [OffsetAndEpoch(60, 1), OffsetAndEpoch(100, 1), OffsetAndEpoch(100, 2)])
def test_the_start_moves_to_a_checkpoint_above_it_only(to: OffsetAndEpoch) -> None:
    """None at 60, none of epoch 1 at 100, and the one at 100 is not above the start."""
    model = log(100)
    assert model.delete_before(to) is None
    assert (model.start.offset, model.size_bytes) == (100, 3030)


def test_no_start_beyond_the_end_of_the_log() -> None:
    model = log()
    model.end_offset = 200
    assert model.delete_before(OffsetAndEpoch(250, 3)) is None


def test_a_batch_that_does_not_fit_begins_a_segment() -> None:
    """Batches of 300 bytes and 2 records in segments of 1000: three in each; one larger than a segment has one for itself."""
    model = MetadataLogModel(OffsetAndEpoch(0, 0), 0)
    model.append(7, 2, 300, 1000)
    model.append(1, 1, 5000, 1000)
    assert [(each.base_offset, each.size_bytes) for each in model.segments] == [(0, 900), (6, 900), (12, 300), (14, 5000)]
    assert (model.end_offset, model.log_bytes) == (15, 7100)


# ------------------------------------------------------------------------------------------------------------------ policies


def test_immediate_goes_to_the_latest_checkpoint() -> None:
    model = log()
    advance = immediate(model)
    assert advance is not None
    assert (advance.after, advance.cause) == (OffsetAndEpoch(250, 3), StartCause.NEWER_CHECKPOINT)
    assert immediate(model) is None


@pytest.mark.parametrize(
    ("limit", "starts"),
    # 3040 bytes. Moves: 50 -> 100 frees 1010, 100 -> 150 frees 10, 150 -> 250 frees 1010 of what is left.
    [
        (3040, []),
        (3039, [100]),
        (2030, [100]),
        (2029, [100, 150]),
        (2020, [100, 150]),
        (2019, [100, 150, 250]),
        (0, [100, 150, 250]),
    ],
)
def test_retention_by_size(limit: int, starts: list[int]) -> None:
    assert [each.after.offset for each in retention(log(), 0, StartSettings(limit, -1))] == starts


@pytest.mark.parametrize(
    ("now_days", "starts"), [(2, []), (2.5, [100]), (3, [100]), (3.5, [100, 150]), (4.5, [100, 150, 250]), (99, [100, 150, 250])]
)
def test_retention_by_age(now_days: float, starts: list[int]) -> None:
    """Older than a day, not as old; the age is that of the checkpoint that goes, and the last one stays whatever its age."""
    moved = list(retention(log(), int(now_days * DAY_MS), StartSettings(-1, DAY_MS)))
    assert [each.after.offset for each in moved] == starts
    assert {each.cause for each in moved} <= {StartCause.AGE}


def test_a_negative_limit_is_none() -> None:
    assert list(retention(log(), 99 * DAY_MS, NOTHING)) == []


@pytest.mark.parametrize(
    ("replicas", "listeners", "now_days", "after", "cause"),
    [
        ((300, 300), (300,), 0, 250, StartCause.ALL_PAST),
        ((300, 150), (300,), 0, 150, StartCause.ALL_PAST),
        ((300, 300), (149,), 0, 100, StartCause.ALL_PAST),
        ((300, 49), (300,), 0, None, None),
        ((300, 49), (300,), 3, 50, StartCause.LAG_TIME),
        ((300, 49), (300,), 5.5, 150, StartCause.LAG_TIME),
        # As long as all have read past some checkpoint, time is not asked.
        ((300, 60), (300,), 99, 50, StartCause.ALL_PAST),
        ((), (), 0, 250, StartCause.ALL_PAST),
    ],
)
def test_seed_waits_for_all_readers_or_for_time(
    replicas: tuple[int, ...], listeners: tuple[int, ...], now_days: float, after: int | None, cause: StartCause | None
) -> None:
    reported = [[Progress(str(at), offset) for at, offset in enumerate(each)] for each in (replicas, listeners)]
    advance = advance_leader(log(), int(now_days * DAY_MS), NOTHING, *reported)
    assert (None if advance is None else advance.after.offset) == after
    assert (None if advance is None else advance.cause) == cause


@pytest.mark.parametrize(
    ("leader", "listener", "strict", "literal"),
    [
        (OffsetAndEpoch(120, 2), 300, 100, 120),
        (OffsetAndEpoch(150, 2), 300, 150, 150),
        (OffsetAndEpoch(40, 1), 300, None, 40),
        # Its listener is not there yet; no checkpoint above; it no longer lags the leader.
        (OffsetAndEpoch(120, 2), 119, None, None),
        (OffsetAndEpoch(250, 3), 300, None, None),
        (OffsetAndEpoch(0, 0), 300, None, None),
    ],
)
def test_a_advance_follower_never_goes_ahead(
    leader: OffsetAndEpoch, listener: int, strict: int | None, literal: int | None
) -> None:
    for mode, expected in ((FollowerMode.STRICT, strict), (FollowerMode.LITERAL, literal)):
        model = log()
        advance = advance_follower(model, leader, [Progress("l", listener)], mode)
        assert (None if advance is None else advance.after.offset) == expected
        assert model.start.offset == (expected or 0)
    assert expected is None or model.start == leader, "literally, its epoch too"
