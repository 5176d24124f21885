"""Unusual compressed data is read as Kafka's consumer reads it (``tests/broker/test_records_of_kafka.py`` asks Kafka itself)."""

import pytest
from odd_frames import COUNT, ODD

from formats import limits
from formats.errors import FormatError
from formats.log.batch_headers import BytesSegment, HeaderReader
from formats.log.record_batch import parse_batch_header
from formats.log.record_groups import record_groups
from formats.log.records import LogRecord, read_records
from snaprebuild.storage.local.pipe_reader import piped

PLAIN = [b"value%d" % at * 5 for at in range(COUNT)]


def in_columns(data: bytes, group_bytes: int) -> list[LogRecord]:
    (block,) = HeaderReader(BytesSegment(data), check_crc=True, read_markers=False)
    groups = record_groups(BytesSegment(data), block, group_bytes=group_bytes, piped=piped)
    return [record for group in groups for record in group.records()]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("window_bytes", [limits.RECORD_WINDOW_BYTES, 512])
def test_as_kafka_reads_it(name: str, window_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In columns and one by one; with a small window through a pipe."""
    monkeypatch.setattr(limits, "RECORD_WINDOW_BYTES", window_bytes)
    data, count = ODD[name]
    header = parse_batch_header(data)
    for group_bytes in (8 << 20, 100):
        if count is None:
            with pytest.raises(FormatError):
                in_columns(data, group_bytes)
            continue
        found = in_columns(data, group_bytes)
        assert len(found) == count
        assert [each._replace(crc=None) for each in read_records(header, data, piped=piped)] == found
        if count == COUNT:
            assert [each.value for each in found] == PLAIN
    if count is None:
        with pytest.raises(FormatError):
            list(read_records(header, data, piped=piped))
    else:
        assert len(list(read_records(header, data))) == count
