"""The copies of one partition as an audit reads them: which can be read, and where they end."""

from __future__ import annotations

import contextlib

from formats.errors import FormatError
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.partition_metadata import uuid_to_text
from formats.partition.producer_snapshot import HEADER_BYTES
from formats.remote.aiven_encryption import ENCRYPTION_BYTES
from formats.remote.aiven_manifest import read_aiven_manifest
from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Severity
from snaprebuild.tier.audit.result import CopyAudit, PartitionAudit, SnapshotVerdict
from snaprebuild.tier.remote_copy import ICEBERG_LACKS, RemoteCopy, fault_finding
from snaprebuild.tier.remote_partition import RemotePartition

__all__ = ["epochs_up_to", "read_copies", "read_ends", "read_segment_epochs"]

BAD_COPY = "tier-bad-copy"


def read_copies(audit: PartitionAudit) -> None:
    """Reads the manifests, finds the copies whose segments can be read, and adds those that are lost.

    Raises:
        RefusedError: a limit of the run is used up; then nothing was read.
    """
    remote = audit.remote
    remote.read_facts([each.copy for each in audit.copies if not each.copy.missing])
    for each in audit.copies:
        if each.copy.missing:
            _add_incomplete(audit, each)
        elif _is_readable(audit, each):
            audit.readable.append(each)
    for copy in remote.copies.values():
        if not copy.objects.by_kind and remote.log.is_live(copy.segment_id):
            audit.copies.append(_lost_copy(audit, copy))
    audit.copies.sort(key=lambda each: each.copy.start_offset)


def _lost_copy(audit: PartitionAudit, copy: RemoteCopy) -> CopyAudit:
    """A live copy without any object."""
    lost = CopyAudit(copy, reason="its objects are gone")
    if copy.unanswered is None:
        _add_damaged(audit, lost, "finished, and its objects are gone", "tier-lost")
    else:
        _add_unanswered(audit, lost, copy.unanswered)
    return lost


def _add_incomplete(audit: PartitionAudit, each: CopyAudit) -> None:
    missing = each.copy.missing
    audit.iceberg += missing == ICEBERG_LACKS
    each.reason = f"objects of it are missing: {', '.join(missing)}"
    if each.copy.unanswered is not None:
        _add_unanswered(audit, each, each.copy.unanswered)
    elif each.copy.record is not None and missing != ICEBERG_LACKS:
        _add_damaged(audit, each, f"finished, and {each.reason}", "tier-lost")


def _add_unanswered(audit: PartitionAudit, each: CopyAudit, reason: str) -> None:
    """The listing lacks objects of a copy, and whether they are there is unknown."""
    each.reason = f"the listing lacks objects of it, and a request for these had no answer: {reason}"
    audit.damaged(each.copy.start_offset)
    audit.findings.append(fault_finding(audit.remote.place, each.copy, each.reason, is_unread=True))


def _add_damaged(audit: PartitionAudit, each: CopyAudit, message: str, code: str = BAD_COPY) -> None:
    audit.damaged(each.copy.start_offset)
    _add_bad_copy(audit, each, message, code)


def _add_bad_copy(audit: PartitionAudit, each: CopyAudit, message: str, code: str = BAD_COPY) -> None:
    text = f"copy {uuid_to_text(each.copy.segment_id)}: {message}"
    audit.add_finding(code, Severity.DAMAGED, text, each.copy.start_offset)


def _is_readable(audit: PartitionAudit, each: CopyAudit) -> bool:
    """Whether the segment of a complete copy can be read; adds what is wrong with the copy by its manifest and sizes."""
    copy = each.copy
    facts = copy.facts
    if facts.fault is not None:
        each.reason = facts.fault
        audit.damaged(copy.start_offset)
        audit.findings.append(fault_finding(audit.remote.place, copy, facts.fault))
        return False
    if facts.torn_index is not None:
        _add_bad_copy(audit, each, facts.torn_index)
    least = HEADER_BYTES + (0 if facts.key_id is None else ENCRYPTION_BYTES)
    if facts.snapshot_bytes == 0:
        each.settle(SnapshotVerdict.ZERO_BYTES, "it has no bytes: a broker takes it and starts without producers")
    elif facts.snapshot_bytes is not None and facts.snapshot_bytes < least:
        each.settle(SnapshotVerdict.CORRUPT, f"it has {facts.snapshot_bytes} bytes, less than a header")
    encryption = None if facts.manifest is None else read_aiven_manifest(facts.manifest).encryption
    if encryption is not None and (key_fault := audit.remote.private_keys.fault(encryption)) is not None:
        each.not_read(f"it {key_fault}")
        audit.undecrypted.setdefault(key_fault, []).append(each)
        return False
    if copy.record is not None and copy.record.size_bytes != facts.segment_bytes:
        message = f"its segment has {facts.segment_bytes} bytes, and the metadata log has {copy.record.size_bytes}"
        _add_damaged(audit, each, message)
        each.not_read(message)
        return False
    return True


# ---------------------------------------------------------------------------------------------------------------- ends


def read_ends(audit: PartitionAudit) -> list[CopyAudit]:
    """Reads the ends of segments that nothing else has, and what else is unknown. Gives the copies whose end is known now.

    Raises:
        RefusedError: a limit of the run is used up.
    """
    if audit.ends_are_known:
        return audit.readable
    remote = audit.remote
    readable = []
    for each in audit.readable:
        try:
            remote.read_end(each.copy)
        except (FormatError, ReadFailedError) as error:
            each.not_read(error.message)
            continue
        if each.copy.end_offset is not None:
            readable.append(each)
    for each in readable:
        read_segment_epochs(remote, each.copy)
        remote.read_time(each.copy)
    return [each for each in readable if not _has_lost_its_end(audit, each)]


def _has_lost_its_end(audit: PartitionAudit, each: CopyAudit) -> bool:
    """Whether the segment ends below an offset that its time index names, and the next copy does not begin at its end.

    Its snapshot is of the offset where the segment once ended. Where a metadata log or a manifest has the end, it is not read here.
    """
    indexed = each.copy.indexed_offset
    end = each.copy.next_offset
    if indexed is None or indexed < end:
        return False
    following = min(
        (other.copy.start_offset for other in audit.copies if other.copy.start_offset > each.copy.start_offset), default=None
    )
    if following is not None and (following <= end or following <= indexed):
        return False
    each.copy.end_offset = None
    each.reason = f"its segment ends at {end - 1}, and its time index names offset {indexed}: the segment has lost its end"
    _add_damaged(audit, each, each.reason)
    return True


def read_segment_epochs(remote: RemotePartition, copy: RemoteCopy) -> None:
    """Reads the leader epochs of a segment, if nothing else has them and its leader epoch checkpoint can be read."""
    with contextlib.suppress(FormatError, ReadFailedError):
        remote.read_epochs(copy)


def epochs_up_to(remote: RemotePartition, copy: RemoteCopy) -> tuple[LeaderEpochEntry, ...]:
    """Leader epochs of the log up to the end of a copy; none if they cannot be read."""
    try:
        return remote.read_log_epochs(copy)
    except (FormatError, ReadFailedError):
        return ()
