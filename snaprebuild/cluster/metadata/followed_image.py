"""An image that goes on as its metadata log grows, for whoever asks again and again while a controller writes."""

from __future__ import annotations

import contextlib

from formats.errors import FormatError
from snaprebuild.cluster.metadata.fold import ImageFold
from snaprebuild.cluster.metadata.image_reader import ImageAt, image_at, with_fresh_listing
from snaprebuild.cluster.metadata.log import MetadataLog, MetadataWalk
from snaprebuild.storage.store import S3Settings

__all__ = ["FollowedImage"]


class FollowedImage:
    """Reads what the log has grown by, and nothing again."""

    def __init__(self, read: ImageAt) -> None:
        """Goes on from an image of the end of a log, and with its fold.

        Args:
            read: the image.
        """
        self._path = read.log.path
        self._fold = read.fold
        self._position = read.walk.position

    def now(self, settings: S3Settings) -> ImageFold:
        """The image of the end of the log as it is now.

        Where the log was cut behind a newer checkpoint since, or back by a new leader, it is read anew. A controller deletes and rolls
        files while it runs: what has gone since the listing is listed again, a few times.

        Args:
            settings: of object stores.

        Raises:
            UsageError, StorageError: it can no longer be listed or read.
            FormatError: it is damaged.
        """
        return with_fresh_listing(self._path, settings, self._grown)

    def _grown(self, log: MetadataLog) -> ImageFold:
        following = self._fold.offset + 1
        with contextlib.suppress(FormatError):  # another batch begins there by now, or none: what it is, all of it tells
            walk = self._walk_on(log, following)
            if walk is not None:
                for batch in walk:
                    self._fold.apply_batch(batch)
                    self._position = walk.position
                if walk.end_offset >= following:
                    return self._fold
        read = image_at(log)
        self._fold, self._position = read.fold, read.walk.position
        return self._fold

    def _walk_on(self, log: MetadataLog, following: int) -> MetadataWalk | None:
        """From where it was read to; None where that is gone."""
        if log.first_base_offset is None or log.first_base_offset > following:
            return None
        is_there = self._position is not None and any(each.base_offset == self._position.base_offset for each in log.segments)
        return log.walk_on(self._position) if is_there and self._position is not None else log.walk(following)
