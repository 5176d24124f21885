"""The kind of a file, from its name alone or, if the name does not show it, from its first bytes.

Names are read generously, unlike ``formats.partition.file_names``: copies, files of a remote tier and files with an added suffix
keep their kind. Index files have no magic bytes, so only a name identifies them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from formats.errors import FormatError
from formats.limits import INT64_MAX
from formats.log.record_batch import check_batch, parse_batch_header
from formats.partition.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    QUORUM_STATE,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    DumpedKind,
)
from formats.partition.producer_snapshot import ENTRY_BYTES, HEADER_BYTES, VERSION

__all__ = ["HEAD_BYTES", "KindOfName", "kind_of_content", "kind_of_name"]

HEAD_BYTES = 1 << 16
"""First bytes of a file that ``kind_of_content`` needs."""


@dataclass(frozen=True, slots=True)
class KindOfName:
    """The facts that a name shows.

    Attributes:
        kind: None if the name does not show it.
        offset: int64, the number before the first dot or dash: base offset of a segment file, end offset of a snapshot; None without one.
        epoch: int32, of a KRaft checkpoint.
    """

    kind: DumpedKind | None
    offset: int | None = None
    epoch: int | None = None


_WHOLE_NAMES = {
    LEADER_EPOCH_CHECKPOINT: DumpedKind.LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA: DumpedKind.PARTITION_METADATA,
    QUORUM_STATE: DumpedKind.QUORUM_STATE,
    META_PROPERTIES: DumpedKind.META_PROPERTIES,
    CLEAN_SHUTDOWN: DumpedKind.CLEAN_SHUTDOWN,
    **dict.fromkeys(
        (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT),
        DumpedKind.OFFSET_CHECKPOINT,
    ),
}

_ENDINGS = {
    ".log": DumpedKind.LOG,
    ".snapshot": DumpedKind.SNAPSHOT,
    ".index": DumpedKind.OFFSET_INDEX,
    ".timeindex": DumpedKind.TIME_INDEX,
    ".txnindex": DumpedKind.TRANSACTION_INDEX,
    ".checkpoint": DumpedKind.KRAFT_CHECKPOINT,
    ".leader_epoch_checkpoint": DumpedKind.LEADER_EPOCH_CHECKPOINT,  # of the remote tier
    ".leader-epoch-checkpoint": DumpedKind.LEADER_EPOCH_CHECKPOINT,
}

# Suffixes that a broker adds, and that we add to a wrong snapshot set aside or to a kept copy.
_MARKS = re.compile(r"(?:\.(?:deleted|cleaned|swap|tmp|part))+$")
_OFFSET = re.compile(r"([0-9]{1,20})(?:-([0-9]{10})(?=[.-])|(?=[.-]))")


def kind_of_name(name: str) -> KindOfName:
    """Classifies the last part of a path. Never raises."""
    bare = _MARKS.sub("", name)
    kind = _WHOLE_NAMES.get(bare) or next((kind for ending, kind in _ENDINGS.items() if bare.endswith(ending)), None)
    match = _OFFSET.match(bare) if kind is not None else None
    if match is None or int(match[1]) > INT64_MAX:
        return KindOfName(kind)
    return KindOfName(kind, int(match[1]), int(match[2]) if match[2] and kind is DumpedKind.KRAFT_CHECKPOINT else None)


_TEXTS = (
    (re.compile(rb"0\r?\n[0-9]+\r?\n[0-9]+ [0-9]+\r?\n"), DumpedKind.LEADER_EPOCH_CHECKPOINT),
    (re.compile(rb"0\r?\n[0-9]+\r?\n\S+ [0-9]+ -?[0-9]+\r?\n"), DumpedKind.OFFSET_CHECKPOINT),
    (re.compile(rb"version: [0-9]+\r?\ntopic_id: "), DumpedKind.PARTITION_METADATA),
    (re.compile(rb"(?:[#!][^\n]*\n)*(?:[a-z.]+=[^\n]*\n)*(?:broker\.id|node\.id|cluster\.id)="), DumpedKind.META_PROPERTIES),
    (re.compile(rb'\{"version":[0-9]+,"brokerEpoch":'), DumpedKind.CLEAN_SHUTDOWN),
    (re.compile(rb'\{[^}]*"leaderEpoch":'), DumpedKind.QUORUM_STATE),
)


def kind_of_content(head: bytes, size_bytes: int) -> DumpedKind | None:
    """The kind of a file by its first ``HEAD_BYTES`` and its size; None if they do not show it. Never raises."""
    for pattern, kind in _TEXTS:
        if pattern.match(head):
            return kind
    entries = int.from_bytes(head[6:HEADER_BYTES], "big", signed=True)
    if (
        len(head) >= HEADER_BYTES
        and int.from_bytes(head[:2], "big") == VERSION
        and size_bytes == HEADER_BYTES + entries * ENTRY_BYTES
    ):
        return DumpedKind.SNAPSHOT
    return DumpedKind.LOG if _begins_with_a_batch(head, size_bytes) else None


def _begins_with_a_batch(head: bytes, size_bytes: int) -> bool:
    """Whether it begins with a batch: whole and with the right checksum, or larger than the head and of magic 2 (header only)."""
    try:
        header = parse_batch_header(head)
        if header.base_offset < 0 or header.size_bytes > size_bytes:
            return False
        if header.size_bytes > len(head):
            return header.magic == 2 and header.last_offset_delta >= 0 and header.record_count >= 0 and header.attributes < 1 << 7
        check_batch(head)
    except FormatError:
        return False
    return True
