"""Rebuilt records of stores whose leaders changed, held against a model of the leaders: each offset is read from a copy that has it."""

from pathlib import Path

import pytest
from overlapping_copies import check_reads, rebuilt_values, stores

from formats.remote.remote_log_metadata import RemoteSegment, RemoteSegmentUpdate, read_remote_log_record
from snaprebuild.tier.remote_log import RemoteLog

STORES = 60


@pytest.mark.parametrize("seed", range(2))
def test_each_offset_is_read_from_a_copy_that_has_it(seed: int, tmp_path: Path) -> None:
    unclean = 0
    for number, (made, log_start) in enumerate(stores(STORES, seed)):
        log = RemoteLog()
        for value in rebuilt_values(tmp_path / str(number), made, log_start):
            record = read_remote_log_record(value)
            assert isinstance(record, RemoteSegment | RemoteSegmentUpdate)
            log.take(record)
        assert log.dropped == 0
        found = {offset: log.lookup(made.log[offset], offset) for offset in range(made.served_end)}
        check_reads(made, log_start, {offset: None if each is None else each.segment_id for offset, each in found.items()})
        assert not [each for each in log.segments.values() if each.end_offset < log_start]
        unclean += not made.is_clean
    assert unclean > STORES // 6
