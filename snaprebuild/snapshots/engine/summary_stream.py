"""Feeding a work from summaries that were made elsewhere, instead of reading its segments here."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from formats.errors import FormatError
from snaprebuild.errors import SnaprebuildError
from snaprebuild.replay.segment_ranges import RangeSummary, WhyWhole, join_ranges
from snaprebuild.snapshots.engine.schedule import Pieces, ReadTask, Work, read_segment, told

__all__ = ["Arrivals", "Outcome", "Ranges", "feed", "joined"]

log = logging.getLogger(__name__)

Ranges = list[RangeSummary]
"""Parts of a segment that were read side by side."""

Outcome = Pieces | Ranges | SnaprebuildError | FormatError
"""What reading a segment gave."""


class Arrivals:
    """Outcomes of the segments of one partition, as they come in, by ascending base offset.

    What is asked for in this order is not kept. A work that first asks for later segments, and then for those before them, finds them all
    the same: they are kept until then.
    """

    def __init__(self, stream: Iterator[tuple[int, Outcome]]) -> None:
        """Takes the stream of base offsets and outcomes."""
        self._stream = stream
        self._passed: dict[int, Outcome] = {}
        self._ahead: tuple[int, Outcome] | None = None

    def take(self, base_offset: int) -> Outcome | None:
        """The outcome of a segment, once; None where it does not come."""
        if base_offset in self._passed:
            return self._passed.pop(base_offset)
        while True:
            ahead = self._ahead or next(self._stream, None)
            if ahead is None or ahead[0] > base_offset:
                self._ahead = ahead
                return None
            self._ahead = None
            if ahead[0] == base_offset:
                return ahead[1]
            self._passed[ahead[0]] = ahead[1]


def feed(work: Work, arrivals: Arrivals) -> list[ReadTask]:
    """Goes through a work with what has arrived.

    Returns:
        The tasks that it asked for and that did not arrive: they are to be read, and the work is to be begun anew. Empty where it ended.
    """
    try:
        while tasks := work.tasks():
            for place, task in enumerate(tasks):
                outcome = arrivals.take(task.base_offset)
                if outcome is None:
                    return [task, *(each for each in tasks[place + 1 :] if arrivals.take(each.base_offset) is None)]
                if isinstance(outcome, list):
                    outcome = joined(outcome, task)
                if isinstance(outcome, Exception):
                    work.fail(outcome)
                    return []
                if not all(map(work.take, outcome)):
                    work.finish()
                    return []
        work.finish()
    except Exception as error:  # whatever went wrong ends this partition and no other
        work.fail(told(error))
    return []


def joined(ranges: Ranges, task: ReadTask) -> Pieces:
    """What the ranges of a segment make together; it is read here where they do not make one.

    Raises:
        SnaprebuildError: as ``read_segment``.
    """
    try:
        joined = join_ranges(ranges, task.cuts, is_last=task.is_last)
    except ValueError as error:  # the index changed while the ranges were read, each by itself
        log.warning("%s: read again: %s", task.path, error)
    else:
        if not isinstance(joined, WhyWhole):
            return joined
        log.warning("%s: read again as a whole: %s", task.path, joined.value)
    return read_segment(task)
