"""Offset and leader epoch checkpoints: Kafka's files back byte for byte, its errors with their lines."""

import pytest
from fixture_files import broker_files
from hypothesis import given
from hypothesis import strategies as st
from kafka_file_writers import write_offset_checkpoint
from memory_peak import measured

from formats import limits, text_lines
from formats.errors import BadLengthError, BadValueError, BadVersionError, FormatError, LimitExceededError
from formats.partition.checkpoint_file import (
    LeaderEpochEntry,
    OffsetCheckpointEntry,
    read_leader_epoch_checkpoint,
    read_offset_checkpoint,
    write_leader_epoch_checkpoint,
)

CHECKPOINTS = {
    "offsets": (("*-offset-checkpoint",), read_offset_checkpoint, write_offset_checkpoint),
    "leader epochs": (
        ("leader-epoch-checkpoint", "*.leader_epoch_checkpoint"),
        read_leader_epoch_checkpoint,
        write_leader_epoch_checkpoint,
    ),
}


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_checkpoints_of_brokers_round_trip(kind: str) -> None:
    patterns, read, write = CHECKPOINTS[kind]
    for path in broker_files(*patterns):
        data = path.read_bytes()
        entries = read(data, file=path.name)
        assert len(entries) == max(0, data.count(b"\n") - 2), path
        assert write(entries, created_only=not data) == data, path


def test_order_and_repetition_are_kept() -> None:
    data = b"0\n3\nb 1 5\na 0 -1\nb 1 9223372036854775807\n"
    entries = read_offset_checkpoint(data)
    assert entries == (
        OffsetCheckpointEntry("b", 1, 5),
        OffsetCheckpointEntry("a", 0, -1),
        OffsetCheckpointEntry("b", 1, 2**63 - 1),
    )
    assert write_offset_checkpoint(entries) == data
    assert read_leader_epoch_checkpoint(b"0\n2\n7 30\n3 40\n") == (LeaderEpochEntry(7, 30), LeaderEpochEntry(3, 40))


@pytest.mark.parametrize("data", [b"", b"0", b"0\n", b"0\n0\n", b"0\n0", b"0\r\n0\r\n", b"+0\n-0\n"])
def test_no_entries(data: bytes) -> None:
    assert read_offset_checkpoint(data) == ()
    assert read_leader_epoch_checkpoint(memoryview(data)) == ()


@pytest.mark.parametrize(
    "data", [b"0\n1\na 1 2", b"0\r\n1\r\na 1 2\r\n", b"0\r1\ra 1 2\r", b"0\n1\na\t1  2 \t\n", b"00\n01\na +1 002\n"]
)
def test_what_java_reads_as_the_same_line(data: bytes) -> None:
    assert read_offset_checkpoint(data) == (OffsetCheckpointEntry("a", 1, 2),)


@pytest.mark.parametrize(
    ("data", "error", "line"),
    [
        (b"1\n0\n", BadVersionError, 1),
        (b" 0\n0\n", BadVersionError, 1),
        (b"0\n-1\n", BadLengthError, 2),
        (b"0\n2147483648\n", BadLengthError, 2),
        (b"0\n2\na 0 1\n", BadLengthError, 2),
        (b"0\n0\na 0 1\n", BadLengthError, 2),
        (b"0\n1\na 0 1\n\n", BadValueError, 4),
        (b"0\n1\n a 0 1\n", BadValueError, 3),
        (b"0\n1\na 0\n", BadValueError, 3),
        (b"0\n1\na 0 1 2\n", BadValueError, 3),
        (b"0\n2\na 0 1\na 0 9223372036854775808\n", BadValueError, 4),
        (b"0\n1\na 0 " + b"9" * 5000 + b"\n", BadValueError, 3),
        ("0\n1\na 0 \u0661\n".encode(), BadValueError, 3),
        ("0\n1\na\u00a00 1\n".encode(), BadValueError, 3),
        (b"0\n2\na 0 1\n\xff 0 1\n", BadValueError, 4),
    ],
)
def test_faults_of_offset_checkpoints(data: bytes, error: type[FormatError], line: int) -> None:
    with pytest.raises(error) as caught:
        read_offset_checkpoint(data, file="recovery-point-offset-checkpoint")
    assert type(caught.value) is error
    assert (caught.value.position, caught.value.unit) == (line, "line")
    assert str(caught.value).startswith(f"recovery-point-offset-checkpoint, line {line}: offset checkpoint")


@pytest.mark.parametrize(
    ("data", "error", "line"),
    [
        (b"0\n1\n-1 0\n", BadValueError, 3),
        (b"0\n1\n0 -1\n", BadValueError, 3),
        (b"0\n2\n0 0\n2147483648 0\n", BadValueError, 4),
        (b"2\n0\n", BadVersionError, 1),
    ],
)
def test_faults_of_leader_epoch_checkpoints(data: bytes, error: type[FormatError], line: int) -> None:
    with pytest.raises(error) as caught:
        read_leader_epoch_checkpoint(data)
    assert type(caught.value) is error
    assert (caught.value.position, caught.value.unit) == (line, "line")


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"0\n2\na 0 1\nb 0 1\n"
    monkeypatch.setattr(limits, "TEXT_LINES_MAX", 3)
    with pytest.raises(LimitExceededError):
        read_offset_checkpoint(data)
    monkeypatch.setattr(limits, "TEXT_LINES_MAX", 4)
    assert len(read_offset_checkpoint(data)) == 2
    monkeypatch.setattr(limits, "TEXT_LINE_BYTES_MAX", 4)
    with pytest.raises(LimitExceededError, match=r"line 3: .* a line of at most 4 bytes, found 5"):
        read_offset_checkpoint(data)
    monkeypatch.setattr(limits, "TEXT_FILE_BYTES_MAX", len(data) - 1)
    with pytest.raises(LimitExceededError):
        read_offset_checkpoint(data)


def test_a_character_beyond_ffff_does_not_make_four_bytes_of_each() -> None:
    line = "\U0001f600".encode() + b"a" * 100
    data = b"0\n1\n" + line + b" 0 1\r\n" + b"\r".join([b"a" * 1000] * 16_000)
    with measured() as peak, pytest.raises(BadValueError, match="line 4: offset checkpoint line"):
        read_offset_checkpoint(data)
    assert peak.bytes <= 2 * len(data)


def test_bytes_that_are_no_text_are_found_wherever_they_stand() -> None:
    for at in (0, 3, text_lines.PIECE_BYTES - 1, text_lines.PIECE_BYTES):
        data = b"0\n1\n" + b"a\n" * at
        for bad in (b"\xff", b"\xf0\x9f\x98", b"\xed\xa0\x80"):
            with pytest.raises(BadValueError, match="utf-8 text") as caught:
                read_leader_epoch_checkpoint(data + bad)
            assert caught.value.position == at + 3
        whole = data + "\U0001f600".encode()
        with pytest.raises(BadValueError) as caught:
            read_leader_epoch_checkpoint(whole)
        assert caught.value.position == 3, "it is text, and no line of a checkpoint"


def test_lines_as_java_ends_them() -> None:
    data = b"0\r2\r\na\x0b0\x0c1\rb\x1c0\xe2\x80\xa8 0 2\r"
    assert read_offset_checkpoint(data) == (OffsetCheckpointEntry("a", 0, 1), OffsetCheckpointEntry("b\x1c0\u2028", 0, 2))


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        ("offsets", OffsetCheckpointEntry("", 0, 0)),
        ("offsets", OffsetCheckpointEntry("a b", 0, 0)),
        ("offsets", OffsetCheckpointEntry("\ud800", 0, 0)),
        ("offsets", OffsetCheckpointEntry("a", 2**31, 0)),
        ("offsets", OffsetCheckpointEntry("a", 0, 2**63)),
        ("leader epochs", LeaderEpochEntry(-1, 0)),
        ("leader epochs", LeaderEpochEntry(2**31, 0)),
        ("leader epochs", LeaderEpochEntry(0, 2**63)),
    ],
)
def test_entries_that_could_not_be_read_back(kind: str, entry: OffsetCheckpointEntry | LeaderEpochEntry) -> None:
    with pytest.raises(BadValueError):
        CHECKPOINTS[kind][2]([entry])


def test_a_file_that_was_never_written_has_no_entries() -> None:
    assert write_offset_checkpoint([]) == b"0\n0\n"
    assert write_offset_checkpoint([], created_only=True) == b""
    with pytest.raises(BadValueError):
        write_leader_epoch_checkpoint([LeaderEpochEntry(0, 0)], created_only=True)


OFFSET_ENTRIES = st.builds(
    OffsetCheckpointEntry,
    st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
)
EPOCH_ENTRIES = st.builds(LeaderEpochEntry, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))


@given(st.lists(OFFSET_ENTRIES), st.lists(EPOCH_ENTRIES))
def test_entries_round_trip(offsets: list[OffsetCheckpointEntry], epochs: list[LeaderEpochEntry]) -> None:
    assert read_offset_checkpoint(write_offset_checkpoint(offsets)) == tuple(offsets)
    assert read_leader_epoch_checkpoint(write_leader_epoch_checkpoint(epochs)) == tuple(epochs)
