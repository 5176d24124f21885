"""The lines of ``inspect dump``: those of kafka-dump-log for people, one JSON object each for programs."""

from __future__ import annotations

import base64
import functools
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict

from formats.log.control_record import (
    ControlValue,
    EndTransactionMarker,
    KRaftVersion,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    Voters,
)
from formats.partition.file_names import DumpedKind
from formats.partition.partition_metadata import uuid_to_text
from snaprebuild import __version__
from snaprebuild.cli.render.row_text import RowText
from snaprebuild.cli.table import printable
from snaprebuild.documents.envelope import reported
from snaprebuild.findings import Finding, exit_code_of
from snaprebuild.inspect.dump_items import BATCH_FORMS, Dump, ItemForm, Items
from snaprebuild.inspect.record_decoders import DecodedText
from snaprebuild.published import encoded_members
from snaprebuild.storage.local.document_file import write_text_file

__all__ = ["JsonLines", "TextLines", "write_dumps"]

Column = Sequence[Any]


def write_dumps(
    dumps: Sequence[Dump | Finding], findings: list[Finding], *, as_json: bool, payload: bool, saved: str | None = None
) -> None:
    """Writes files to stdout, item by item: no file is in memory as a whole.

    Args:
        dumps: opened files, and findings in place of those that could not be opened.
        findings: filled with those of all files, also where the reader of stdout goes away.
        as_json: one JSON object a line.
        payload: lines for people have keys, values and headers of records.
        saved: path of a file that gets the JSON lines too, whole, also where the reader of stdout goes away; None for none.

    Raises:
        WriteFailedError: the file cannot be written.
        OSError: stdout cannot be written.
    """
    shown: JsonLines | TextLines = JsonLines() if as_json else TextLines(payload=payload)
    if saved is None:
        for (text,) in _dumped(dumps, findings, [shown]):
            sys.stdout.write(text)
        return
    failures: list[OSError] = []

    def saved_lines() -> Iterator[str]:
        for text, line in _dumped(dumps, findings, [shown, JsonLines()]):
            if not failures:
                try:
                    sys.stdout.write(text)
                except OSError as error:
                    failures.append(error)
            yield line

    write_text_file(saved, saved_lines())
    if failures:
        raise failures[0]


def _dumped(
    dumps: Sequence[Dump | Finding], findings: list[Finding], forms: Sequence[JsonLines | TextLines]
) -> Iterator[list[str]]:
    """The next lines of files, in each of the forms."""
    for dump in dumps:
        if not isinstance(dump, Dump):
            findings.append(dump)
            yield [each.findings([dump]) for each in forms]
            continue
        yield [each.begin(dump) for each in forms]
        try:
            for items in dump.items:
                yield [each.items(items) for each in forms]
        finally:
            findings.extend(dump.findings)
        yield [each.end(dump) for each in forms]
        yield [each.findings(dump.findings) for each in forms]
    yield [each.last(len(dumps), findings) for each in forms]


class _Lines:
    """The lines of items; those of columns that many items share, batches and their records in turn, are made once."""

    def __init__(self) -> None:
        self._rendered: dict[ItemForm, _RenderedColumns] = {}

    def items(self, items: Items) -> str:
        """The lines of items."""
        if len(items) == items.column_length:
            return self._text_of(items)
        rendered = self._rendered.get(items.form)
        if rendered is None or rendered.columns is not items.columns:
            rendered = self._rendered[items.form] = _RenderedColumns.of(items.columns, self._text_of(items))
        return rendered.text[
            rendered.starts[items.start] : rendered.starts[len(rendered.starts) - 1 if items.stop is None else items.stop]
        ]

    def _text_of(self, items: Items) -> str:
        """A line for each row of the columns."""
        raise NotImplementedError


class _RenderedColumns(msgspec.Struct, frozen=True):
    """The lines of all rows of some columns, and where each begins; at the end, where the last one ends."""

    columns: dict[str, Any]
    text: str
    starts: list[int]

    @classmethod
    def of(cls, columns: dict[str, Any], text: str) -> _RenderedColumns:
        return cls(columns, text, [0, *itertools.accumulate(len(line) + 1 for line in text.split("\n")[:-1])])


# --- JSON ------------------------------------------------------------------------------------------------------------------


class JsonLines(_Lines):
    """One JSON object a line: ``file``, its items, ``file_end``, its findings; at the very end ``end``."""

    def begin(self, dump: Dump) -> str:
        """The line that says which file the following are of."""
        return _line(
            {
                "schema": "snaprebuild.inspect-dump/1",
                "snaprebuild": __version__,
                "item": "file",
                "file": dump.path,
                "kind": dump.kind.value,
                "kind_from": dump.kind_from,
                "offset": dump.offset,
                "epoch": dump.epoch,
                "size_bytes": dump.size_bytes,
            }
        )

    def _text_of(self, items: Items) -> str:
        if items.form is ItemForm.SIZED_RECORD:
            return _JSON_SIZED_RECORDS.lines(items.columns)
        if items.form in BATCH_FORMS:
            return _json_batches(items.form, tuple(items.columns)).lines(_batches(items, _json_column))
        columns = {name: _json_column(name, column) for name, column in items.columns.items()}
        template = "".join([f'{{"item":"{items.form.value}"', *(f',"{name}":%s' for name in columns), "}\n"])
        return "".join([template % row for row in zip(*columns.values(), strict=True)])

    def end(self, dump: Dump) -> str:
        """The line after the items of a file."""
        tail = dump.tail
        return _line(
            {
                "item": "file_end",
                "items": dump.item_count,
                "tail": None if tail is None else tail.kind.value,
                "valid_bytes": None if tail is None else tail.position_bytes,
                "preallocated_bytes": dump.preallocated_bytes,
            }
        )

    def findings(self, findings: Sequence[Finding]) -> str:
        """The lines of the findings of a file."""
        return "".join(
            _line(
                {
                    "item": "finding",
                    **{name: getattr(each, name, None) for name in ("position", "expected", "found")},
                    **encoded_members(reported(each)),
                }
            )
            for each in findings
        )

    def last(self, files: int, findings: Sequence[Finding]) -> str:
        """The line that says that nothing is missing."""
        return _line({"item": "end", "files": files, "findings": len(findings), "exit_code": exit_code_of(findings)})


_JSON_SIZED_RECORDS = RowText.of(
    '{"item":"record","offset":{offset},"timestamp_type":"{timestamp_type}","timestamp":{timestamp},"key_size":{key_size},'
    '"value_size":{value_size},"sequence":{sequence},"header_keys":[],"key":null,"value":null,"header_values":null}\n'
)


@functools.cache
def _json_batches(form: ItemForm, names: tuple[str, ...]) -> RowText:
    """Lines of batches with these fields."""
    values = (f'"{{{name}}}"' if name in ("timestamp_type", "codec") else f"{{{name}}}" for name in names)
    fields = "".join(f',"{name}":{value}' for name, value in zip(names, values, strict=True))
    return RowText.of(f'{{"item":"{form.value}"{fields}}}\n')


def _batches(items: Items, text_column: Callable[[str, Column], Column]) -> dict[str, Any]:
    """The columns of batches, of which the delete horizon is the one that has to be put into words yet."""
    name = "delete_horizon_ms"
    if name in items.columns:
        return {**items.columns, name: text_column(name, items.columns[name])}
    return items.columns


def _line(fields: Mapping[str, object]) -> str:
    return json.dumps(fields, separators=(",", ":")) + "\n"


def _json_column(name: str, column: Column) -> Column:
    """A column as JSON texts, or as numbers, which are printed the same way."""
    convert = _JSON_OF.get(name)
    if convert is not None:
        return [convert(value) for value in column]
    first = next((value for value in column if value is not None), None)
    if isinstance(first, str):
        return [_json_text(value) for value in column]
    if isinstance(first, bool):
        return [_JSON_WORDS[value] for value in column]
    if None in column:
        return ["null" if value is None else value for value in column]
    return column


_JSON_WORDS = {None: "null", True: "true", False: "false"}


_json_text = json.JSONEncoder().encode


def _payload_json(data: bytes | None) -> str:
    if data is None:
        return "null"
    return _json_text(_payload_object(data))


def _payload_object(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _header_values_json(values: Sequence[bytes | None] | None) -> str:
    if values is None:
        return "null"
    return json.dumps([None if value is None else _payload_object(value) for value in values])


def _control_json(value: ControlValue | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return _json_text({"base64": base64.b64encode(value).decode("ascii")})
    return _json_text(_plain(value))


def _plain(value: Any) -> Any:
    """The fields of a control record with its bytes as text: those of 16 are ids."""
    match value:
        case msgspec.Struct():
            return _plain(asdict(value))
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case bytes():
            return uuid_to_text(value) if len(value) == 16 else base64.b64encode(value).decode("ascii")
        case _:
            return value


def _decoded_json(value: DecodedText | None) -> str:
    """The JSON of a decoded payload, with every odd character as an escape; a text as a string."""
    if value is None:
        return "null"
    if not value.is_json:
        return _json_text(value.text)
    return value.text if value.text.isprintable() else json.dumps(json.loads(value.text))


_JSON_OF: dict[str, Callable[[Any], str]] = {
    "decoded_key": _decoded_json,
    "decoded_value": _decoded_json,
    "key": _payload_json,
    "value": _payload_json,
    "header_values": _header_values_json,
    "header_keys": _json_text,
    "content": _control_json,
    "type": _json_text,
    "cluster_id": _json_text,
    "directory_id": _json_text,
    "voted_directory_id": _json_text,
}

# --- text ------------------------------------------------------------------------------------------------------------------


class TextLines(_Lines):
    """The lines that ``kafka-dump-log --deep-iteration`` of 4.3 prints, and for files that it does not know such as it might."""

    def __init__(self, *, payload: bool) -> None:
        super().__init__()
        self._payload = payload

    def begin(self, dump: Dump) -> str:
        """The lines above the items of a file."""
        kind_texts = {"name": "", "option": f" as {dump.kind.value}", "content": f" as {dump.kind.value}, by its content"}
        lines = [f"Dumping {printable(dump.path)}{kind_texts[dump.kind_from]}"]
        if dump.kind is DumpedKind.LOG and dump.offset is not None:
            lines.append(f"Log starting offset: {dump.offset}")
        elif dump.kind is DumpedKind.KRAFT_CHECKPOINT:
            has_name = dump.offset is not None and dump.epoch is not None
            lines.append(f"Snapshot end offset: {dump.offset}, epoch: {dump.epoch}" if has_name else "KRaft bootstrap snapshot")
        return "".join(f"{line}\n" for line in lines)

    def _text_of(self, items: Items) -> str:
        if items.form is ItemForm.SIZED_RECORD:
            return _SIZED_RECORD_LINES.lines(items.columns)
        if items.form in BATCH_FORMS:
            return _BATCH_LINES[items.form].lines(_batches(items, _text_column))
        columns = _text_columns(items, payload=self._payload)
        names, template = _TEMPLATES[items.form]
        return "".join([template % row for row in zip(*(columns[name] for name in names), strict=True)])

    def end(self, dump: Dump) -> str:
        """The lines below the items of a file."""
        if dump.tail is None or dump.tail.error is None:
            return ""
        name = printable(dump.path.rpartition("/")[2])
        return f"Found {dump.size_bytes - dump.tail.position_bytes} invalid bytes at the end of {name}\n"

    def findings(self, findings: Sequence[Finding]) -> str:
        """Nothing: stderr has them."""
        return ""

    def last(self, files: int, findings: Sequence[Finding]) -> str:
        """Nothing."""
        return ""


def _text_columns(items: Items, *, payload: bool) -> Mapping[str, Column]:
    columns = {name: _text_column(name, column) for name, column in items.columns.items()}
    match items.form:
        case ItemForm.CONTROL_RECORD:
            kinds = zip(items.columns["type"], items.columns["type_id"], items.columns["content"], strict=True)
            columns["control"] = [_control_text(*each) for each in kinds]
        case ItemForm.RECORD | ItemForm.LEGACY_RECORD:
            if "decoded_key" in columns:
                columns["payload"] = _decoded_texts(items)
            else:
                columns["payload"] = _payload_texts(items) if payload else [""] * items.column_length
        case ItemForm.PRODUCER:
            names = ("first_sequence", "last_sequence", "last_offset", "offset_delta", "timestamp")
            rows = zip(*(items.columns[name] for name in names), strict=True)
            columns["batch"] = ["" if row[0] is None else _PRODUCER_BATCH % row for row in rows]
            opened = items.columns["current_txn_first_offset"]
            columns["current_txn_first_offset"] = [_optional_long(None if value < 0 else value) for value in opened]
        case ItemForm.OFFSET_INDEX_ENTRY:
            columns["log"] = _mismatches(items, "log_offset", "log offset")
        case ItemForm.TIME_INDEX_ENTRY:
            columns["log"] = _mismatches(items, "log_timestamp", "log timestamp")
        case ItemForm.ABORTED_TRANSACTION:
            columns["log"] = _mismatches(items, "log_producer_id", "producerId of the log's abort marker")
    return columns


def _text_column(name: str, column: Column) -> Column:
    if name == "delete_horizon_ms":
        return [_optional_long(value) for value in column]
    if name == "header_keys":
        return [f"[{','.join(map(_printable_key, value))}]" for value in column]
    if isinstance(column[0], bool):
        return ["true" if value else "false" for value in column]
    if None in column:
        return ["none" if value is None else value for value in column]
    return [printable(value) for value in column] if name in _FREE_TEXT else column


_printable_key = functools.lru_cache(maxsize=1024)(printable)


_FREE_TEXT = ("topic", "cluster_id", "voted_directory_id")
"""Columns that hold whatever somebody wrote."""


def _optional_long(value: int | None) -> str:
    """The text that Java prints."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _mismatches(items: Items, column: str, what: str) -> list[str]:
    texts = []
    for value, agrees in zip(items.columns[column], items.columns["agrees"], strict=True):
        if agrees is False:
            texts.append(f" {what}: {'none' if value is None else value}")
        else:
            texts.append("")
    return texts


def _payload_texts(items: Items) -> list[str]:
    texts = []
    for key, value in zip(items.columns["key"], items.columns["value"], strict=True):
        parts = [] if key is None else [f" key: {_payload_text(key)}"]
        if value is not None:
            parts.append(f" payload: {_payload_text(value)}")
        texts.append("".join(parts))
    return texts


def _decoded_texts(items: Items) -> list[str]:
    texts = []
    for key, value in zip(items.columns["decoded_key"], items.columns["decoded_value"], strict=True):
        key_text = "" if key is None else f" key: {printable(key.text)}"
        value_text = "" if value is None else f" payload: {printable(value.text)}"
        texts.append(key_text + value_text)
    return texts


def _payload_text(data: bytes) -> str:
    """Text that can be printed, else base64 that says so."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if text.isprintable() and (text or not data):
        return text
    return f"base64:{base64.b64encode(data).decode('ascii')}"


def _control_text(type_name: str | None, type_id: int | None, value: ControlValue | None) -> str:
    match value:
        case None:
            return " unreadable"
        case EndTransactionMarker():
            return f" endTxnMarker: {type_name} coordinatorEpoch: {value.coordinator_epoch}"
        case LeaderChange():
            fields = {
                "version": value.version,
                "leaderId": value.leader_id,
                "voters": [_leader_change_voter(each) for each in value.voters],
                "grantingVoters": [_leader_change_voter(each) for each in value.granting_voters],
            }
            return f" LeaderChange: {_compact(fields)}"
        case SnapshotHeader():
            fields = {"version": value.version, "lastContainedLogTimestamp": value.last_contained_log_timestamp}
            return f" SnapshotHeader {_compact(fields)}"
        case SnapshotFooter():
            return f" SnapshotFooter {_compact({'version': value.version})}"
        case KRaftVersion():
            return f" KRaftVersion {_compact({'version': value.version, 'kRaftVersion': value.kraft_version})}"
        case Voters():
            return f" KRaftVoters {_compact({'version': value.version, 'voters': [_voter(each) for each in value.voters]})}"
        case _:
            return f" controlType: {type_name}({type_id})"


def _leader_change_voter(voter: Voter) -> dict[str, object]:
    fields: dict[str, object] = {"voterId": voter.voter_id}
    if voter.directory_id is not None:
        fields["voterDirectoryId"] = uuid_to_text(voter.directory_id)
    return fields


def _voter(voter: Voter) -> dict[str, object]:
    return {
        "voterId": voter.voter_id,
        "voterDirectoryId": uuid_to_text(voter.directory_id or bytes(16)),
        "endpoints": [asdict(each) for each in voter.endpoints],
        "kRaftVersionFeature": {"minSupportedVersion": voter.kraft_version_min, "maxSupportedVersion": voter.kraft_version_max},
    }


def _compact(fields: Mapping[str, object]) -> str:
    return json.dumps(fields, separators=(",", ":"))


_LEGACY = (
    "position: {position} {timestamp_type}: {timestamp} size: {size} magic: {magic} compresscodec: {codec} crc: {crc} "
    "isvalid: {is_valid}"
)
_RECORD = "| offset: {offset} {timestamp_type}: {timestamp} keySize: {key_size} valueSize: {value_size}"
_PRODUCER_BATCH = "firstSequence: %d lastSequence: %d lastOffset: %d offsetDelta: %d timestamp: %d"
_TEXTS = {
    ItemForm.BATCH: (
        "baseOffset: {base_offset} lastOffset: {last_offset} count: {record_count} baseSequence: {base_sequence} "
        "lastSequence: {last_sequence} producerId: {producer_id} producerEpoch: {producer_epoch} "
        "partitionLeaderEpoch: {partition_leader_epoch} isTransactional: {is_transactional} isControl: {is_control} "
        "deleteHorizonMs: {delete_horizon_ms} " + _LEGACY
    ),
    ItemForm.LEGACY_BATCH: "offset: {offset} " + _LEGACY,
    ItemForm.RECORD: _RECORD + " sequence: {sequence} headerKeys: {header_keys}{payload}",
    ItemForm.LEGACY_RECORD: _RECORD + " isValid: {is_valid} crc: {crc}{payload}",
    ItemForm.CONTROL_RECORD: _RECORD + " sequence: {sequence} headerKeys: {header_keys}{control}",
    ItemForm.PRODUCER: (
        "producerId: {producer_id} producerEpoch: {epoch} coordinatorEpoch: {coordinator_epoch} "
        "currentTxnFirstOffset: {current_txn_first_offset} lastTimestamp: {timestamp} {batch}"
    ),
    ItemForm.OFFSET_INDEX_ENTRY: "offset: {offset} position: {position}{log}",
    ItemForm.TIME_INDEX_ENTRY: "timestamp: {timestamp} offset: {offset}{log}",
    ItemForm.ABORTED_TRANSACTION: (
        "version: {version} producerId: {producer_id} firstOffset: {first_offset} lastOffset: {last_offset} "
        "lastStableOffset: {last_stable_offset}{log}"
    ),
    ItemForm.LEADER_EPOCH: "epoch: {epoch} startOffset: {start_offset}",
    ItemForm.PARTITION_OFFSET: "topic: {topic} partition: {partition} offset: {offset}",
    ItemForm.PARTITION_METADATA: "version: {version} topicId: {topic_id}",
    ItemForm.META_PROPERTIES: "version: {version} nodeId: {node_id} clusterId: {cluster_id} directoryId: {directory_id}",
    ItemForm.CLEAN_SHUTDOWN: "brokerEpoch: {broker_epoch}",
    ItemForm.QUORUM_STATE: (
        "dataVersion: {data_version} leaderId: {leader_id} leaderEpoch: {leader_epoch} votedId: {voted_id} "
        "votedDirectoryId: {voted_directory_id}"
    ),
}


def _compiled(text: str) -> tuple[tuple[str, ...], str]:
    """The names of the columns in their order, and a template for their values."""
    return tuple(re.findall(r"\{(\w+)\}", text)), re.sub(r"\{\w+\}", "%s", text) + "\n"


_TEMPLATES = {form: _compiled(text) for form, text in _TEXTS.items() if form not in BATCH_FORMS}
_SIZED_RECORD_LINES = RowText.of(_RECORD + " sequence: {sequence} headerKeys: []\n")
_BATCH_LINES = {form: RowText.of(_TEXTS[form] + "\n") for form in BATCH_FORMS}
