"""ListOffsets, row by row: the versions of the request, and what Kafka 4.3.1 answers by its sources."""

from dataclasses import dataclass, replace

import pytest

from formats.partition.checkpoint_file import LeaderEpochEntry
from snaprebuild.followers.list_offsets import (
    Isolation,
    ListedOffset,
    LogOffsets,
    OffsetError,
    SpecialTimestamp,
    TimestampAndOffset,
    list_offset,
    pending_upload_of_proposal,
)

# Remote storage holds 0 to 59, the disk 40 to 99; 90 is committed, and a transaction is open from 80 on.
LOG = LogOffsets(
    has_remote=True,
    log_start_offset=0,
    local_log_start_offset=40,
    highest_remote_offset=59,
    high_watermark=90,
    last_stable_offset=80,
    log_end_offset=100,
    leader_epochs=(LeaderEpochEntry(3, 0), LeaderEpochEntry(5, 50), LeaderEpochEntry(6, 95)),
    leader_epoch=6,
    epoch_start_offset=70,
)
PLAIN = replace(LOG, has_remote=False, local_log_start_offset=0, highest_remote_offset=-1)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING = SpecialTimestamp
REPLICA, UNCOMMITTED, COMMITTED = Isolation


@dataclass(frozen=True)
class Records:
    """Answers of the searches, each with the offset that it must begin at."""

    local_found: TimestampAndOffset | None = None
    remote_found: TimestampAndOffset | None = None
    greatest_found: TimestampAndOffset | None = None
    begins: tuple[int, int] = (40, 0)

    def local(self, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
        assert (timestamp, start_offset) == (1000, self.begins[0])
        return self.local_found

    def remote(self, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
        assert (timestamp, start_offset) == (1000, self.begins[1])
        return self.remote_found

    def greatest(self) -> TimestampAndOffset | None:
        return self.greatest_found


def asked(
    log: LogOffsets, timestamp: int, isolation: Isolation = UNCOMMITTED, records: Records | None = None, version: int = 11
) -> object:
    found = list_offset(log, timestamp, isolation, records or Records(), version)
    assert found.reason
    return found.error or (found.offset, found.timestamp, found.leader_epoch)


NOTHING = (-1, -1, -1)


# ---------------------------------------------------------------------------------------------------------------- versions


@pytest.mark.parametrize(
    ("timestamp", "first"),
    [(LATEST, 1), (EARLIEST, 1), (MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (PENDING, 11), (1000, 1)],
)
def test_each_is_known_since_a_version(timestamp: int, first: int) -> None:
    answers = [list_offset(LOG, timestamp, UNCOMMITTED, Records(), version).error for version in range(12)]
    assert answers == [OffsetError.UNSUPPORTED_VERSION] * first + [None] * (12 - first)


def test_other_negative_timestamps_are_unknown() -> None:
    assert asked(LOG, -7) is OffsetError.UNSUPPORTED_VERSION


# ---------------------------------------------------------------------------------------------------------------- -1, -2, -4


@pytest.mark.parametrize(("isolation", "end"), [(REPLICA, 100), (UNCOMMITTED, 90), (COMMITTED, 80)])
def test_latest_is_the_end_of_what_may_be_fetched(isolation: Isolation, end: int) -> None:
    assert asked(LOG, LATEST, isolation) == (end, -1, 6)


@pytest.mark.parametrize(("version", "error"), [(4, OffsetError.LEADER_NOT_AVAILABLE), (5, OffsetError.OFFSET_NOT_AVAILABLE)])
def test_latest_of_a_new_leader(version: int, error: OffsetError) -> None:
    new = replace(LOG, epoch_start_offset=95)
    assert asked(new, LATEST, version=version) is error
    assert asked(new, LATEST, COMMITTED, version=version) is error
    assert asked(new, LATEST, REPLICA, version=version) == (100, -1, 6)
    assert asked(replace(LOG, epoch_start_offset=90), LATEST, version=version) == (90, -1, 6)


def test_earliest() -> None:
    assert asked(LOG, EARLIEST) == (0, -1, 3)
    assert asked(replace(LOG, log_start_offset=60), EARLIEST) == (60, -1, 3)  # the first entry, wherever the log starts
    assert asked(replace(LOG, leader_epochs=(LeaderEpochEntry(3, 10),)), EARLIEST) == (0, -1, -1)
    assert asked(replace(LOG, leader_epochs=()), EARLIEST) == (0, -1, -1)
    assert asked(replace(LOG, log_start_offset=100, local_log_start_offset=100, epoch_start_offset=95), EARLIEST) == (
        100,
        -1,
        3,
    )  # neither end nor leader count


def test_earliest_local() -> None:
    assert asked(LOG, EARLIEST_LOCAL) == (40, -1, 3)
    assert asked(replace(LOG, local_log_start_offset=50), EARLIEST_LOCAL) == (50, -1, 5)
    assert asked(replace(LOG, local_log_start_offset=100), EARLIEST_LOCAL) == (100, -1, 6)
    assert asked(replace(PLAIN, local_log_start_offset=7), EARLIEST_LOCAL) == (
        0,
        -1,
        3,
    )  # without remote storage the same as earliest


# ---------------------------------------------------------------------------------------------------------------- -5, -6


def test_latest_tiered() -> None:
    assert asked(LOG, LATEST_TIERED) == (59, -1, 5)
    assert asked(replace(LOG, highest_remote_offset=49), LATEST_TIERED) == (49, -1, 3)
    assert asked(replace(LOG, highest_remote_offset=-1), LATEST_TIERED) == NOTHING
    assert asked(PLAIN, LATEST_TIERED) == NOTHING


def test_earliest_pending_upload() -> None:
    assert asked(LOG, PENDING) == (60, -1, 5)
    assert asked(LOG, PENDING, REPLICA) == (60, -1, 5)
    assert asked(replace(LOG, log_start_offset=70), PENDING) == (70, -1, 5)  # what is below the log start is no one's business
    assert asked(PLAIN, PENDING) == NOTHING


def test_nothing_uploaded_yet() -> None:
    unknown = replace(LOG, highest_remote_offset=-1)
    assert asked(unknown, PENDING, REPLICA) == NOTHING  # a part of the log is not on disk: the leader does not know yet
    assert asked(replace(unknown, local_log_start_offset=0), PENDING, REPLICA) == (0, -1, 3)


def test_pending_upload_at_the_end_is_nothing() -> None:
    """An idle topic that is fully uploaded: the answer is no offset below the end."""
    idle = replace(LOG, highest_remote_offset=99, high_watermark=100, last_stable_offset=100)
    assert asked(idle, PENDING, REPLICA) == NOTHING
    assert asked(replace(idle, highest_remote_offset=98), PENDING, REPLICA) == (99, -1, 6)
    assert asked(replace(LOG, highest_remote_offset=89), PENDING, UNCOMMITTED) == NOTHING
    assert asked(replace(LOG, highest_remote_offset=89), PENDING, REPLICA) == (90, -1, 5)
    assert asked(replace(LOG, highest_remote_offset=79), PENDING, COMMITTED) == NOTHING
    assert asked(replace(LOG, highest_remote_offset=92, epoch_start_offset=95), PENDING) is OffsetError.OFFSET_NOT_AVAILABLE


# ---------------------------------------------------------------------------------------------------------------- -3, by time

FOUND = TimestampAndOffset(1234, 55, 5)


def test_maximum_timestamp_is_that_of_local_segments() -> None:
    assert asked(LOG, MAX_TIMESTAMP, records=Records(greatest_found=FOUND)) == (55, 1234, 5)
    assert asked(LOG, MAX_TIMESTAMP, records=Records(remote_found=FOUND)) == NOTHING
    beyond = Records(greatest_found=replace(FOUND, offset=90))
    assert asked(LOG, MAX_TIMESTAMP, records=beyond) == NOTHING
    assert asked(LOG, MAX_TIMESTAMP, REPLICA, beyond) == (90, 1234, 5)


def test_by_time_remote_storage_comes_first() -> None:
    other = TimestampAndOffset(1100, 42, None)
    assert asked(LOG, 1000, records=Records(local_found=other, remote_found=FOUND)) == (55, 1234, 5)
    assert asked(LOG, 1000, records=Records(local_found=other)) == (42, 1100, -1)
    assert asked(LOG, 1000) == NOTHING


def test_by_time_without_remote_storage_or_records() -> None:
    assert asked(PLAIN, 1000, records=Records(local_found=FOUND, begins=(0, -1))) == (55, 1234, 5)
    empty = replace(
        LOG,
        log_start_offset=40,
        local_log_start_offset=40,
        log_end_offset=40,
        high_watermark=40,
        last_stable_offset=40,
        epoch_start_offset=40,
    )
    assert asked(empty, 1000, records=Records(remote_found=FOUND)) == NOTHING


def test_by_time_nothing_above_what_may_be_fetched() -> None:
    records = Records(local_found=replace(FOUND, offset=85))
    assert asked(LOG, 1000, COMMITTED, records) == NOTHING
    assert asked(LOG, 1000, UNCOMMITTED, records) == (85, 1234, 5)
    new = replace(LOG, epoch_start_offset=95, high_watermark=85)
    assert asked(new, 1000, UNCOMMITTED, records) is OffsetError.OFFSET_NOT_AVAILABLE


@pytest.mark.parametrize("timestamp", [MAX_TIMESTAMP, 1000])
def test_a_new_leader_that_finds_nothing(timestamp: int) -> None:
    """The offset may be one that is not committed yet. A follower is answered."""
    new = replace(LOG, epoch_start_offset=95)
    assert asked(new, timestamp) is OffsetError.OFFSET_NOT_AVAILABLE
    assert asked(new, timestamp, version=11 if timestamp < 0 else 4) is (
        OffsetError.OFFSET_NOT_AVAILABLE if timestamp < 0 else OffsetError.LEADER_NOT_AVAILABLE
    )
    assert asked(new, timestamp, REPLICA) == NOTHING
    assert asked(replace(new, highest_remote_offset=-1), PENDING) == NOTHING


def test_an_answer_says_which_rule_gave_it() -> None:
    found = list_offset(replace(LOG, highest_remote_offset=89), PENDING, UNCOMMITTED, Records())
    assert found == ListedOffset(
        -1,
        -1,
        -1,
        None,
        "90 (after the last offset in remote storage, but not below the log start offset) is not below 90, "
        "the end of what a consumer (read_uncommitted) may fetch",
    )


def test_the_proposal_answers_nothing_where_nothing_was_uploaded() -> None:
    """To -6: KIP-1023 says -1, a broker of 4.3 its log start offset."""
    log = LogOffsets(True, 150, 150, -1, 400, 400, 400, (LeaderEpochEntry(0, 150),), 0)
    assert pending_upload_of_proposal(log).offset == -1
