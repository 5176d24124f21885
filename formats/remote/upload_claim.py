"""Claims of ``snaprebuild tier upload``: the object that decides which of several uploaders copies a segment. Our own format.

::

    <prefix>.snaprebuild-claims/<topic id>/<partition>/<first offset, 20 digits>-<last offset, 20 digits>.json

The prefix is that of the plugin's objects (``key.prefix``). The plugin asks only for keys that it made itself, so that it never
sees a claim.

A claim is created only if none exists, and its creator chooses the id of the copy. It changes only when the same broker has
registered again since (KIP-903). The newer broker epoch then takes the claim over, if its content is still what was read, and
chooses a new id.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from formats.errors import BadValueError
from formats.partition.partition_metadata import UUID_BYTES, ZERO_UUID, uuid_from_text, uuid_text_or_none, uuid_to_text
from formats.text_lines import shown, shown_json

__all__ = ["CLAIM_BYTES_MAX", "ClaimKey", "UploadClaim", "parse_claim_key", "read_claim", "write_claim"]

SCHEMA = "snaprebuild.tier-claim/1"

CLAIM_BYTES_MAX = 1 << 16
"""Some 300 bytes, and the name of the uploader, which may hold a path."""

_KEY = re.compile(
    r"(?P<prefix>.*)\.snaprebuild-claims/(?P<topic_id>[A-Za-z0-9_-]{22})/(?P<partition>0|[1-9][0-9]{0,9})"
    r"/(?P<start>[0-9]{20})-(?P<end>[0-9]{20})\.json",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class ClaimKey:
    """The parsed key of a claim.

    Attributes:
        prefix: ``key.prefix`` of the objects.
        topic_id: 16 bytes.
        partition: number.
        start_offset: of the segment.
        end_offset: last offset of it.
    """

    prefix: str
    topic_id: bytes
    partition: int
    start_offset: int
    end_offset: int

    def __str__(self) -> str:
        offsets = f"{self.start_offset:020d}-{self.end_offset:020d}"
        return f"{self.prefix}.snaprebuild-claims/{uuid_to_text(self.topic_id)}/{self.partition}/{offsets}.json"


@dataclass(frozen=True, slots=True)
class UploadClaim:
    """Which run uploads a segment, and as which copy.

    Attributes:
        segment_id: 16 random bytes: the id of the copy.
        uploader: name by which a later run recognises that it may continue.
        run: random name of the run that made the claim.
        claimed_ms: when, ms since 1970: the time of the first metadata record.
        node_id: int32, of the broker whose log is uploaded; None if unknown.
        directory_id: of its log directory, 16 bytes; None if unknown.
        broker_epoch: int64, of the registration under which that broker was last active; None if unknown.
    """

    segment_id: bytes
    uploader: str
    run: str
    claimed_ms: int
    node_id: int | None = None
    directory_id: bytes | None = None
    broker_epoch: int | None = None


def parse_claim_key(key: str) -> ClaimKey | None:
    """The parsed key; None if it is not the key of a claim."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    parsed = ClaimKey(
        match["prefix"], uuid_from_text(match["topic_id"]), int(match["partition"]), int(match["start"]), int(match["end"])
    )
    if str(parsed) == key and parsed.end_offset < 2**63:
        return parsed
    return None


def write_claim(claim: UploadClaim) -> bytes:
    """Writes the content of a claim."""
    fields = {
        "schema": SCHEMA,
        "segment_id": uuid_to_text(claim.segment_id),
        "uploader": claim.uploader,
        "run": claim.run,
        "claimed_ms": claim.claimed_ms,
        "node_id": claim.node_id,
        "directory_id": uuid_text_or_none(claim.directory_id),
        "broker_epoch": claim.broker_epoch,
    }
    return json.dumps(fields, indent=1).encode() + b"\n"


def read_claim(data: bytes, *, file: str | None = None) -> UploadClaim:
    """Reads the content of a claim; unknown fields are ignored.

    Raises:
        BadValueError: it is no claim.
    """
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        fields = None
    kinds = {"schema": str, "segment_id": str, "uploader": str, "run": str, "claimed_ms": int}
    if not isinstance(fields, dict) or any(type(fields.get(name)) is not kind for name, kind in kinds.items()):
        raise BadValueError("claim of an upload", file=file, expected=f"JSON with {', '.join(kinds)}", found="something else")
    if fields["schema"] != SCHEMA:
        raise BadValueError("claim of an upload", file=file, expected=f"the schema {SCHEMA}", found=shown(fields["schema"]))
    segment_id = uuid_from_text(fields["segment_id"])
    if len(segment_id) != UUID_BYTES or segment_id == ZERO_UUID or not 0 <= fields["claimed_ms"] < 2**63:
        raise BadValueError("claim of an upload", file=file, expected="a segment id and a time", found="none")
    return UploadClaim(segment_id, fields["uploader"], fields["run"], fields["claimed_ms"], *_broker_of(fields, file))


def _broker_of(fields: dict[str, object], file: str | None) -> tuple[int | None, bytes | None, int | None]:
    """Node id, directory id and broker epoch; claims of earlier versions have none."""
    node_id, directory_id, epoch = (fields.get(name) for name in ("node_id", "directory_id", "broker_epoch"))
    if not _is_number(node_id, 2**31) or not _is_number(epoch, 2**63) or not isinstance(directory_id, str | None):
        expected = "a node id, a directory id and a broker epoch, or null"
        values = ", ".join(map(shown_json, (node_id, directory_id, epoch)))
        raise BadValueError("claim of an upload", file=file, expected=expected, found=values)
    assert isinstance(node_id, int | None)
    assert isinstance(epoch, int | None)
    return node_id, None if directory_id is None else uuid_from_text(directory_id), epoch


def _is_number(value: object, above: int) -> bool:
    return value is None or (type(value) is int and 0 <= value < above)
