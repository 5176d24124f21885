"""Files of brokers and records of coordinators as Kafka writes them: the product only reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from formats import limits
from formats.broker.broker_files import (
    META_PROPERTIES_VERSION_MAX,
    CleanShutdown,
    MetaProperties,
    Properties,
    Property,
)
from formats.errors import BadValueError, BadVersionError
from formats.message import Message, write_message
from formats.message_schema import load_schemas
from formats.metadata.message_json import message_to_json
from formats.metadata.quorum_state import QuorumState
from formats.partition.checkpoint_file import OffsetCheckpointEntry
from formats.partition.partition_metadata import ZERO_UUID, uuid_from_text, uuid_to_text
from formats.text_lines import shown

_ESCAPE = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!"}


def write_properties(properties: Properties) -> bytes:
    """Writes a properties file as ``Properties.store`` does: comments first, then one ``key=value`` line for each entry.

    What a broker wrote comes back byte for byte. A file edited by hand keeps its meaning, but loses blank lines, line breaks inside
    values, and the places of its comments.

    Raises:
        BadValueError: a comment that would be read as a property.
    """
    lines = []
    for comment in properties.comments:
        if comment.lstrip(" \t\f")[:1] not in ("#", "!") or "\n" in comment or "\r" in comment:
            raise BadValueError("properties comment", expected="one line that begins with '#' or '!'", found=shown(comment))
        lines.append(comment)
    lines.extend(f"{_escaped(entry.key, is_key=True)}={_escaped(entry.value)}" for entry in properties.entries)
    try:
        return "".join(f"{line}\n" for line in lines).encode("latin-1")
    except UnicodeEncodeError as error:
        raise BadValueError("properties comment", expected="latin-1 text", found=error.reason) from None


def _escaped(text: str, *, is_key: bool = False) -> str:
    """``Properties.saveConvert``: all blanks of a key are escaped, of a value only one that begins it."""
    parts = []
    for index, character in enumerate(text):
        if character == " ":
            parts.append("\\ " if is_key or index == 0 else " ")
        elif character in _ESCAPE:
            parts.append(_ESCAPE[character])
        elif " " < character < "\x7f":
            parts.append(character)
        else:
            code = character.encode("utf-16-be", "surrogatepass")
            parts.extend(f"\\u{code[at]:02X}{code[at + 1]:02X}" for at in range(0, len(code), 2))
    return "".join(parts)


def write_meta_properties(meta: MetaProperties) -> bytes:
    """Writes ``meta.properties``, the keys in the order in which Java's hash table of properties yields them.

    Raises:
        BadVersionError: a version other than 0, 1, 2.
        BadValueError: a value that could not be read back, or a required one is None.
    """
    if not 0 <= meta.version <= META_PROPERTIES_VERSION_MAX:
        raise BadVersionError("meta.properties version", expected=f"0..{META_PROPERTIES_VERSION_MAX}", found=meta.version)
    if meta.version > 0 and (meta.node_id is None or (meta.version == 1 and meta.cluster_id is None)):
        raise BadValueError("meta.properties", expected=f"the ids of version {meta.version}", found="nothing")
    if meta.version == 2 and meta.directory_id is None:
        raise BadValueError("directory.id", expected="a directory id in version 2", found="nothing")
    if meta.node_id is not None and not limits.INT32_MIN <= meta.node_id <= limits.INT32_MAX:
        raise BadValueError("node id", expected="an int32", found=meta.node_id)
    ordered = (
        ("broker.id" if meta.version == 0 else "node.id", None if meta.node_id is None else str(meta.node_id)),
        ("node.id", meta.ignored_node_id),
        ("directory.id", None if meta.directory_id is None else uuid_to_text(meta.directory_id)),
        ("version", str(meta.version)),
        ("cluster.id", meta.cluster_id),
    )
    entries = tuple(Property(key, value, 0) for key, value in ordered if value is not None)
    return write_properties(Properties(entries, meta.comments))


def write_clean_shutdown(clean_shutdown: CleanShutdown) -> bytes:
    """Writes ``.kafka_cleanshutdown``: empty without an epoch, as older brokers do, else the JSON of KIP-966.

    Raises:
        BadValueError: the epoch is no int64.
    """
    epoch = clean_shutdown.broker_epoch
    if epoch is None:
        return b""
    if not limits.INT64_MIN <= epoch <= limits.INT64_MAX:
        raise BadValueError("broker epoch", expected="an int64", found=epoch)
    return f'{{"version":0,"brokerEpoch":{epoch}}}'.encode("ascii")


def write_quorum_state(state: QuorumState) -> bytes:
    """Writes ``quorum-state`` as a node does.

    Raises:
        BadVersionError: a version that this library does not know.
        BadValueError: the directory id is no UUID.
    """
    directory = state.voted_directory_id
    fields = {
        "clusterId": state.cluster_id or "",
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
        "votedDirectoryId": ZERO_UUID if directory is None else uuid_from_text(directory),
        "appliedOffset": state.applied_offset or 0,
        "currentVoters": None if state.voters is None else [{"voterId": each} for each in state.voters],
    }
    content = message_to_json(load_schemas("quorum-state")["QuorumStateData"], fields, state.data_version)
    return json.dumps({**content, "data_version": state.data_version}, separators=(",", ":")).encode("ascii")


def write_offset_checkpoint(entries: Iterable[OffsetCheckpointEntry], *, created_only: bool = False) -> bytes:
    """Writes an offset checkpoint as the broker does, entries in the order given.

    Args:
        entries: the entries.
        created_only: the empty file of a checkpoint that was created and never written; ``entries`` must be empty.

    Raises:
        BadValueError: an entry that could not be read back.
    """
    lines = [_offset_line(entry) for entry in entries]
    if created_only:
        if lines:
            raise BadValueError("checkpoint", expected="no entries in a file that was never written", found=len(lines))
        return b""
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()


def _offset_line(entry: OffsetCheckpointEntry) -> str:
    try:
        entry.topic.encode()
    except UnicodeEncodeError:
        raise BadValueError("topic", expected="text", found=repr(entry.topic)) from None
    if not entry.topic or re.search(r"\s", entry.topic, re.ASCII):
        raise BadValueError("topic", expected="a name without white space", found=repr(entry.topic))
    if not limits.INT32_MIN <= entry.partition <= limits.INT32_MAX:
        raise BadValueError("partition", expected="an int32", found=entry.partition)
    if not limits.INT64_MIN <= entry.offset <= limits.INT64_MAX:
        raise BadValueError("offset", expected="an int64", found=entry.offset)
    return f"{entry.topic} {entry.partition} {entry.offset}"


def write_transaction_state(transactional_id: str, fields: Message, version: int = 1) -> tuple[bytes, bytes]:
    """Key and value of a record, as a coordinator writes it; ``fields`` are those of ``TransactionLogValue``."""
    schemas = load_schemas("transaction-state")
    key = write_message(schemas["TransactionLogKey"], {"transactionalId": transactional_id}, 0)
    return bytes(2) + key, version.to_bytes(2, "big") + write_message(schemas["TransactionLogValue"], fields, version)
