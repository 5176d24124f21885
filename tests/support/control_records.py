"""Writes control records: markers as a coordinator writes them, and the records of KRaft by Kafka's schemas."""

from construct import Struct

from formats.log.control_record import (
    END_TRANSACTION_MARKER,
    KEY,
    ControlRecord,
    ControlRecordType,
    ControlValue,
    EndTransactionMarker,
    KRaftVersion,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    Voters,
)
from formats.log.record_batch import Record
from formats.message import Message, write_message
from formats.message_schema import load_schemas


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
    return Record(timestamp_delta, offset_delta, key, _value(control.value))


def _value(value: ControlValue) -> bytes:
    match value:
        case bytes():
            return value
        case EndTransactionMarker():
            fields = {"version": value.version, "coordinator_epoch": value.coordinator_epoch, "rest": value.rest}
            return _built(END_TRANSACTION_MARKER, fields)
        case LeaderChange():
            has_directories = value.version >= 1
            message = {
                "leaderId": value.leader_id,
                "voters": [_changed_voter(each, has_directories) for each in value.voters],
                "grantingVoters": [_changed_voter(each, has_directories) for each in value.granting_voters],
            }
            return _message("LeaderChangeMessage", value.version, message)
        case SnapshotHeader():
            time = value.last_contained_log_timestamp
            return _message("SnapshotHeaderRecord", value.version, {"lastContainedLogTimestamp": time})
        case SnapshotFooter():
            return _message("SnapshotFooterRecord", value.version, {})
        case KRaftVersion():
            return _message("KRaftVersionRecord", value.version, {"kRaftVersion": value.kraft_version})
        case Voters():
            return _message("VotersRecord", value.version, {"voters": [_voter(each) for each in value.voters]})


def _built(grammar: Struct, fields: Message) -> bytes:
    return bytes(grammar.build(fields))


def _message(name: str, version: int, fields: Message) -> bytes:
    schema = load_schemas("control-records")[name]
    return write_message(schema, {"version": version, **fields}, min(version, schema.versions.highest))


def _changed_voter(voter: Voter, has_directories: bool) -> Message:
    fields: Message = {"voterId": voter.voter_id}
    if has_directories:
        fields["voterDirectoryId"] = voter.directory_id or bytes(16)
    return fields


def _voter(voter: Voter) -> Message:
    return {
        "voterId": voter.voter_id,
        "voterDirectoryId": voter.directory_id or bytes(16),
        "endpoints": [{"name": each.name, "host": each.host, "port": each.port} for each in voter.endpoints],
        "kRaftVersionFeature": {
            "minSupportedVersion": voter.kraft_version_min,
            "maxSupportedVersion": voter.kraft_version_max,
        },
    }
