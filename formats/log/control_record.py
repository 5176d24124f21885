"""Records of control batches: transaction markers and the control records of KRaft.

The key of every one is ``int16 version, int16 type``. Markers (types 0 and 1) have a fixed-layout value of any version: later versions
may only append. The values of types 2 to 6 are flexible messages whose first field is their version; they are read by Kafka's own
schemas (``formats/schemas/control-records.json``).

Source: ``ControlRecordType``, ``EndTransactionMarker``, ``ControlRecordUtils`` and the schemas ``LeaderChangeMessage``,
``SnapshotHeaderRecord``, ``SnapshotFooterRecord``, ``KRaftVersionRecord``, ``VotersRecord``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import msgspec
from construct import GreedyBytes, Struct

from formats import limits
from formats.errors import BadLengthError, BadVersionError, FormatError, TruncatedError
from formats.log.record_batch import Record
from formats.message import Message, read_message
from formats.message_schema import load_schemas
from formats.primitives import INT16, INT32, parse_whole

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


KEY = Struct("version" / INT16, "type" / INT16)
KEY_BYTES = 4
END_TRANSACTION_MARKER = Struct("version" / INT16, "coordinator_epoch" / INT32, "rest" / GreedyBytes)


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
        raise error.in_file(file) from None


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
    if type_id not in MARKERS and type_id not in _MESSAGES:
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
    if type_id in MARKERS:
        return _short_marker(data, what, position)
    return _message_value(type_id, data, version, position)


MARKERS = (ControlRecordType.ABORT, ControlRecordType.COMMIT)
MARKER_BYTES = 6
"""Version int16 and coordinator epoch int32; all that follows is kept. The grammar takes twenty times as long for the same."""


def _short_marker(data: bytes, what: str, position: int) -> EndTransactionMarker:
    """By the grammar, which has the words for what is missing."""
    return parse_whole(
        END_TRANSACTION_MARKER,
        data,
        what,
        lambda fields: EndTransactionMarker(fields.version, fields.coordinator_epoch, fields.rest),
        position=position,
    )


def _message_value(type_id: int, data: bytes, version: int, position: int) -> ControlValue:
    """The value of a KRaft record, by Kafka's schema. A version above the known ones is read as the newest known."""
    name, make = _MESSAGES[type_id]
    schema = load_schemas("control-records")[name]
    try:
        message, _ = read_message(schema, data, min(version, schema.versions.highest))
    except FormatError as error:
        error.position = position
        raise
    for field in ("voters", "grantingVoters"):
        count = len(message.get(field, ()))
        if count > limits.KRAFT_VOTERS_MAX:
            raise BadLengthError(
                f"{schema.name} -> {field}: count of an array",
                position=position,
                expected=f"at most {limits.KRAFT_VOTERS_MAX}",
                found=count,
            )
    return make(message)


def _leader_change(message: Message) -> LeaderChange:
    has_directories = message["version"] >= FIRST_WITH_DIRECTORIES

    def voters_of(field: str) -> tuple[Voter, ...]:
        return tuple(Voter(each["voterId"], each["voterDirectoryId"] if has_directories else None) for each in message[field])

    return LeaderChange(message["version"], message["leaderId"], voters_of("voters"), voters_of("grantingVoters"))


def _voter(message: Message) -> Voter:
    endpoints = tuple(Endpoint(each["name"], each["host"], each["port"]) for each in message["endpoints"])
    feature = message["kRaftVersionFeature"]
    return Voter(
        message["voterId"],
        message["voterDirectoryId"],
        endpoints,
        feature["minSupportedVersion"],
        feature["maxSupportedVersion"],
    )


FIRST_WITH_DIRECTORIES = 1
"""Version of LeaderChangeMessage."""

_MESSAGES: dict[int, tuple[str, Callable[[Message], ControlValue]]] = {
    ControlRecordType.LEADER_CHANGE: ("LeaderChangeMessage", _leader_change),
    ControlRecordType.SNAPSHOT_HEADER: (
        "SnapshotHeaderRecord",
        lambda message: SnapshotHeader(message["version"], message["lastContainedLogTimestamp"]),
    ),
    ControlRecordType.SNAPSHOT_FOOTER: ("SnapshotFooterRecord", lambda message: SnapshotFooter(message["version"])),
    ControlRecordType.KRAFT_VERSION: (
        "KRaftVersionRecord",
        lambda message: KRaftVersion(message["version"], message["kRaftVersion"]),
    ),
    ControlRecordType.KRAFT_VOTERS: (
        "VotersRecord",
        lambda message: Voters(message["version"], tuple(map(_voter, message["voters"]))),
    ),
}
"""The messages that are values of control records, by type: Kafka's name, and how it becomes a value."""
