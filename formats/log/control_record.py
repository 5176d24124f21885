"""Records of control batches: transaction markers and the control records of KRaft.

The key of every one is ``int16 version, int16 type``. Markers (types 0 and 1) have a fixed-layout value of any version: later versions
may only append. The values of types 2 to 6 are flexible messages whose first field is their version.

Source: ``ControlRecordType``, ``EndTransactionMarker``, ``ControlRecordUtils`` and the schemas ``LeaderChangeMessage``,
``SnapshotHeaderRecord``, ``SnapshotFooterRecord``, ``KRaftVersionRecord``, ``VotersRecord``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import IO, Any

import msgspec
from construct import Bytes, Construct, GreedyBytes, StreamError, Struct

from formats import limits
from formats.errors import BadLengthError, BadVersionError, FormatError, TruncatedError
from formats.log.record_batch import Record
from formats.message import COMPACT_STRING
from formats.primitives import INT16, INT32, INT64, UINT16, UNSIGNED_VARINT, parse_whole

__all__ = [
    "ControlRecord",
    "ControlRecordType",
    "EndTransactionMarker",
    "Endpoint",
    "KRaftVersion",
    "LeaderChange",
    "SnapshotFooter",
    "SnapshotHeader",
    "Voter",
    "Voters",
    "build_control_record",
    "build_end_transaction_marker",
    "parse_control_key",
    "parse_control_record",
]


class ControlRecordType(IntEnum):
    """The type in the key of a control record, int16."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(msgspec.Struct, frozen=True):
    """Value of types 0 and 1: version int16, coordinator epoch int32; ``rest`` is what a later version appends."""

    version: int
    coordinator_epoch: int
    rest: bytes = b""


class Endpoint(msgspec.Struct, frozen=True):
    """Where a voter listens: name, host, port uint16."""

    name: str
    host: str
    port: int


class Voter(msgspec.Struct, frozen=True):
    """A voter: id int32, directory id (16 bytes, None before it exists), endpoints, supported kraft.version range (int16)."""

    voter_id: int
    directory_id: bytes | None = None
    endpoints: tuple[Endpoint, ...] = ()
    kraft_version_min: int = 0
    kraft_version_max: int = 0


class LeaderChange(msgspec.Struct, frozen=True):
    """Type 2: version int16, leader id int32, voters, and the voters that granted their vote."""

    version: int
    leader_id: int
    voters: tuple[Voter, ...]
    granting_voters: tuple[Voter, ...]


class SnapshotHeader(msgspec.Struct, frozen=True):
    """Type 3: version int16, timestamp (ms, int64) of the last log record that the snapshot contains."""

    version: int
    last_contained_log_timestamp: int


class SnapshotFooter(msgspec.Struct, frozen=True):
    """Type 4: version int16."""

    version: int


class KRaftVersion(msgspec.Struct, frozen=True):
    """Type 5: version int16, kraft.version int16."""

    version: int
    kraft_version: int


class Voters(msgspec.Struct, frozen=True):
    """Type 6: version int16, the voter set."""

    version: int
    voters: tuple[Voter, ...]


ControlValue = EndTransactionMarker | LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | Voters | bytes


class ControlRecord(msgspec.Struct, frozen=True):
    """A control record.

    Attributes:
        key_version: int16, not negative.
        type_id: int16; a ``ControlRecordType`` where that is known.
        value: the parsed value, or its bytes for a type that this library does not know.
    """

    key_version: int
    type_id: int
    value: ControlValue


class _CompactArray(Construct):  # type: ignore[misc]
    """An unsigned varint of count + 1, then the elements, of which there can be no more than ``limits.KRAFT_VOTERS_MAX``."""

    def __init__(self, element: Construct) -> None:
        super().__init__()
        self._element = element

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> list[Any]:
        count = UNSIGNED_VARINT._parse(stream, context, path) - 1
        if not 0 <= count <= limits.KRAFT_VOTERS_MAX:
            raise BadLengthError("count of an array", expected=f"0..{limits.KRAFT_VOTERS_MAX}", found=count)
        return [self._element._parsereport(stream, context, path) for _ in range(count)]

    def _build(self, obj: list[Any], stream: IO[bytes], context: Any, path: str) -> list[Any]:
        UNSIGNED_VARINT._build(len(obj) + 1, stream, context, path)
        for element in obj:
            self._element._build(element, stream, context, path)
        return obj


class _NoTaggedFields(Construct):  # type: ignore[misc]
    """The tag section that ends a flexible structure. None of these schemas has a tag; unknown ones are read over."""

    def _parse(self, stream: IO[bytes], context: Any, path: str) -> None:
        count = UNSIGNED_VARINT._parse(stream, context, path)
        if count > limits.KRAFT_VOTERS_MAX:
            raise BadLengthError("count of tagged fields", expected=f"at most {limits.KRAFT_VOTERS_MAX}", found=count)
        for _ in range(count):
            UNSIGNED_VARINT._parse(stream, context, path)
            size = UNSIGNED_VARINT._parse(stream, context, path)
            if len(stream.read(size)) != size:
                raise StreamError("tagged field ends early", path=path)

    def _build(self, obj: None, stream: IO[bytes], context: Any, path: str) -> None:
        stream.write(b"\0")


TAGS = "tags" / _NoTaggedFields()
KEY = Struct("version" / INT16, "type" / INT16)
KEY_BYTES = 4
END_TRANSACTION_MARKER = Struct("version" / INT16, "coordinator_epoch" / INT32, "rest" / GreedyBytes)
LEADER_CHANGE_VOTER_V0 = Struct("voter_id" / INT32, TAGS)
LEADER_CHANGE_VOTER_V1 = Struct("voter_id" / INT32, "directory_id" / Bytes(16), TAGS)


def _leader_change(voter: Construct) -> Struct:
    return Struct("leader_id" / INT32, "voters" / _CompactArray(voter), "granting_voters" / _CompactArray(voter), TAGS)


LEADER_CHANGE = (_leader_change(LEADER_CHANGE_VOTER_V0), _leader_change(LEADER_CHANGE_VOTER_V1))
SNAPSHOT_HEADER = Struct("version" / INT16, "last_contained_log_timestamp" / INT64, TAGS)
SNAPSHOT_FOOTER = Struct("version" / INT16, TAGS)
KRAFT_VERSION = Struct("version" / INT16, "kraft_version" / INT16, TAGS)
ENDPOINT = Struct("name" / COMPACT_STRING, "host" / COMPACT_STRING, "port" / UINT16, TAGS)
KRAFT_VOTER = Struct(
    "voter_id" / INT32,
    "directory_id" / Bytes(16),
    "endpoints" / _CompactArray(ENDPOINT),
    "kraft_version" / Struct("min" / INT16, "max" / INT16, TAGS),
    TAGS,
)
KRAFT_VOTERS = Struct("version" / INT16, "voters" / _CompactArray(KRAFT_VOTER), TAGS)


def parse_control_record(record: Record, *, file: str | None = None, position: int = 0) -> ControlRecord:
    """Reads key and value of a control record.

    Raises:
        TruncatedError: key or value too short, or null.
        BadVersionError: a negative version (``ControlRecordType.parse`` and ``EndTransactionMarker.deserialize`` reject those; versions
            above the known ones are read as the newest known).
        FormatError: the value of a KRaft record does not follow its schema.
    """
    try:
        key_version, type_id = parse_control_key(record, position=position)
        return ControlRecord(key_version, type_id, _parse_value(type_id, record.value, position))
    except FormatError as error:
        raise error.in_file(file) if file else error from None


def parse_control_key(record: Record, *, position: int = 0) -> tuple[int, int]:
    """Version and type in the key of a control record (``ControlRecordType.parseTypeId``); the value is not read.

    Raises:
        TruncatedError: key too short, or null.
        BadVersionError: a negative version.
    """
    what = "key of a control record"
    data = record.key or b""
    if len(data) >= KEY_BYTES:
        # As the grammar, which takes twenty times as long.
        key = int.from_bytes(data[:2], "big", signed=True), int.from_bytes(data[2:4], "big", signed=True)
    else:
        key = parse_whole(KEY, data, what, lambda fields: (fields.version, fields.type), position=position)
    if key[0] < 0:
        raise BadVersionError(f"version of the {what}", position=position, expected="0 or more", found=key[0])
    return key


def _parse_value(type_id: int, value: bytes | None, position: int) -> ControlValue:
    data = value or b""
    if type_id not in _VALUES:
        return data
    if type_id in MARKERS and len(data) >= MARKER_BYTES and data[0] < 0x80:
        # As the grammar. A log has a marker for each transaction.
        coordinator_epoch = int.from_bytes(data[2:MARKER_BYTES], "big", signed=True)
        return EndTransactionMarker(int.from_bytes(data[:2], "big"), coordinator_epoch, data[MARKER_BYTES:])
    what = f"value of a control record {ControlRecordType(type_id).name}"
    if len(data) < 2:
        raise TruncatedError(what, position=position, expected="at least 2 bytes", found=f"{len(data)} bytes")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise BadVersionError(f"version of the {what}", position=position, expected="0 or more", found=version)
    if type_id == ControlRecordType.LEADER_CHANGE:
        grammar = LEADER_CHANGE[min(version, 1)]
        return parse_whole(grammar, data[2:], what, lambda fields: _leader_change_value(version, fields), position=position)
    grammar, make = _VALUES[type_id]
    return parse_whole(grammar, data, what, make, position=position)


def _leader_change_value(version: int, fields: Any) -> LeaderChange:
    voters, granting = (
        tuple(Voter(voter.voter_id, voter.get("directory_id")) for voter in array)
        for array in (fields.voters, fields.granting_voters)
    )
    return LeaderChange(version, fields.leader_id, voters, granting)


def _voters_value(fields: Any) -> Voters:
    voters = (
        Voter(
            voter.voter_id,
            voter.directory_id,
            tuple(Endpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints),
            voter.kraft_version.min,
            voter.kraft_version.max,
        )
        for voter in fields.voters
    )
    return Voters(fields.version, tuple(voters))


MARKERS = (ControlRecordType.ABORT, ControlRecordType.COMMIT)
MARKER_BYTES = 6
"""Version int16 and coordinator epoch int32; all that follows is kept. The grammar takes twenty times as long for the same."""


def _marker_value(fields: Any) -> EndTransactionMarker:
    return EndTransactionMarker(fields.version, fields.coordinator_epoch, fields.rest)


_VALUES: dict[int, tuple[Construct, Callable[[Any], ControlValue]]] = {
    ControlRecordType.ABORT: (END_TRANSACTION_MARKER, _marker_value),
    ControlRecordType.COMMIT: (END_TRANSACTION_MARKER, _marker_value),
    ControlRecordType.LEADER_CHANGE: (LEADER_CHANGE[0], lambda fields: _leader_change_value(0, fields)),
    ControlRecordType.SNAPSHOT_HEADER: (
        SNAPSHOT_HEADER,
        lambda fields: SnapshotHeader(fields.version, fields.last_contained_log_timestamp),
    ),
    ControlRecordType.SNAPSHOT_FOOTER: (SNAPSHOT_FOOTER, lambda fields: SnapshotFooter(fields.version)),
    ControlRecordType.KRAFT_VERSION: (KRAFT_VERSION, lambda fields: KRaftVersion(fields.version, fields.kraft_version)),
    ControlRecordType.KRAFT_VOTERS: (KRAFT_VOTERS, _voters_value),
}


def build_end_transaction_marker(
    *,
    commit: bool,
    coordinator_epoch: int,
    version: int = 0,
    rest: bytes = b"",
    timestamp_delta: int = 0,
    offset_delta: int = 0,
) -> Record:
    """The record of a commit or abort marker, as a coordinator writes it."""
    value = EndTransactionMarker(version, coordinator_epoch, rest)
    type_id = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    return build_control_record(ControlRecord(0, type_id, value), timestamp_delta=timestamp_delta, offset_delta=offset_delta)


def build_control_record(control: ControlRecord, *, timestamp_delta: int = 0, offset_delta: int = 0) -> Record:
    """The record of a control batch for ``control``."""
    key = KEY.build({"version": control.key_version, "type": control.type_id})
    return Record(timestamp_delta, offset_delta, key, _build_value(control.value))


def _build_value(value: ControlValue) -> bytes:
    match value:
        case bytes():
            return value
        case EndTransactionMarker():
            fields = {"version": value.version, "coordinator_epoch": value.coordinator_epoch, "rest": value.rest}
            return bytes(END_TRANSACTION_MARKER.build(fields))
        case LeaderChange():
            arrays = {
                name: [
                    {"voter_id": voter.voter_id, "directory_id": voter.directory_id or bytes(16), "tags": None} for voter in voters
                ]
                for name, voters in (("voters", value.voters), ("granting_voters", value.granting_voters))
            }
            body = LEADER_CHANGE[min(value.version, 1)].build({"leader_id": value.leader_id, **arrays, "tags": None})
            return bytes(INT16.build(value.version)) + bytes(body)
        case SnapshotHeader():
            fields = {"version": value.version, "last_contained_log_timestamp": value.last_contained_log_timestamp}
            return bytes(SNAPSHOT_HEADER.build({**fields, "tags": None}))
        case SnapshotFooter():
            return bytes(SNAPSHOT_FOOTER.build({"version": value.version, "tags": None}))
        case KRaftVersion():
            return bytes(KRAFT_VERSION.build({"version": value.version, "kraft_version": value.kraft_version, "tags": None}))
        case Voters():
            return bytes(
                KRAFT_VOTERS.build({"version": value.version, "voters": list(map(_voter_fields, value.voters)), "tags": None})
            )


def _voter_fields(voter: Voter) -> dict[str, object]:
    endpoints = [{"name": e.name, "host": e.host, "port": e.port, "tags": None} for e in voter.endpoints]
    return {
        "voter_id": voter.voter_id,
        "directory_id": voter.directory_id or bytes(16),
        "endpoints": endpoints,
        "kraft_version": {"min": voter.kraft_version_min, "max": voter.kraft_version_max, "tags": None},
        "tags": None,
    }
