"""The next command of each partition of a page. The command line decides it from the status, as for its own results."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from snaprebuild.broker.status import StatusCounts
from snaprebuild.report.page_data import PageData, PagePartition
from snaprebuild.report.page_tones import BoundaryTone, PartitionTone

__all__ = ["NextCommand", "PartitionStatus", "add_next_commands"]


JUDGING = ("scan", "verify", "receipt")
"""Documents that show snapshots of directories."""


class PartitionStatus(msgspec.Struct, frozen=True):
    """The status of one partition by all documents of a page.

    Attributes:
        path: of its directory, or in a bucket.
        counts: of its snapshots; fates are those of its directory and of its log directory.
        is_verified: all of its snapshots were compared with a replay.
        is_local: its snapshots are files.
        can_plan: a missing snapshot may be written.
        can_replace: a wrong snapshot is at a boundary, so that the right one can take its place.
        expiry: options of the time at which producers expired when its snapshots were judged.
    """

    path: str
    counts: StatusCounts
    is_verified: bool
    is_local: bool
    can_plan: bool
    can_replace: bool
    expiry: list[str]


NextCommand = Callable[[PartitionStatus], str | None]
"""The next command for a shell; None if there is nothing to do, or no command for it."""


def add_next_commands(page: PageData, next_command: NextCommand) -> None:
    """Gives each partition that is a directory its next command. Findings and fates must be linked already."""
    verifying = {number for number, document in enumerate(page.documents) if document.verb == "verify"}
    judging = {number for number, document in enumerate(page.documents) if document.verb in JUDGING}
    for partition in page.all_partitions():
        is_judged = not judging.isdisjoint(partition.documents)
        # As a command does: first the damage. A wrong snapshot is replaced all the same.
        is_damaged = partition.damaged > 0 and not partition.tones[BoundaryTone.WRONG]
        if partition.is_directory and is_judged and not partition.is_unread and not is_damaged:
            is_verified = not verifying.isdisjoint(partition.documents)
            judges = (verifying if is_verified else judging).intersection(partition.documents)
            expiry = page.documents[max(judges)].expiry_words
            partition.next_command = next_command(_status_of(partition, is_verified=is_verified, expiry=expiry))
        if partition.next_command is None:
            partition.next_text = _text_of(partition)


def _text_of(partition: PagePartition) -> str:
    """A sentence in place of a next command."""
    if partition.fates:
        return "No command changes what the next start does: see below."
    if not partition.is_directory and partition.outcome is not None:
        return "See what to do below."
    if not partition.is_directory and partition.tone is PartitionTone.WRONG:
        return "See the next command of the page."
    if partition.is_unread:
        return "Part of it was not read: correct what the top of the page lists, and run the command again."
    if partition.damaged:
        return "A file is damaged: see the findings. If another replica is in sync, fetch this partition again from it."
    if partition.late:
        return "The late transactions below have their commands."
    if partition.tone is PartitionTone.FINE:
        return "Nothing to do."
    if partition.tone is PartitionTone.UNKNOWN:
        return "Nothing to do: what nothing proves either way is no fault."
    return "No command corrects this: see the findings."


def _status_of(partition: PagePartition, *, is_verified: bool, expiry: list[str]) -> PartitionStatus:
    tones = partition.tones
    counts = StatusCounts(
        fates=len(partition.fates),
        wrong=tones[BoundaryTone.WRONG],
        suspect=tones[BoundaryTone.SUSPECT],
        missing=tones[BoundaryTone.MISSING],
        waiting=partition.waiting or 0,
        waiting_unknown=partition.waiting_unknown,
        unread=int(partition.is_unread),
    )
    return PartitionStatus(
        path=partition.place,
        counts=counts,
        is_verified=is_verified,
        is_local="://" not in partition.place,
        can_plan=bool(counts.missing) and not partition.uploads_under_id_zero,
        can_replace=_can_replace(partition),
        expiry=expiry,
    )


def _can_replace(partition: PagePartition) -> bool:
    """Whether a wrong snapshot is at a boundary: the base offset of a segment but the first, or where the log may end."""
    bases = [each.base_offset for each in partition.segments]
    wrong = [offset for offset, boundary in partition.boundaries.items() if boundary.tone is BoundaryTone.WRONG]
    if len(bases) < partition.segment_count:
        return bool(wrong)  # segments are joined on the page: not each base offset is known
    return any(bases and (offset in bases[1:] or offset > bases[-1]) for offset in wrong)
