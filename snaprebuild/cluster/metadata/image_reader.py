"""The image of a cluster at an offset: from the newest whole checkpoint and the log after it. It can follow a log that grows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from formats.errors import BadValueError, FormatError
from snaprebuild.cluster.metadata.fold import ImageFold
from snaprebuild.cluster.metadata.log import MetadataCheckpoint, MetadataLog, MetadataWalk, open_metadata_log
from snaprebuild.errors import UsageError
from snaprebuild.snapshots.source.second_look import with_fresh_listings

if TYPE_CHECKING:
    from snaprebuild.snapshots.run import Run

__all__ = [
    "FoldStart",
    "FollowedImage",
    "ImageAt",
    "fold_checkpoint",
    "fold_oldest",
    "image_at",
    "read_image",
    "with_fresh_listing",
]


Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class FoldStart:
    """Where a fold of a metadata log begins.

    Attributes:
        fold: of the checkpoint, or of nothing.
        checkpoint: None for the beginning of the log.
        bad_checkpoints: those that are not whole and would have come first, and why.
    """

    fold: ImageFold
    checkpoint: MetadataCheckpoint | None
    bad_checkpoints: tuple[tuple[MetadataCheckpoint, FormatError], ...]

    @property
    def next_offset(self) -> int:
        """First offset of the log that is not in the checkpoint."""
        return 0 if self.checkpoint is None else self.checkpoint.end_offset


@dataclass(frozen=True, slots=True)
class ImageAt(FoldStart):
    """An image and where it came from.

    Attributes:
        log: that was read.
        walk: of the log, ended.
    """

    log: MetadataLog
    walk: MetadataWalk


def read_image(location: str, offset: int | None = None, run: Run | None = None) -> ImageAt:
    """Lists a metadata log and folds it; see ``open_metadata_log`` and ``image_at``."""
    return with_fresh_listing(location, run, lambda log: image_at(log, offset))


def with_fresh_listing(location: str, run: Run | None, work: Callable[[MetadataLog], Answer]) -> Answer:
    """Lists a metadata log and works on it; from the start again where a file has gone since the listing.

    Raises:
        UsageError: as ``open_metadata_log``.
        ReadFailedError: a file cannot be read, or files go faster than they are read.
    """
    return with_fresh_listings(lambda _: work(open_metadata_log(location, run)))


def image_at(log: MetadataLog, offset: int | None = None) -> ImageAt:
    """Folds a metadata log.

    Args:
        log: as it was listed.
        offset: last one to take, None for all.

    Raises:
        UsageError: the log does not reach back to the offset, or does not go so far.
        FormatError: the log is damaged, or what is between checkpoint and log is missing.
        ReadFailedError: a file cannot be read; it may have gone since the listing.
        DeadlinePassedError: the deadline of the log has passed.
    """
    begin = fold_checkpoint(log, offset)
    fold = begin.fold
    start = begin.next_offset
    first = log.first_base_offset
    walk = log.walk(start)
    if first is not None and first > start:
        if offset is not None and offset < first - 1 and not begin.bad_checkpoints:
            raise UsageError(
                f"nothing is known at offset {offset}: no checkpoint is so old, and the log begins at {first}", path=log.path
            )
        what = "first offset of the metadata log"
        expected = f"at most {start}"
        raise BadValueError(what, file=log.segments[0].path, position=0, expected=expected, found=first)
    with walk.until() as batches:
        for batch in batches:
            if offset is not None and batch.base_offset > offset:
                break
            fold.apply_batch(batch, offset)
    if offset is not None and fold.offset < offset:
        raise UsageError(f"the log ends before offset {offset}: its last one is {fold.offset}", path=log.path)
    return ImageAt(fold, begin.checkpoint, begin.bad_checkpoints, log, walk)


def fold_checkpoint(log: MetadataLog, offset: int | None = None) -> FoldStart:
    """The fold of the newest whole checkpoint that holds nothing after an offset; of nothing if there is none.

    Raises:
        ReadFailedError: one cannot be read.
    """
    newest_first = reversed(log.checkpoints)
    return _fold_first_whole(log, [each for each in newest_first if offset is None or each.end_offset <= offset + 1])


def fold_oldest(log: MetadataLog) -> FoldStart:
    """The fold with which most of a log can be read: of nothing if the log begins at 0, else of the oldest whole checkpoint in it.

    Raises:
        ReadFailedError: one cannot be read.
    """
    first = log.first_base_offset
    if first is None:
        return fold_checkpoint(log)
    return _fold_first_whole(log, [checkpoint for checkpoint in log.checkpoints if 0 < first <= checkpoint.end_offset])


def _fold_first_whole(log: MetadataLog, checkpoints: Iterable[MetadataCheckpoint]) -> FoldStart:
    bad: list[tuple[MetadataCheckpoint, FormatError]] = []
    for checkpoint in checkpoints:
        fault = log.checkpoint_fault(checkpoint)
        fold = ImageFold()
        if fault is None:
            try:
                fold.apply_checkpoint(log.checkpoint_batches(checkpoint), checkpoint.end_offset, checkpoint.epoch)
                return FoldStart(fold, checkpoint, tuple(bad))
            except FormatError as error:  # in its records, of which so far nothing was decoded
                fault = error
        bad.append((checkpoint, fault))
    return FoldStart(ImageFold(), None, tuple(bad))


class FollowedImage:
    """Reads what the log has grown by, and nothing again."""

    def __init__(self, read: ImageAt, run: Run | None = None) -> None:
        """Continues an image of the end of a log, with its fold.

        Args:
            read: the image.
            run: as for ``read_image``.
        """
        self._run = run
        self._path = read.log.path
        self._fold = read.fold
        self._position = read.walk.position

    def now(self) -> ImageFold:
        """The image of the end of the log as it is now.

        Where the log was cut after a newer checkpoint since, or back by a new leader, it is read anew. A controller deletes and rolls
        files while it runs: what has gone since the listing is listed again, a few times.

        Raises:
            UsageError, StorageError: it can no longer be listed or read.
            FormatError: it is damaged.
        """
        return with_fresh_listing(self._path, self._run, self._grown)

    def _grown(self, log: MetadataLog) -> ImageFold:
        following = self._fold.offset + 1
        with contextlib.suppress(FormatError):  # another batch begins there by now, or none: then all of it is read
            walk = self._walk_on(log, following)
            if walk is not None:
                for batch in walk:
                    self._fold.apply_batch(batch)
                    self._position = walk.position
                if walk.end_offset >= following:
                    return self._fold
        read = image_at(log)
        self._fold = read.fold
        self._position = read.walk.position
        return self._fold

    def _walk_on(self, log: MetadataLog, following: int) -> MetadataWalk | None:
        """From where it was read to; None if that is gone."""
        if log.first_base_offset is None or log.first_base_offset > following:
            return None
        is_there = self._position is not None and any(segment.base_offset == self._position.base_offset for segment in log.segments)
        if is_there and self._position is not None:
            return log.walk_on(self._position)
        return log.walk(following)
