"""How an empty follower starts (KIP-1023): every row of the table, and the proposal's own example."""

import pytest
from msgspec.structs import replace
from remote_records import copy, epochs, finished
from sentences import NO_FINISHED_SEGMENT

from formats.remote.remote_log_metadata import RemoteSegment
from snaprebuild.followers.bootstrap_rules import (
    BootstrapFollower,
    FollowerAction,
    LeaderOffsets,
    NotInRemoteStorageError,
    Profile,
    after_reset,
    auxiliary_state,
    decide,
    order_faults,
)
from snaprebuild.replay.leader_epochs import EpochEnd, end_of_epoch, epoch_of
from snaprebuild.tier.remote_log import RemoteLog, highest_remote_offset

SEED, KAFKA = Profile
FETCH, TRUNCATE_TO_END, START_EMPTY_AT, BUILD_STATE, RETRY, RETRY_FOREVER = FollowerAction
Decided = tuple[FollowerAction, int | None]
# 10 to 59 are in remote storage, 40 to 99 on the leader's disk.
LEADER = LeaderOffsets(log_start_offset=10, local_log_start_offset=40, pending_upload_offset=60, log_end_offset=100)
EMPTY = BootstrapFollower(
    fetch_offset=0, log_end_offset=0, last_tiered_enabled=True, has_remote=True, metadata_is_ready=True, is_compacted=False
)
OFF = replace(EMPTY, last_tiered_enabled=False)

# Row, leader, follower, and for each profile the action with its offset.
ROWS = [
    (1, LEADER, replace(OFF, fetch_offset=40), (FETCH, 40), None),
    (1, LEADER, replace(EMPTY, fetch_offset=100, log_end_offset=100), (FETCH, 100), None),
    (1, replace(LEADER, log_start_offset=0, local_log_start_offset=0), EMPTY, (FETCH, 0), None),
    (2, LEADER, OFF, (START_EMPTY_AT, 10), None),
    (2, LEADER, replace(EMPTY, fetch_offset=5, log_end_offset=5), (START_EMPTY_AT, 10), None),
    (2, LEADER, replace(EMPTY, fetch_offset=5, log_end_offset=12), (FETCH, 12), None),
    (2, replace(LEADER, log_end_offset=45), replace(OFF, fetch_offset=50, log_end_offset=30), (FETCH, 30), None),
    (2, LEADER, replace(EMPTY, is_compacted=True), (START_EMPTY_AT, 10), None),
    (3, replace(LEADER, log_start_offset=0), OFF, (BUILD_STATE, 40), None),
    (3, LEADER, replace(EMPTY, fetch_offset=20, log_end_offset=20), (BUILD_STATE, 40), None),
    (4, LEADER, replace(EMPTY, fetch_offset=120, log_end_offset=120), (TRUNCATE_TO_END, 100), None),
    (5, LEADER, EMPTY, (BUILD_STATE, 60), None),
    (
        6,
        replace(LEADER, local_log_start_offset=10, pending_upload_offset=-1),
        EMPTY,
        (START_EMPTY_AT, 10),
        (BUILD_STATE, 10),
    ),
    (
        8,
        replace(LEADER, local_log_start_offset=10, pending_upload_offset=10),
        EMPTY,
        (START_EMPTY_AT, 10),
        (BUILD_STATE, 10),
    ),
    (7, replace(LEADER, pending_upload_offset=-1), EMPTY, (RETRY, None), None),
    (8, replace(LEADER, pending_upload_offset=5), EMPTY, (START_EMPTY_AT, 10), (BUILD_STATE, 10)),
    (8, replace(LEADER, pending_upload_offset=10), EMPTY, (START_EMPTY_AT, 10), (BUILD_STATE, 10)),
    (9, replace(LEADER, pending_upload_offset=100), EMPTY, (BUILD_STATE, 100), (RETRY, None)),
    (
        9,
        replace(LEADER, local_log_start_offset=10, pending_upload_offset=100),
        EMPTY,
        (BUILD_STATE, 100),
        (BUILD_STATE, 10),
    ),
    (10, replace(LEADER, log_start_offset=0), replace(OFF, has_remote=False), (RETRY, None), None),
    (11, LEADER, replace(EMPTY, metadata_is_ready=False), (RETRY, None), None),
    (11, replace(LEADER, log_start_offset=0), replace(OFF, metadata_is_ready=False), (RETRY, None), None),
]


@pytest.mark.parametrize(("row", "leader", "follower", "seed", "kafka"), ROWS, ids=[f"row {row}" for row, *_ in ROWS])
def test_rows(
    row: int,
    leader: LeaderOffsets,
    follower: BootstrapFollower,
    seed: tuple[FollowerAction, int | None],
    kafka: tuple[FollowerAction, int | None] | None,
) -> None:
    for profile, expected in ((SEED, seed), (KAFKA, kafka or seed)):
        found = decide(leader, follower, profile)
        assert (found.row, (found.action, found.offset)) == (row, expected)
        assert found.reason


@pytest.mark.parametrize(
    ("leader", "follower", "then"),
    [
        (LEADER, OFF, (3, BUILD_STATE, 40)),
        (LEADER, replace(EMPTY, fetch_offset=5, log_end_offset=12), (3, BUILD_STATE, 40)),
        (LEADER, replace(OFF, metadata_is_ready=False), (11, RETRY, None)),
        (replace(LEADER, local_log_start_offset=10), OFF, None),
        (replace(LEADER, log_end_offset=45), replace(OFF, fetch_offset=50, log_end_offset=42), None),
        (replace(LEADER, log_start_offset=0), OFF, None),
    ],
)
def test_what_follows_row_2(
    leader: LeaderOffsets, follower: BootstrapFollower, then: tuple[int, FollowerAction, int | None] | None
) -> None:
    """The next fetch gets OFFSET_MOVED_TO_TIERED_STORAGE where it is below the local start."""
    found = after_reset(leader, follower, decide(leader, follower), SEED)
    assert (None if found is None else (found.row, found.action, found.offset)) == then


def test_an_empty_follower_of_an_empty_leader_fetches() -> None:
    assert decide(LeaderOffsets(0, 0, -1, 0), EMPTY).row == 1


# ---------------------------------------------------------------------------------------------------------------- the example

# seg-0-2 and seg-3-5 are uploaded; 6 was written in epoch 2, 7 is the first of epoch 3.
LEADER_EPOCHS = epochs((0, 0), (1, 3), (2, 5), (3, 7))
SEG_0_2 = copy(1, 0, 2, (0, 0))
SEG_3_5 = copy(2, 3, 5, (1, 3), (2, 5))
EXAMPLE = finished(SEG_0_2, SEG_3_5)


@pytest.mark.parametrize(
    ("target", "target_epoch", "epoch", "found"),
    [
        (3, 1, 0, SEG_0_2),  # right after the first segment: its last offset is of the epoch before
        (4, 1, 1, SEG_3_5),
        (5, 2, 1, SEG_3_5),
        (6, 2, 2, SEG_3_5),
    ],
)
def test_every_target_of_the_example(target: int, target_epoch: int, epoch: int, found: RemoteSegment) -> None:
    assert epoch_of(LEADER_EPOCHS, target) == target_epoch
    state = auxiliary_state(target, LEADER_EPOCHS, 9, target_epoch, EXAMPLE)
    assert (state.target_epoch, state.segment.segment_id) == (epoch, found.segment_id)
    # Row 12: inside of a segment, the follower starts after it.
    assert state.next_offset == found.end_offset + 1 >= target


def test_what_no_segment_holds() -> None:
    with pytest.raises(NotInRemoteStorageError, match=f"{NO_FINISHED_SEGMENT}6 of leader epoch 2"):
        auxiliary_state(7, LEADER_EPOCHS, 9, 3, EXAMPLE)


def test_highest_remote_offset() -> None:
    assert highest_remote_offset(EXAMPLE, LEADER_EPOCHS, 9) == 5
    assert highest_remote_offset(EXAMPLE, LEADER_EPOCHS[:1], 9) == 2
    assert highest_remote_offset(RemoteLog(), LEADER_EPOCHS, 9) == -1
    # The log was truncated to 4, and epoch 4 began there: what was copied of epoch 1 beyond it is not of this log.
    assert highest_remote_offset(EXAMPLE, epochs((0, 0), (1, 3), (4, 4)), 9) == 3


# ---------------------------------------------------------------------------------------------------------------- leader epochs


@pytest.mark.parametrize(("epoch", "expected"), [(-1, None), (0, (0, 3)), (1, (1, 5)), (2, (2, 7)), (3, (3, 9)), (4, None)])
def test_end_of_an_epoch(epoch: int, expected: tuple[int, int] | None) -> None:
    assert end_of_epoch(LEADER_EPOCHS, epoch, 9) == (None if expected is None else EpochEnd(*expected))


def test_end_of_an_epoch_that_the_log_does_not_have() -> None:
    log = epochs((2, 5), (5, 9))
    assert end_of_epoch(log, 1, 20) == EpochEnd(1, 5)
    assert end_of_epoch(log, 3, 20) == EpochEnd(2, 9)
    assert end_of_epoch((), 0, 20) is None


# ---------------------------------------------------------------------------------------------------------------- order


def test_order_of_offsets() -> None:
    """KIP-405: Lz >= Ly >= Lx and Ly >= Ry >= Rx."""
    right = {
        "local_log_start_offset": 40,
        "last_stable_offset": 80,
        "log_end_offset": 100,
        "log_start_offset": 10,
        "highest_remote_offset": 59,
    }
    assert order_faults(**right) == []
    assert order_faults(**{**right, "highest_remote_offset": 9, "local_log_start_offset": 10}) == []
    for change, fault in (
        ({"last_stable_offset": 101}, "the log end 100 is below the last stable offset 101"),
        ({"last_stable_offset": 39, "highest_remote_offset": 39}, "the last stable offset 39 is below the local start 40"),
        ({"highest_remote_offset": 81}, "remote storage reaches to 81, beyond the last stable offset 80"),
        ({"log_start_offset": 61}, "remote storage ends at 59, before it begins at 61"),
        ({"highest_remote_offset": 38}, "offsets 39 to 39 are neither local nor in remote storage"),
    ):
        assert order_faults(**{**right, **change}) == [fault]
