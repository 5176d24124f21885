"""Joins copies in remote storage that share offsets to the log that they are copies of.

Leaders roll their segments at different offsets, and a new leader uploads from where it takes remote storage to end, so that copies
overlap. If the leader epochs of two copies agree at an offset, the records there and all below agree (KIP-101). Therefore the part of a
copy that agrees with the leader epochs of the log belongs to the log. The rest is of another leader, and was truncated since.

Source: ``RemoteLogManager.isRemoteSegmentWithinLeaderEpochs``, which takes or leaves a copy as a whole.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["CopySpan", "LinePart", "RemoteLine", "agreed_end", "follow_one_another", "remote_line"]

Epochs = Sequence[tuple[int, int]]
"""Leader epochs with the first offset of each, ascending."""


@dataclass(frozen=True, slots=True)
class CopySpan:
    """A copy.

    Attributes:
        start_offset: of the segment.
        end_offset: its last one.
        epochs: leader epochs of the segment; the first one begins at its start offset. None if unknown.
        rank: of copies that hold the same, the one with the greatest is taken.
    """

    start_offset: int
    end_offset: int
    epochs: tuple[tuple[int, int], ...] = ()
    rank: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LinePart:
    """The part of a copy that belongs to the log: it begins at the start offset of the copy.

    Attributes:
        number: of the copy.
        until: offset after the last one that is taken.
    """

    number: int
    until: int


@dataclass(frozen=True, slots=True)
class RemoteLine:
    """A log, joined from copies.

    Attributes:
        parts: ascending; each begins where the one before it ends, or after a gap.
        members: copies all of whose records are of this log, so that their ends are boundaries of it; by number, ascending.
        left_out: why each of the other copies is no member, by number.
    """

    parts: tuple[LinePart, ...] = ()
    members: tuple[int, ...] = ()
    left_out: dict[int, str] = field(default_factory=dict)


def follow_one_another(spans: Sequence[CopySpan]) -> bool:
    """Whether no two copies hold the same offset, and no leader epoch, as far as it is known, follows a later one."""
    reached = -1
    newest = -1
    for span in sorted(spans, key=lambda each: (each.start_offset, each.end_offset)):
        if span.start_offset <= reached or (span.epochs and span.epochs[0][0] < newest):
            return False
        reached = span.end_offset
        newest = span.epochs[-1][0] if span.epochs else newest
    return True


def agreed_end(span: CopySpan, epochs: Epochs) -> int:
    """Offset after the last one that a copy has in common with a log.

    Args:
        span: the copy.
        epochs: of the log. Offsets below the first of them are taken to agree: the log no longer has their epochs.
    """
    end = span.end_offset + 1
    if not epochs:
        return end
    first = epochs[0][1]
    marks = {max(start, span.start_offset) for _, start in (*span.epochs, *epochs) if start < end}
    for offset in sorted(marks):
        if offset >= first and _epoch_at(span.epochs, offset) != _epoch_at(epochs, offset):
            return offset
    return end


def _epoch_at(epochs: Epochs, offset: int) -> int | None:
    """Leader epoch of an offset. If several begin at one offset, the last counts: nothing was written in the others."""
    latest = None
    for epoch, start in epochs:
        if start > offset:
            break
        latest = epoch
    return latest


def remote_line(spans: Sequence[CopySpan], epochs: Epochs) -> RemoteLine:
    """Joins copies.

    Args:
        spans: the copies, in any order.
        epochs: leader epochs of the log that is meant; none if unknown. Without them, copies that share offsets are not joined: the line
            ends before the first that begins in the middle of another one.
    """
    if not epochs:
        return _without_epochs(spans)
    ends = [agreed_end(span, epochs) for span in spans]
    reasons = {
        number: _left_out_reason(spans[number], end, epochs) for number, end in enumerate(ends) if end <= spans[number].end_offset
    }
    usable = sorted(
        (number for number, end in enumerate(ends) if end > spans[number].start_offset),
        key=lambda number: (spans[number].start_offset, -ends[number], _preferred(spans[number])),
    )
    chosen = list(_joined(spans, ends, usable))
    following_starts = [*(spans[number].start_offset for number in chosen[1:]), sys.maxsize]
    parts = tuple(LinePart(number, min(ends[number], start)) for number, start in zip(chosen, following_starts, strict=False))
    members = tuple(number for number in range(len(spans)) if number not in reasons)
    return RemoteLine(parts, members, reasons)


def _joined(spans: Sequence[CopySpan], ends: Sequence[int], usable: Sequence[int]) -> Iterator[int]:
    """Copies that make a log: after each, of those that begin within it or right after it, the one that reaches farthest.

    Args:
        spans: all copies.
        ends: of each, offset after the last one that agrees.
        usable: numbers of those that agree in anything, ascending by start offset, and of those with one start the preferred one first.
    """
    reached = -1
    place = 0
    best: int | None = None
    while True:
        while place < len(usable) and (best is None or spans[usable[place]].start_offset <= reached):
            number = usable[place]
            place = place + 1
            key = -ends[number], spans[number].start_offset, _preferred(spans[number])
            if best is None or key < (-ends[best], spans[best].start_offset, _preferred(spans[best])):
                best = number
        if best is not None and ends[best] > reached:
            reached = ends[best]
            yield best
        elif place < len(usable):  # after a gap
            best = None
        else:
            return


def _preferred(span: CopySpan) -> tuple[int, ...]:
    return tuple(-number for number in span.rank)


def _left_out_reason(span: CopySpan, end: int, epochs: Epochs) -> str:
    own = _epoch_at(span.epochs, end)
    other = _epoch_at(epochs, end)
    if own is None:
        return f"the leader epoch of its records from {end} on is unknown, and other copies share offsets"
    what = f"from {end} on its records are of leader epoch {own}, and those of the log of {'none' if other is None else other}"
    return f"{what}: its snapshot belongs to another line of leaders"


def _without_epochs(spans: Sequence[CopySpan]) -> RemoteLine:
    order = sorted(range(len(spans)), key=lambda number: (spans[number].start_offset, _preferred(spans[number])))
    parts: list[LinePart] = []
    members: list[int] = []
    reasons: dict[int, str] = {}
    broken: int | None = None
    for number in order:
        span = spans[number]
        reached = parts[-1].until if parts else 0
        if broken is not None or (parts and span.start_offset < reached <= span.end_offset):
            broken = span.start_offset if broken is None else broken
            reasons[number] = f"it begins in the middle of another copy: from {broken} on copies are not joined"
            continue
        if span.end_offset < reached:
            reasons[number] = "other copies hold all of its offsets, and whether they are of the same leaders is unknown"
            continue
        members.append(number)
        parts.append(LinePart(number, span.end_offset + 1))
    return RemoteLine(tuple(parts), tuple(sorted(members)), reasons)
