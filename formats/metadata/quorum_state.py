"""``quorum-state`` of ``__cluster_metadata``: a KRaft node's view of its quorum, one JSON object.

It is the message of ``formats/schemas/quorum-state.json`` and ``data_version``, its version.

Source: ``FileQuorumStateStore``, ``QuorumStateData``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from formats import limits
from formats.errors import BadValueError, FormatError, LimitExceededError
from formats.message_schema import load_schemas
from formats.metadata.message_json import message_from_json
from formats.partition.partition_metadata import uuid_to_text
from formats.text_lines import shown, shown_json

__all__ = ["QuorumState", "read_quorum_state"]

_VERSION = "data_version"


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The content of the file.

    Attributes:
        data_version: 0 (static voters) or 1; fields of later versions are ignored.
        leader_id: int32, -1 for none.
        leader_epoch: int32, the latest one known to the node.
        voted_id: int32, -1 for none.
        voted_directory_id: text of a UUID, None in version 0.
        cluster_id: version 0 only, where brokers leave it empty; None in version 1.
        applied_offset: int64; version 0 only, where it is 0; None in version 1.
        voters: ids of the static voters; version 0 only; None in version 1.
    """

    data_version: int
    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: str | None = None
    cluster_id: str | None = None
    applied_offset: int | None = None
    voters: tuple[int, ...] | None = None


def read_quorum_state(data: bytes | memoryview, *, file: str | None = None) -> QuorumState:
    """Reads ``quorum-state``.

    Raises:
        BadValueError: no JSON object, or a field that is absent or of another kind.
        LimitExceededError: the file is larger than ``formats.limits`` allows.
    """
    try:
        return _read(bytes(data))
    except FormatError as error:
        raise error.in_file(file) from None


def _read(data: bytes) -> QuorumState:
    what = "quorum state"
    if len(data) > limits.QUORUM_STATE_BYTES_MAX:
        raise LimitExceededError(what, expected=f"at most {limits.QUORUM_STATE_BYTES_MAX} bytes", found=len(data))
    try:
        content = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadValueError(what, expected="JSON", found=shown(str(error))) from None
    if not isinstance(content, dict):
        raise BadValueError(what, expected="a JSON object", found=type(content).__name__)
    version = content.get(_VERSION)
    if not isinstance(version, int) or isinstance(version, bool) or not 0 <= version <= limits.INT32_MAX:
        raise BadValueError(f"{what} {_VERSION}", expected="an int32, not negative", found=shown(shown_json(version)))
    schema = load_schemas("quorum-state")["QuorumStateData"]
    schema_version = min(version, schema.versions.highest)
    fields = message_from_json(schema, content, schema_version, what=what)
    voters = fields["currentVoters"]
    return QuorumState(
        data_version=version,
        leader_id=fields["leaderId"],
        leader_epoch=fields["leaderEpoch"],
        voted_id=fields["votedId"],
        voted_directory_id=uuid_to_text(fields["votedDirectoryId"]) if schema_version else None,
        cluster_id=None if schema_version else fields["clusterId"],
        applied_offset=None if schema_version else fields["appliedOffset"],
        voters=None if schema_version or voters is None else tuple(each["voterId"] for each in voters),
    )
