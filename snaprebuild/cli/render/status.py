"""The first line of a result: what the next start of a broker does, then the counts of everything else that is not zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snaprebuild.cli.result import size_text
from snaprebuild.findings import pluralize

if TYPE_CHECKING:
    from snaprebuild.broker.status import FateGroup, Status

__all__ = ["fate_sentence", "note_sentences", "status_line", "words_after"]

SUBJECT_MAX = 40


def status_line(status: Status) -> str | None:
    """The first line where a fate is more than a note; None without one."""
    concerns = status.concerns
    if not concerns:
        return None
    others = len(concerns) - 1
    counts = (
        (others, pluralize(others, "other fate")),
        (status.wrong, f"{status.wrong} wrong"),
        (status.suspect, f"{status.suspect} suspect"),
        (status.missing, pluralize(status.missing, "snapshot missing", "snapshots missing")),
        (status.waiting, f"{status.waiting} waiting"),
        (status.unknown, f"{status.unknown} unread"),
    )
    also = ", ".join(text for count, text in counts if count)
    sentence = fate_sentence(concerns[0])
    return f"{sentence} Also: {also}." if also else sentence


def words_after(concern: FateGroup, selected: list[str]) -> list[str]:
    """The words of the next command after such a fate: to look again once a start has removed snapshots. Empty where no command helps.

    Args:
        concern: the first one.
        selected: paths and options of the selection, as they were given.
    """
    from snaprebuild.broker.fates import FateKind

    return ["scan", *selected] if concern.kind in (FateKind.SNAPSHOTS_REMOVED, FateKind.SWAP_FINISHED) else []


def note_sentences(status: Status) -> str:
    """Sentences about fates that are notes; empty without any."""
    return " ".join(fate_sentence(group) for group in status.groups if group not in status.concerns)


def fate_sentence(group: FateGroup) -> str:
    """One sentence for all fates with one cause."""
    sentence = _SENTENCES[group.kind.value](group, _subject(group))
    releases = group.first.releases
    return sentence if releases is None else f"With Kafka {releases}: {sentence}"


def _subject(group: FateGroup) -> str:
    """The first partition, and how many more there are."""
    name, others = group.first.subject, len(group.fates) - 1
    name = name if len(name) <= SUBJECT_MAX else f"{name[:SUBJECT_MAX]}~"
    return f"{name} and {pluralize(others, 'other')}" if others else name


def _no_start(group: FateGroup, subject: str) -> str:
    fate = group.first
    whose = f" ({subject})" if fate.subject != fate.path else f" ({fate.detail})" if 0 < len(fate.detail) <= SUBJECT_MAX else ""
    return f"This broker does not start: {fate.cause}{whose}."


def _fails_once(group: FateGroup, subject: str) -> str:
    cut = size_text(sum(fate.size_bytes for fate in group.fates))
    return f"The first start fails, the second recovers {subject} and cuts {cut}."


def _offline(group: FateGroup, subject: str) -> str:
    fate = group.first
    if fate.subject == fate.path:
        return f"{fate.path} goes offline at the start: {fate.cause}."
    return f"{fate.path.partition(f'/{fate.subject}')[0]} goes offline at the start: {subject}, {fate.cause}."


def _emptied(group: FateGroup, subject: str) -> str:
    fate, count = group.first, len(group.fates)
    if fate.log_end_offset is not None:
        return f"The start deletes {subject}: it ends at {fate.log_end_offset}, below its log start {fate.reached_offset}."
    highest = max(each.reached_offset or 0 for each in group.fates)
    return f"{pluralize(count, 'partition has', 'partitions have')} no segment ({subject}); high watermarks up to {highest}."


def _records_cut(group: FateGroup, subject: str) -> str:
    fate = group.first
    assert fate.reached_offset is not None
    return f"The start removes records {fate.log_end_offset} to {fate.reached_offset - 1} of {subject}, which were acknowledged."


def _end_lost(group: FateGroup, subject: str) -> str:
    fate = group.first
    return f"{subject} lost its end: {fate.log_end_offset}, its checkpoints say {fate.reached_offset}."


def _stray_deleted(group: FateGroup, subject: str) -> str:
    return f"The start DELETES {subject}: {group.first.cause}."


def _leading(group: FateGroup, subject: str) -> str:
    epoch = group.first.leader_epoch
    what = "its remote segments" if epoch is None else f"remote epochs below {epoch}"
    return f"Do not let this replica of {subject} lead: Kafka would delete {what}."


def _stray(group: FateGroup, subject: str) -> str:
    return f"The start sets {subject} aside as stray: {group.first.cause}."


def _catches_up(group: FateGroup, subject: str) -> str:
    fate = group.first
    missing_offsets = (fate.reached_offset or 0) - (fate.log_end_offset or 0)
    return f"{subject} ends {missing_offsets} below its high watermark; it catches up from a replica in sync."


def _snapshots_removed(group: FateGroup, subject: str) -> str:
    count = sum(fate.removed_snapshots for fate in group.fates)
    return f"The next start rebuilds an index of {subject} and removes {pluralize(count, 'snapshot')}. Start, stop, run again."


def _swap_finished(group: FateGroup, subject: str) -> str:
    count = sum(fate.removed_snapshots for fate in group.fates)
    return f"The next start ends a compaction of {subject} and removes {pluralize(count, 'snapshot')}. Start, stop, run again."


def _leader_epochs_cut(group: FateGroup, subject: str) -> str:
    return f"Do not let this replica of {subject} lead: its leader epochs above {group.first.leader_epoch} are gone."


def _copy_takes_over(group: FateGroup, subject: str) -> str:
    return f"The start ends {pluralize(len(group.fates), 'move')} between log directories ({subject})."


def _no_leader_epochs(group: FateGroup, subject: str) -> str:
    del group
    return f"{subject} has no leader epochs: nothing of it can be uploaded."


def _recovered(group: FateGroup, subject: str) -> str:
    del subject
    size = size_text(sum(fate.size_bytes for fate in group.fates))
    return f"Unclean stop: the start recovers {pluralize(len(group.fates), 'partition')} ({size})."


def _old_replica(group: FateGroup, subject: str) -> str:
    del subject
    return f"{pluralize(len(group.fates), 'old replica')} will be set aside."


_SENTENCES = {
    "no-start": _no_start,
    "fails-once": _fails_once,
    "offline": _offline,
    "emptied": _emptied,
    "records-cut": _records_cut,
    "end-lost": _end_lost,
    "stray-deleted": _stray_deleted,
    "leading-deletes-remote": _leading,
    "stray": _stray,
    "catches-up": _catches_up,
    "snapshots-removed": _snapshots_removed,
    "leader-epochs-cut": _leader_epochs_cut,
    "swap-finished": _swap_finished,
    "copy-takes-over": _copy_takes_over,
    "no-leader-epochs": _no_leader_epochs,
    "recovered": _recovered,
    "old-replica": _old_replica,
}
"""By ``FateKind``."""
