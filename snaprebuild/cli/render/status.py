"""The first line of a result: what the next start of a broker does, then the counts of everything else that is not zero.

It has at most ``LINE_MAX`` columns. A line that would be longer has shorter names, then shorter sentences, and the next line has the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import msgspec

from formats.partition.file_names import snapshot_file_name
from snaprebuild.broker.fates import FateKind
from snaprebuild.broker.remote_readiness import NOT_READY_ADVICE, not_ready_text
from snaprebuild.broker.status import FateGroup, Status, StatusCounts, status_of
from snaprebuild.cli.answer import changed_meanwhile, concern_text, failed_and_damaged, none_read, skipped_text, unread_text
from snaprebuild.cli.table import middle_cut
from snaprebuild.cli.value_text import size_text
from snaprebuild.cli.view import AGAIN, Advice, Answer
from snaprebuild.findings import Finding, FindingCause, choose_form, deleted_count, deleted_text, pluralize, unread_paths
from snaprebuild.snapshots.source.source import PartitionSource

__all__ = [
    "LINE_MAX",
    "LIVE_UNKNOWN",
    "OUT_DIRECTORY",
    "answer_lines",
    "can_write",
    "copy_counts",
    "fate_sentence",
    "faults_text",
    "forgetful_text",
    "is_stray",
    "judgement_lines",
    "next_of_status",
    "note_sentences",
    "nothing_read",
    "snapshot_counts",
    "status_details",
    "status_line",
    "waiting_text",
    "words_after",
]

LINE_MAX = 100
"""Columns of the first line: it must be readable in a mail, a journal or a chat."""

NOTHING_COUNTED = status_of((), wrong=0, suspect=0, missing=0, waiting=0, unread=0)

LIVE_UNKNOWN = "which copies are live is unverified (--metadata-log)."
"""The ``tail`` of an answer without a metadata log."""

NAME_MIN = 24
"""Columns that a name keeps: enough for the largest number of a partition after its middle is cut out."""

NAME_COLUMNS = (48, 36, 28)
"""Columns of the name in a sentence about findings: the first with which the line fits."""

DETAIL_MAX = 40

OUT_DIRECTORY = "snaprebuild-out"
"""Name of the directory of a proposed ``--out``."""


Cut = Callable[[str], str]
"""Shortens a name or a path in its middle."""


# ------------------------------------------------------------------------------------------------------ the line


def answer_lines(status: Status, findings: Sequence[Finding], heads: Sequence[str], extra: Sequence[str], tail: str = "") -> str:
    """The answer of a command that judges directories: its first line, and the rest in a second one.

    Args:
        status: of the command.
        findings: of the command, with those about what was not read or was deleted during the run.
        heads: the counts in words, without a full stop, for the case that no fate is more than a note: the first one that fits is taken,
            else the last.
        extra: more sentences, the most important first. They are in the first line as far as they fit.
        tail: a sentence that follows the counts after a semicolon, if it fits.
    """
    status = msgspec.structs.replace(status, deleted=deleted_count(findings), unread=len(unread_paths(findings)))
    if _counts(msgspec.structs.replace(status, waiting=0, waiting_unknown=0)):
        extra = [concern_text([each for each in findings if each.cause is FindingCause.SNAPSHOT_ABOVE_LOG_END]), *extra]
    unread = unread_text(findings)
    first = status_line(status)
    skipped = skipped_text(findings)
    if first is not None:
        return _lines(first, [status_details(status), unread, tail, *extra, skipped])
    deleted = deleted_text(findings)
    short = f"{deleted}INCOMPLETE: {status.unread} unread. "
    beginnings = [f"{deleted}{unread} ", short] if unread else [deleted]
    # The next line goes on after the beginning of the whole; after other words it repeats the whole.
    whole = [head for head in heads if heads[0].startswith(head)]
    candidates = [(start, head) for words in (whole, heads) for start in beginnings for head in words]
    start, head = next((each for each in candidates if len("".join(each)) < LINE_MAX), candidates[-1])
    line = f"{start}{head}."
    if head != heads[0]:
        extra = [f"{heads[0].removeprefix(f'{head}. ')}.", *extra]
    if start == short and (failed_and_damaged(findings)[1] or changed_meanwhile(findings)):
        extra = [unread_text(findings, is_named=True), *extra]
    with_tail = f"{line[:-1]}; {tail}"
    counts_nothing = not _counts(msgspec.structs.replace(status, waiting=0, waiting_unknown=0))
    alone = f"{tail[:1].upper()}{tail[1:]}"
    if counts_nothing and concern_text(findings):
        return _with_concern([f"{start}{each}." for each in heads], findings, [alone, *extra])
    if tail and len(with_tail) <= LINE_MAX:
        return _packed(with_tail, [*extra, skipped])
    return _packed(line, [alone, *extra, skipped])


def _with_concern(lines: Sequence[str], findings: Sequence[Finding], extra: Sequence[str]) -> str:
    """The line of a result that counts nothing, with its findings: a line that reports nothing has exit code 0.

    Args:
        lines: the line in words, the longest first.
        findings: of the result, at least one more than a note.
        extra: more sentences.
    """
    brief = f"{concern_text(findings).partition(':')[0]}."
    concerns = [*(concern_text(findings, columns) for columns in NAME_COLUMNS), brief]
    for line in lines:
        for concern in concerns:
            if len(f"{line} {concern}") <= LINE_MAX:
                return _packed(f"{line} {concern}", [*([] if line == lines[0] else [lines[0]]), *extra])
    return _packed(concerns[-2], [lines[0], *extra])


def snapshot_counts(status: Status, partitions: int, affected: int, *, is_incomplete: bool) -> list[str]:
    """The counts of a status in words, the longest first (``heads`` of ``answer_lines``).

    Args:
        status: of the command.
        partitions: that were read.
        affected: those in which a snapshot is missing.
        is_incomplete: something in the selection was not read.
    """
    status = msgspec.structs.replace(status, unread=0)  # which the line begins with
    read = pluralize(partitions, "partition")
    if is_incomplete:
        read = f"the {read} that {choose_form(partitions, 'was', 'were')} read"
    where = f"{affected} of {read}" if status.missing else read
    if status.missing:
        missing = f"{pluralize(status.missing, 'snapshot')} missing in {where}"
    else:
        missing = f"No snapshot missing in {read}"
    if status.wrong or status.suspect:
        missing = f"{_wrong_text(status)}, {status.missing or 'none'} missing in {where}"
    waiting = waiting_text(status) if status.waiting + status.waiting_unknown else ""
    whole = f"{missing}. {waiting.capitalize()}" if waiting else missing
    none = [] if status.missing else ["None missing"]
    return [whole, missing, ", ".join([*none, *_counts(status)]), ", ".join([*none, *_brief_counts(status)])]


def nothing_read(findings: Sequence[Finding], status: Status = NOTHING_COUNTED) -> Answer:
    """The answer without a partition: ``none_read`` after what could not be read.

    Args:
        findings: of the command.
        status: its counts, which say what the findings are about; without them ``none_read`` does.
    """
    text, following = none_read(findings, are_named=status is not NOTHING_COUNTED)
    return answer_lines(status, findings, [text.removesuffix(".")], []), following


def judgement_lines(findings: Sequence[Finding], text: str, tail: str = "") -> str:
    """The answer of a command that judges something other than snapshots and copies, such as replicas by rules.

    Args:
        findings: of the command; those that are more than a note are in the first line.
        text: the judgement in words, without a full stop.
        tail: a sentence that follows it after a semicolon, if it fits.
    """
    return answer_lines(NOTHING_COUNTED, findings, [text], [], tail)


def copy_counts(status: Status, where: str, healthy: str, *, judges_snapshots: bool = True) -> str:
    """The counts of a status about copies in words, without a full stop (one of the ``heads`` of ``answer_lines``).

    Args:
        status: of the command.
        where: number of partitions that were read.
        healthy: the words for a status that counts nothing.
        judges_snapshots: whether the command judges the snapshots of copies; else it judges the states of the copies.
    """
    texts = [faults_text(status).removesuffix(". ")] if faults_text(status) else []
    if status.unproven:
        if judges_snapshots:
            noun = pluralize(status.unproven, "snapshot unproven", "snapshots unproven")
            short = f"{status.unproven} unproven"
        else:
            noun = pluralize(status.unproven, "copy of unknown state", "copies of unknown state")
            short = f"{status.unproven} of unknown state"
        texts.append(short if texts else noun)
    return f"{', '.join(texts) or healthy} in {where}"


def faults_text(status: Status | StatusCounts) -> str:
    """A sentence and a blank about copies that are damaged, and snapshots that are wrong or suspect; empty without any.

    It comes before what a run does.
    """
    texts = [pluralize(status.damaged, "copy damaged", "copies damaged")] if status.damaged else []
    if status.wrong or status.suspect:
        texts.append(_wrong_text(status))
    return f"{', '.join(texts)}. " if texts else ""


def _wrong_text(status: Status | StatusCounts) -> str:
    if not status.wrong:
        return pluralize(status.suspect, "snapshot suspect", "snapshots suspect")
    wrong = pluralize(status.wrong, "snapshot wrong", "snapshots wrong")
    return f"{wrong}, {status.suspect} suspect" if status.suspect else wrong


def _packed(first: str, sentences: Sequence[str]) -> str:
    """The first line with as many sentences as fit, in their order, and the rest."""
    left = [sentence for sentence in sentences if sentence]
    while left and len(first) + 1 + len(left[0]) <= LINE_MAX:
        first = f"{first} {left.pop(0)}"
    return _lines(first, left)


def _lines(first: str, sentences: Sequence[str]) -> str:
    rest = " ".join(sentence for sentence in sentences if sentence)
    return f"{first}\n{rest}" if rest else first


def status_line(status: Status) -> str | None:
    """The first line where a fate is more than a note, or topics are not ready for remote storage; None without either."""
    if not status.concerns and not status.topics_without_id:
        return None
    whole = _whole_line(status)
    if len(whole) <= LINE_MAX:
        return whole
    also = _also(_counts(status))
    brief = _also(_brief_counts(status))
    # Segments wait in normal life: their number gives way to a name. The next line has it.
    urgent_counts = _brief_counts(msgspec.structs.replace(status, waiting=0, waiting_unknown=0))
    for counts in (also, brief, _also(urgent_counts)):
        for line in _with_shorter_names(status, counts):
            if len(line) <= LINE_MAX:
                return line
    sentence = _brief_sentence(status)
    for line in (_joined(sentence, also), _joined(sentence, brief)):
        if len(line) <= LINE_MAX:
            return line
    line = _line_of_counts(status, _brief_counts(status))
    return line if len(line) <= LINE_MAX else _line_of_counts(status, urgent_counts)


def _line_of_counts(status: Status, counts: Sequence[str]) -> str:
    return f"{_label(status)}: {', '.join(counts)}."


def _with_shorter_names(status: Status, also: str) -> Iterator[str]:
    """The line with names that are shortened more and more."""
    yield _joined(_first_sentence(status, str), also)
    concerns = status.concerns
    if not concerns:
        yield _joined(not_ready_text(status.topics_without_id, with_advice=False), also)
    names = [concerns[0].first.subject, concerns[0].first.path] if concerns else []
    width = max(map(len, names), default=0)
    while width > NAME_MIN:
        width -= max((width - NAME_MIN) // 8, 1)
        yield _joined(_first_sentence(status, partial(middle_cut, width=width)), also)


def status_details(status: Status) -> str:
    """The parts that ``status_line`` has left out: the line with all names and numbers in full, or only the advice; else nothing."""
    whole = _whole_line(status)
    line = status_line(status)
    if line in (None, whole):
        return ""
    sentence = not_ready_text(status.topics_without_id, with_advice=False)
    if status.concerns or not line.startswith(sentence):
        return whole
    # The first line lacks only the advice, and perhaps some counts in full.
    counts = _counts(status)
    if line == _joined(sentence, _also(counts)):
        return NOT_READY_ADVICE
    in_full = ", ".join(counts)
    return f"{NOT_READY_ADVICE} {in_full[0].upper()}{in_full[1:]}."


def _whole_line(status: Status) -> str:
    if not status.concerns and not status.topics_without_id:
        return ""
    return _joined(_first_sentence(status, str), _also(_counts(status)))


def _joined(sentence: str, also: str) -> str:
    return f"{sentence} {also}" if also else sentence


def _also(counts: Sequence[str]) -> str:
    return f"Also: {', '.join(counts)}." if counts else ""


def _first_sentence(status: Status, cut: Cut) -> str:
    concerns = status.concerns
    if concerns:
        return fate_sentence(concerns[0], cut)
    return not_ready_text(status.topics_without_id)


def _counts(status: Status) -> list[str]:
    """Everything but what the first sentence says."""
    others = len(status.concerns) - 1
    without_id = len(status.topics_without_id) if status.concerns else 0
    counts = (
        (others, pluralize(max(others, 0), "other fate")),
        (without_id, f"{pluralize(without_id, 'topic')} without an id"),
        (status.damaged, pluralize(status.damaged, "copy damaged", "copies damaged")),
        (status.wrong, f"{status.wrong} wrong"),
        (status.suspect, f"{status.suspect} suspect"),
        (status.missing, pluralize(status.missing, "snapshot missing", "snapshots missing")),
        (status.waiting + status.waiting_unknown, waiting_text(status)),
        (status.unproven, f"{status.unproven} unproven"),
        (status.unread, f"{status.unread} unread"),
        (status.deleted, f"{status.deleted} deleted"),
    )
    return [text for count, text in counts if count > 0]


def waiting_text(status: Status) -> str:
    """How many segments wait. An unknown number is no zero."""
    most = pluralize(status.waiting + status.waiting_unknown, "segment")
    if not status.waiting_unknown:
        return f"{most} waiting"
    if not status.waiting:
        return f"up to {most} waiting"
    return f"{status.waiting} to {most} waiting"


def _brief_counts(status: Status) -> list[str]:
    others = max(len(status.concerns) - 1, 0)
    most = status.waiting + status.waiting_unknown
    waiting = f"{_brief(status.waiting)}-{_brief(most)}" if status.waiting_unknown else _brief(most)
    counts = (
        (others, f"{_brief(others)} {choose_form(others, 'fate', 'fates')}"),
        (len(status.topics_without_id) if status.concerns else 0, f"{_brief(len(status.topics_without_id))} no id"),
        (status.damaged, f"{_brief(status.damaged)} damaged"),
        (status.wrong, f"{_brief(status.wrong)} wrong"),
        (status.suspect, f"{_brief(status.suspect)} suspect"),
        (status.missing, f"{_brief(status.missing)} missing"),
        (most, f"{waiting} waiting"),
        (status.unproven, f"{_brief(status.unproven)} unproven"),
        (status.unread, f"{_brief(status.unread)} unread"),
        (status.deleted, f"{_brief(status.deleted)} deleted"),
    )
    return [text for count, text in counts if count > 0]


def _brief(count: int) -> str:
    """At most four characters: 999, 12k, 3M."""
    value = count
    unit = ""
    for larger in ("k", "M", "G", "T", "P", "E"):
        if value < 1000:
            break
        value = value // 1000
        unit = larger
    return f"{value}{unit}"


def _brief_sentence(status: Status) -> str:
    """The sentence about the worst concern, without names and offsets."""
    concerns = status.concerns
    if not concerns:
        return "Not ready for remote storage."
    _, one, many = _BRIEF[concerns[0].kind.value]
    count = len(concerns[0].fates)
    sentence = one if count == 1 else many.format(count=_brief(count))
    return sentence if concerns[0].first.releases is None else f"With some releases: {sentence}"


def _label(status: Status) -> str:
    concerns = status.concerns
    return _BRIEF[concerns[0].kind.value][0] if concerns else "not ready"


def words_after(concern: FateGroup, selected: Sequence[str]) -> Sequence[str] | Advice:
    """The next command after such a fate: another scan, once a start has removed snapshots. Empty where no command helps.

    Args:
        concern: the first one.
        selected: paths and options of the selection, as they were given.
    """
    if concern.kind in (FateKind.SNAPSHOTS_REMOVED, FateKind.SWAP_FINISHED):
        return Advice("start and stop the broker once", ("scan", *selected))
    return []


def next_of_status(
    status: Status,
    selected: Sequence[str],
    *,
    is_verified: bool,
    is_local: bool,
    can_plan: bool,
    expiry: Sequence[str],
    can_replace: bool = True,
    writes_empty: bool = False,
    are_strays: bool = False,
) -> Sequence[str] | Advice:
    """The next command after one that looked at everything: the first of these that applies.

    Args:
        status: of the command.
        selected: paths and options of the selection, as they were given.
        is_verified: every snapshot was compared with a replay.
        is_local: the snapshots are files, which can be set aside. Objects are never replaced.
        can_plan: a missing snapshot may be written. Nothing is written for a topic without an id while remote storage is on.
        expiry: options of the time at which producers expire, as they were given: a plan decides by it, as the command did.
        can_replace: a wrong snapshot is at a boundary, so that the right one can take its place.
        writes_empty: the next start writes empty snapshots of a partition whose log proves which producers it forgets.
        are_strays: the wrong snapshots are inside of segments, so that the start of a broker removes them.
    """
    if status.concerns:
        return words_after(status.concerns[0], selected)
    elsewhere = ["--boundaries", "all", "--out", OUT_DIRECTORY]
    judged = [*selected, *expiry]
    is_doubtful = bool(status.wrong or status.suspect)
    if is_doubtful and not is_verified:
        return ["verify", *judged]
    if status.wrong and not can_replace and not status.missing:
        return Advice("start and stop the broker once", ("scan", *selected)) if are_strays else AGAIN
    # What the replay cannot judge stays suspect. The plan compares it, and leaves it as it is.
    if status.wrong or (status.suspect and status.missing and can_plan):
        return ["plan", *judged, *(["--set-aside"] if is_local else elsewhere)]
    if status.missing:
        return ["plan", *judged] if can_plan else AGAIN
    if not is_verified:
        return ["verify", *judged]
    if writes_empty:
        # Nothing is written next to a log that is never uploaded, but the snapshots that the start needs can be built.
        return ["plan", *judged, *elsewhere]
    return AGAIN if status.topics_without_id else []


def can_write(source: PartitionSource, missing: Iterable[int]) -> bool:
    """Whether `rebuild` may write one of the missing snapshots: none of a topic without an id, and none whose name something else has."""
    taken = source.directory.unreadable
    return not source.uploads_under_id_zero and any(snapshot_file_name(offset) not in taken for offset in missing)


def forgetful_text(findings: Iterable[Finding]) -> str:
    """A sentence about partitions of which the next start writes empty snapshots; empty without any."""
    count = sum(each.cause is FindingCause.EMPTY_AT_NEXT_START for each in findings)
    if not count:
        return ""
    return f"At its next start the broker writes EMPTY snapshots in {pluralize(count, 'partition')}, and forgets the producers."


def is_stray(source: PartitionSource, offset: int) -> bool:
    """Whether the start of a broker removes a snapshot at this offset (``ProducerStateManager.removeStraySnapshots``).

    It keeps those at a base offset, and of the others the newest one, if that is above the last segment's base.
    """
    bases = source.directory.base_offsets
    return source.log_dir.is_broker_directory and bool(bases) and offset < bases[-1] and offset not in bases


def note_sentences(status: Status) -> str:
    """Sentences about fates that are notes; empty without any."""
    return " ".join(fate_sentence(group) for group in status.groups if group not in status.concerns)


# ------------------------------------------------------------------------------------------------------ sentences


def fate_sentence(group: FateGroup, cut: Cut = str) -> str:
    """One sentence for all fates with one cause.

    Args:
        group: of the fates.
        cut: shortens names and paths.
    """
    sentence = _SENTENCES[group.kind.value](group, _subject(group, cut), cut)
    releases = group.first.releases
    return sentence if releases is None else f"With Kafka {releases}: {sentence}"


def _subject(group: FateGroup, cut: Cut) -> str:
    """The first partition, and how many more there are."""
    name = cut(group.first.subject)
    others = len(group.fates) - 1
    return f"{name} and {pluralize(others, 'other')}" if others else name


def _no_start(group: FateGroup, subject: str, cut: Cut) -> str:
    del cut
    fate = group.first
    whose = ""
    if fate.subject != fate.path:
        whose = f" ({subject})"
    elif 0 < len(fate.detail) <= DETAIL_MAX:
        whose = f" ({fate.detail})"
    return f"This broker does not start: {fate.cause}{whose}."


def _fails_once(group: FateGroup, subject: str, cut: Cut) -> str:
    del cut
    size = size_text(sum(fate.size_bytes for fate in group.fates))
    return f"The first start fails, the second recovers {subject} and cuts {size}."


def _offline(group: FateGroup, subject: str, cut: Cut) -> str:
    fate = group.first
    if fate.subject == fate.path:
        return f"{cut(fate.path)} goes offline at the start: {fate.cause}."
    return f"{cut(fate.path.partition(f'/{fate.subject}')[0])} goes offline at the start: {subject}, {fate.cause}."


def _emptied(group: FateGroup, subject: str, cut: Cut) -> str:
    fate = group.first
    count = len(group.fates)
    if fate.log_end_offset is not None:
        reason = f"it ends at {fate.log_end_offset}, below its log start {fate.reached_offset}"
        also = f", and {pluralize(count - 1, 'other')} for the same" if count > 1 else ""
        return f"The start deletes {cut(fate.subject)}: {reason}{also}."
    highest = max(each.reached_offset or 0 for each in group.fates)
    return f"{pluralize(count, 'partition has', 'partitions have')} no segment ({subject}); high watermarks up to {highest}."


def _records_cut(group: FateGroup, subject: str, cut: Cut) -> str:
    del subject
    fate = group.first
    others = len(group.fates) - 1
    assert fate.reached_offset is not None
    also = f", and others of {pluralize(others, 'partition')}" if others else ""
    records = f"records {fate.log_end_offset} to {fate.reached_offset - 1} of {cut(fate.subject)}{also}"
    return f"The start removes {records}, which were acknowledged."


def _end_lost(group: FateGroup, subject: str, cut: Cut) -> str:
    del subject
    fate = group.first
    others = len(group.fates) - 1
    so_did_others = f"; so did {pluralize(others, 'other')}" if others else ""
    by_snapshot = fate.finding_cause is FindingCause.SNAPSHOT_ABOVE_LOG_END
    if by_snapshot:
        evidence = f"a snapshot is at {fate.reached_offset}"
    else:
        evidence = f"its checkpoints say {fate.reached_offset}"
    return f"{cut(fate.subject)} lost its end: {fate.log_end_offset}, {evidence}{so_did_others}."


def _stray_deleted(group: FateGroup, subject: str, cut: Cut) -> str:
    del cut
    return f"The start DELETES {subject}: {group.first.cause}."


def _leading(group: FateGroup, subject: str, cut: Cut) -> str:
    del cut
    if len(group.fates) > 1:
        return f"Do not let these replicas of {subject} lead: Kafka would delete their remote segments."
    epoch = group.first.leader_epoch
    what = "its remote segments" if epoch is None else f"remote epochs below {epoch}"
    return f"Do not let this replica of {subject} lead: Kafka would delete {what}."


def _stray(group: FateGroup, subject: str, cut: Cut) -> str:
    del cut
    return f"The start sets {subject} aside as stray: {group.first.cause}."


def _catches_up(group: FateGroup, subject: str, cut: Cut) -> str:
    del subject
    fate = group.first
    others = len(group.fates) - 1
    missing_offsets = (fate.reached_offset or 0) - (fate.log_end_offset or 0)
    short = f"{cut(fate.subject)} ends {missing_offsets} below its high watermark"
    if others:
        return f"{short}, and {pluralize(others, 'other')} below theirs; they catch up from a replica in sync."
    return f"{short}; it catches up from a replica in sync."


def _snapshots_removed(group: FateGroup, subject: str, cut: Cut) -> str:
    del cut
    count = sum(fate.removed_snapshots for fate in group.fates)
    return f"The next start rebuilds an index of {subject} and removes {pluralize(count, 'snapshot')}. Start, stop, run again."


def _swap_finished(group: FateGroup, subject: str, cut: Cut) -> str:
    del cut
    count = sum(fate.removed_snapshots for fate in group.fates)
    return f"The next start ends a compaction of {subject} and removes {pluralize(count, 'snapshot')}. Start, stop, run again."


def _leader_epochs_cut(group: FateGroup, subject: str, cut: Cut) -> str:
    del cut
    if len(group.fates) > 1:
        return f"Do not let these replicas of {subject} lead: their last leader epochs are gone."
    return f"Do not let this replica of {subject} lead: its leader epochs above {group.first.leader_epoch} are gone."


def _copy_takes_over(group: FateGroup, subject: str, cut: Cut) -> str:
    del cut
    return f"The start ends {pluralize(len(group.fates), 'move')} between log directories ({subject})."


def _no_leader_epochs(group: FateGroup, subject: str, cut: Cut) -> str:
    del group, cut
    return f"{subject} has no leader epochs: nothing of it can be uploaded."


def _recovered(group: FateGroup, subject: str, cut: Cut) -> str:
    del subject, cut
    size = size_text(sum(fate.size_bytes for fate in group.fates))
    return f"Unclean stop: the start recovers {pluralize(len(group.fates), 'partition')} ({size})."


def _old_replica(group: FateGroup, subject: str, cut: Cut) -> str:
    del subject, cut
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
"""Functions by ``FateKind``."""

_BRIEF = {
    "no-start": ("no start", "This broker does not start.", "This broker does not start."),
    "fails-once": ("fails once", "The first start fails.", "The first start fails."),
    "offline": ("offline", "A directory goes offline.", "A directory goes offline."),
    "emptied": ("emptied", "The start empties a log.", "The start empties {count} logs."),
    "records-cut": ("records cut", "The start removes records.", "The start removes records of {count} logs."),
    "end-lost": ("end lost", "A log lost its end.", "{count} logs lost their end."),
    "stray-deleted": ("deleted", "The start DELETES a log.", "The start DELETES {count} logs."),
    "leading-deletes-remote": ("no leader", "A replica must not lead.", "{count} replicas must not lead."),
    "stray": ("stray", "The start sets a log aside.", "The start sets {count} logs aside."),
    "catches-up": ("short", "A log has to catch up.", "{count} logs have to catch up."),
    "snapshots-removed": ("index", "The start removes snapshots.", "The start removes snapshots of {count} logs."),
    "leader-epochs-cut": ("no leader", "A replica must not lead.", "{count} replicas must not lead."),
    "swap-finished": ("swap", "The start removes snapshots.", "The start removes snapshots of {count} logs."),
    "copy-takes-over": ("moved", "The start ends a move.", "The start ends {count} moves."),
    "no-leader-epochs": ("epochs", "A log has no leader epochs.", "{count} logs have no leader epochs."),
    "recovered": ("recovered", "The start recovers a log.", "The start recovers {count} logs."),
    "old-replica": ("old replica", "An old replica is set aside.", "{count} old replicas are set aside."),
}
"""By ``FateKind``: a label, and a sentence without names and offsets, for one log and for several."""
