"""The walker over a metadata log directory: every record of the bundled ones as Kafka prints it, and what it does with damage."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from log_dirs import batch, record
from manifests import FIXTURES

from formats import limits
from formats.errors import BadChecksumError, BadValueError, FormatError, LimitExceededError, TruncatedError
from formats.log.control_record import ControlRecord, ControlRecordType
from formats.message_schema import load_schemas
from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from formats.metadata.message_json import message_from_json, message_to_json
from snaprebuild.cluster.metadata.batches import MetadataBatch, UnreadRecord
from snaprebuild.cluster.metadata.log import LogPosition, MetadataLog, open_metadata_log
from snaprebuild.cluster.metadata.registered_model import METADATA_DIRECTORY
from snaprebuild.errors import UsageError

NO_OP = bytes.fromhex("01140000")
LOGS = {
    "kraft-metadata": FIXTURES / "kraft-metadata" / "logs",
    "kraft-metadata-moved": FIXTURES / "kraft-metadata-moved" / "logs",
    **{f"node{number}": FIXTURES / "kraft-cluster3" / f"node{number}" for number in (1, 2, 3)},
}
DUMPS = [
    *((name, path) for name in list(LOGS)[:2] for path in sorted((LOGS[name].parent / "expected").glob("*.dump.txt"))),
    *((path.name[:5], path) for path in sorted((FIXTURES / "kraft-cluster3" / "expected").glob("*.dump.txt"))),
]
SCHEMAS = load_schemas("cluster-metadata")
CONTROL_NAMES = {
    "LeaderChange": ControlRecordType.LEADER_CHANGE,
    "SnapshotHeader": ControlRecordType.SNAPSHOT_HEADER,
    "SnapshotFooter": ControlRecordType.SNAPSHOT_FOOTER,
    "KRaftVersion": ControlRecordType.KRAFT_VERSION,
    "KRaftVoters": ControlRecordType.KRAFT_VOTERS,
}


def dumped(path: Path) -> Iterator[tuple[dict[str, int], list[tuple[int, str, dict[str, Any]]]]]:
    """Batches of a dump, and of each record offset, type and fields."""
    batches: list[tuple[dict[str, int], list[tuple[int, str, dict[str, Any]]]]] = []
    for line in path.read_text().splitlines():
        if line.startswith("baseOffset:"):
            numbers = {key: int(value) for key, value in re.findall(r"(\w+): (-?\d+)(?: |$)", line)}
            batches.append(({**numbers, "isControl": "isControl: true" in line}, []))
        elif line.startswith("| offset:"):
            content = line[line.index("headerKeys: []") + len("headerKeys: [] ") :]
            kind, _, fields = content.partition(" ")
            kind, offset, data = kind.removesuffix(":"), int(line.split()[2]), json.loads(fields)
            is_payload = kind == "payload"
            batches[-1][1].append((offset, data["type"] if is_payload else kind, data["data"] if is_payload else data))
    return iter(batches)


def batches_of(log: MetadataLog, name: str) -> list[MetadataBatch]:
    if name.endswith(".checkpoint"):
        (checkpoint,) = [each for each in log.checkpoints if each.path.endswith(name)]
        return list(log.checkpoint_batches(checkpoint))
    (position,) = [number for number, each in enumerate(log.segments) if each.path.endswith(name)]
    end = log.segments[position + 1].base_offset if position + 1 < len(log.segments) else None
    found = log.walk(log.segments[position].base_offset)
    return [each for each in found if end is None or each.base_offset < end]


def test_every_record_is_that_of_the_dump_tool() -> None:
    """In Kafka's own JSON, and back."""
    records = 0
    for name, path in DUMPS:
        file = path.name.removesuffix(".dump.txt").removeprefix(f"{name}.")
        found = batches_of(open_metadata_log(str(LOGS[name])), file)
        expected = list(dumped(path))
        assert len(found) == len(expected) > 0, path
        for ours, (numbers, theirs) in zip(found, expected, strict=True):
            where = f"{path.name} at {ours.base_offset}"
            assert (ours.base_offset, ours.last_offset) == (numbers["baseOffset"], numbers["lastOffset"]), where
            assert (ours.leader_epoch, ours.position_bytes) == (numbers["partitionLeaderEpoch"], numbers["position"]), where
            assert (ours.size_bytes, ours.append_timestamp_ms) == (numbers["size"], numbers["CreateTime"]), where
            assert ours.is_control == numbers["isControl"], where
            for each, (offset, kind, data) in zip(ours.records, theirs, strict=True):
                records += 1
                assert each.offset == offset
                if isinstance(each.content, ControlRecord):
                    assert each.content.type_id == CONTROL_NAMES[kind], where
                    continue
                assert isinstance(each.content, ClusterMetadataRecord), where
                schema, version = SCHEMAS[each.content.name], each.content.version
                assert f"{MetadataRecordType(each.content.api_key).name}_RECORD" == kind
                assert message_to_json(schema, each.content.message, version) == data, where
                assert message_from_json(schema, data, version) == each.content.message, where
    assert records > 2000


# --------------------------------------------------------------------------------------------------------------------- listing


def test_what_a_listing_holds() -> None:
    log = open_metadata_log(str(LOGS["kraft-metadata-moved"]))
    assert [each.base_offset for each in log.segments] == [538, 720]
    assert [(each.end_offset, each.epoch) for each in log.checkpoints] == [
        (number, 4) for number in (640, 660, 680, 700, 720, 740, 760, 812)
    ]
    assert (log.first_base_offset, log.start_offset, log.log_end_offset()) == (538, 640, 817)
    assert len(log.deleted_files) == 11
    assert log.producer_snapshots == tuple(f"{number:020d}.snapshot" for number in (531, 538, 720, 817))
    assert log.part_files == log.misnamed_files == log.unreadable_files == log.other_files == ()
    assert log.quorum_state is not None
    assert (log.quorum_state.leader_id, log.quorum_state.leader_epoch) == (1, 4)
    newest = log.newest_valid_checkpoint()
    assert newest is not None
    assert newest.end_offset == 812


def test_where_a_log_may_lie(tmp_path: Path) -> None:
    """The directory itself, a copy of another name, the log directory, or anything above that holds one."""
    directory = LOGS["node2"] / METADATA_DIRECTORY
    copied = shutil.copytree(directory, tmp_path / "copied")
    nested = tmp_path / "host" / "data" / "logs"
    shutil.copytree(directory, nested / METADATA_DIRECTORY)
    for place, expected in {
        directory: directory,
        LOGS["node2"]: directory,
        copied: copied,
        tmp_path / "host": nested / METADATA_DIRECTORY,
    }.items():
        assert open_metadata_log(str(place)).path == str(expected)
    for place, says in {
        LOGS["node2"] / "orders-0": "is a partition of orders",
        LOGS["node2"].parent: "holds several metadata logs",
        FIXTURES / "magic0": "holds no __cluster_metadata-0",
        tmp_path / "nowhere": "does not exist",
    }.items():
        with pytest.raises(UsageError, match=says):
            open_metadata_log(str(place))


def test_left_overs_are_distinguished(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(LOGS["node2"] / METADATA_DIRECTORY, tmp_path / METADATA_DIRECTORY))
    (directory / "00000000000000000400-0000000004-123.checkpoint.part").touch()
    (directory / "400-4.checkpoint").touch()
    (directory / "00000000000000000400-0000000004.checkpoint.deleted").touch()
    (directory / "00000000000000000400-0000000005.checkpoint").symlink_to("00000000000000000315-0000000004.checkpoint")
    (directory / "note.txt").touch()
    log = open_metadata_log(str(directory))
    assert [each.end_offset for each in log.checkpoints] == [234, 315]
    assert log.part_files == ("00000000000000000400-0000000004-123.checkpoint.part",)
    assert log.misnamed_files == ("400-4.checkpoint",)
    assert log.unreadable_files == ("00000000000000000400-0000000005.checkpoint",)
    assert log.other_files == ("note.txt",)
    assert "00000000000000000400-0000000004.checkpoint.deleted" in log.deleted_files


# ---------------------------------------------------------------------------------------------------------------------- damage


def made(to: Path, segments: dict[int, bytes]) -> MetadataLog:
    directory = to / METADATA_DIRECTORY
    directory.mkdir(parents=True)
    for base, data in segments.items():
        (directory / f"{base:020d}.log").write_bytes(data)
    return open_metadata_log(str(directory))


def offsets(log: MetadataLog, start: int = 0) -> list[int]:
    return [each.offset for found in log.walk(start) for each in found.records]


def no_ops(*bases: int) -> bytes:
    return b"".join(batch(base, count=2, records=[record(NO_OP), record(NO_OP, offset_delta=1)]) for base in bases)


def test_a_walk_from_inside(tmp_path: Path) -> None:
    log = made(tmp_path, {0: no_ops(0, 2), 4: no_ops(4, 6)})
    assert [offsets(log, start) for start in (0, 3, 4, 7, 8)] == [[*range(8)], [*range(2, 8)], [4, 5, 6, 7], [6, 7], []]
    assert log.log_end_offset() == 8


def test_a_walk_continues_where_one_ended(tmp_path: Path) -> None:
    """Nothing below is read again, whether the log has grown, was rolled, or lost what it began with."""
    log = made(tmp_path, {0: no_ops(0, 2)})
    walk = log.walk()
    assert [each.base_offset for each in walk] == [0, 2]
    end = walk.position
    assert end == LogPosition(0, len(no_ops(0, 2)), 4)
    first, second = (tmp_path / METADATA_DIRECTORY / f"{base:020d}.log" for base in (0, 6))

    def since() -> list[int]:
        walk = open_metadata_log(log.path).walk_on(end)
        return [each.base_offset for each in walk]

    first.write_bytes(b"?" * len(no_ops(0, 2)) + no_ops(4))
    assert since() == [4]
    second.write_bytes(no_ops(6))
    assert since() == [4, 6]
    first.write_bytes(b"?" * len(no_ops(0, 2)) + no_ops(6))
    with pytest.raises(BadValueError, match="offset of a batch of the metadata log: expected 4, found 6"):
        since()
    first.write_bytes(no_ops(0))
    with pytest.raises(BadValueError, match="position in the metadata log"):
        since()


def test_a_torn_tail_ends_the_last_segment_only(tmp_path: Path) -> None:
    log = made(tmp_path / "last", {0: no_ops(0, 2), 4: no_ops(4, 6)[:-3]})
    walk = log.walk()
    assert [each.base_offset for each in walk] == [0, 2, 4]
    assert walk.torn_tail is not None
    assert (walk.end_offset, walk.torn_tail.position_bytes) == (6, len(no_ops(4)))
    with pytest.raises(TruncatedError, match=r"00000000000000000000\.log"):
        offsets(made(tmp_path / "first", {0: no_ops(0, 2)[:-3], 4: no_ops(4)}))


@pytest.mark.parametrize(
    ("segments", "error", "says"),
    [
        ({0: no_ops(0, 4)}, BadValueError, r"byte \d+: offset of a batch of the metadata log: expected 2, found 4"),
        ({0: no_ops(0, 0)}, BadValueError, r"offset of a batch of the metadata log: expected 2, found 0"),
        ({0: no_ops(0), 4: no_ops(4)}, BadValueError, r"04\.log, byte 0: base offset of a segment: expected 2, found 4"),
        ({0: no_ops(0)[:-1] + b"\1"}, BadChecksumError, r"00\.log, byte 0: batch: expected its checksum"),
    ],
    ids=["gap", "twice", "segment missing", "flipped bit"],
)
def test_damage_has_a_place(tmp_path: Path, segments: dict[int, bytes], error: type[FormatError], says: str) -> None:
    with pytest.raises(error, match=says):
        offsets(made(tmp_path, segments))


def test_a_record_that_is_unknown_is_handed_out(tmp_path: Path) -> None:
    log = made(tmp_path, {0: batch(0, count=2, records=[record(b"\1\x63\0"), record(NO_OP, offset_delta=1)])})
    (found,) = log.walk()
    unread, no_op = found.records
    assert isinstance(unread.content, UnreadRecord)
    assert unread.content.value == b"\1\x63\0"
    assert "api key of a message" in str(unread.content.error)
    assert isinstance(no_op.content, ClusterMetadataRecord)


def test_batches_that_no_controller_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadValueError, match="codec of a batch of the metadata log: expected 0, found 1"):
        offsets(made(tmp_path / "gzip", {0: batch(0, attributes=1, records=[record(NO_OP)])}))
    monkeypatch.setattr(limits, "METADATA_BATCH_BYTES_MAX", 60)
    with pytest.raises(LimitExceededError, match="byte 0: batch: expected at most 60 bytes"):
        offsets(made(tmp_path / "large", {0: no_ops(0)}))


def test_every_cut_of_a_checkpoint_is_seen(tmp_path: Path) -> None:
    whole = LOGS["node2"] / METADATA_DIRECTORY / "00000000000000000315-0000000004.checkpoint"
    directory = tmp_path / METADATA_DIRECTORY
    directory.mkdir()
    data = whole.read_bytes()
    place = directory / whole.name
    place.write_bytes(data)
    log = open_metadata_log(str(directory))
    assert log.newest_valid_checkpoint() is not None
    ends = [each.position_bytes for each in log.checkpoint_batches(log.checkpoints[0])]
    for size in {0, 1, *ends, *range(50, len(data), 97), len(data) - 1}:
        place.write_bytes(data[:size])
        log = open_metadata_log(str(directory))
        assert log.checkpoint_fault(log.checkpoints[0]) is not None, size
        assert log.newest_valid_checkpoint() is None
    place.write_bytes(data[ends[1] :])
    assert "header" in str(open_metadata_log(str(directory)).checkpoint_fault(log.checkpoints[0]))
