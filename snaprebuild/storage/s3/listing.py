"""Listings of an object store: in several ranges of keys at once if there are many."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise, takewhile
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from snaprebuild.errors import ReadFailedError, RefusedError
from snaprebuild.storage.s3.requests import bucket_and_key, client_of, modified_ns_of, payer_of, read_failed
from snaprebuild.storage.store import MORE_REQUESTS, ObjectStatus, S3Settings
from snaprebuild.storage.thread_pool import map_in_threads

__all__ = ["Listing"]

DIRECTORIES_ENOUGH = 32
LEVELS_MAX = 4
"""A long listing is split at directories: at the first level that has this many, and not below this one."""

REQUESTS_OF_RANGE = 4
RANGES_MAX = 64
"""Ranges of a listing that is split: each range costs one request that is not full."""

KEYS_MAX = 10_000_000
ANSWERS_MAX = 100_000
"""Limit of one listing, unless ``max_requests`` limits the run: some 400 bytes of memory for each key, and at least 100 of 1,000 keys an
answer."""


@dataclass(slots=True)
class Listing:
    """One listing, and the count of its keys and answers so far: a store may return keys without end."""

    location: str
    settings: S3Settings
    keys: int = 0
    answers: int = 0

    def _add(self, keys: int) -> None:
        """Counts an answer.

        Raises:
            RefusedError: the listing has more than any should have.
        """
        self.keys += keys
        self.answers += 1
        if self.settings.max_requests is None and (self.keys > KEYS_MAX or self.answers > ANSWERS_MAX):
            message = f"the store lists more than {KEYS_MAX:,} keys, or sends more than {ANSWERS_MAX:,} answers for one listing"
            raise RefusedError(f"{message}: select fewer{MORE_REQUESTS}", path=self.location)

    @property
    def _target(self) -> tuple[str, str]:
        """Bucket, and the beginning of all keys below the location."""
        bucket, key = bucket_and_key(self.location)
        return bucket, f"{key}/" if key else ""

    def below(self, name_prefix: str) -> Iterator[tuple[str, ObjectStatus]]:
        """Path below the location and status of each object there, ascending.

        If one answer is not enough, several ranges of keys are listed at once.

        Args:
            name_prefix: only paths that begin with it.
        """
        prefix = self._target[1] + name_prefix
        rows, is_whole = self._page(prefix, "")
        yield from ((name_prefix + key, status) for key, status in rows)
        if is_whole or not rows:
            return
        reached = prefix + rows[-1][0]
        bounds = [reached, *self._bounds(prefix, reached), None]
        for objects in map_in_threads(partial(self._range_of_keys, prefix), list(pairwise(bounds))):
            yield from ((name_prefix + key, status) for key, status in objects)

    def names(self) -> Iterator[list[str]]:
        """Names directly below the location, a list for each request. Segments come first, because their names begin with digits."""
        prefix = self._target[1]
        for page in self._level(prefix):
            yield [entry["Key"][len(prefix) :] for entry in page.get("Contents", ())]

    def _range_of_keys(self, prefix: str, bounds: tuple[str, str | None]) -> list[tuple[str, ObjectStatus]]:
        """The keys after the first bound, up to and including the second one."""
        after, last = bounds
        objects: list[tuple[str, ObjectStatus]] = []
        is_done = False
        while not is_done:
            rows, is_done = self._page(prefix, after)
            for row in rows:
                after = prefix + row[0]
                if last is not None and after > last:
                    return objects
                objects.append(row)
        return objects

    def _page(self, prefix: str, after: str) -> tuple[list[tuple[str, ObjectStatus]], bool]:
        """One request: keys after ``after`` with their status, and whether they are the last ones."""
        start = {"StartAfter": after} if after else {}
        try:
            page = client_of(self.settings).list_objects_v2(
                Bucket=self._target[0], Prefix=prefix, **start, **payer_of(self.settings)
            )
        except (ClientError, BotoCoreError) as error:
            raise read_failed(error, self.location, "cannot be listed") from None
        self._add(len(page.get("Contents", ())))
        rows = []
        previous = after
        for entry in page.get("Contents", ()):
            key = entry["Key"]
            if key <= previous or not key.startswith(prefix):
                # Directory buckets of S3 Express do: there a directory would be considered whole before it is.
                raise ReadFailedError(
                    "the store does not list keys in ascending order, so that it cannot be used", path=self.location
                )
            previous = key
            storage_class = sys.intern(entry.get("StorageClass") or "STANDARD")
            status = ObjectStatus(entry["Size"], modified_ns_of(entry), entry.get("ETag", ""), st_storage_class=storage_class)
            rows.append((key[len(prefix) :], status))
        if page.get("IsTruncated") and not rows:
            raise ReadFailedError("the store returns a listing without end", path=self.location)
        return rows, not page.get("IsTruncated")

    def _bounds(self, prefix: str, reached: str) -> list[str]:
        """Directories at which the keys after ``reached`` are split, so that each range takes some requests."""
        level = [prefix]
        for _ in range(LEVELS_MAX):
            below = [each for prefixes in map_in_threads(self._directories, level) for each in prefixes]
            level = below or level
            if not below or len(below) >= DIRECTORIES_ENOUGH:
                break
        first = bisect_right(level, reached)
        ahead = level[first:]
        requests = len(ahead) // max(first, 1)  # the first one has passed this many directories
        ranges = min(requests // REQUESTS_OF_RANGE, RANGES_MAX)
        return [ahead[len(ahead) * each // ranges] for each in range(1, ranges)]

    def _directories(self, prefix: str) -> list[str]:
        """Directories directly below a prefix, ascending, each with its slash. Stops at a page without any."""
        some = ([each["Prefix"] for each in page.get("CommonPrefixes", ())] for page in self._level(prefix))
        return sorted(chain.from_iterable(takewhile(bool, some)))

    def _level(self, prefix: str) -> Iterator[dict[str, Any]]:
        """The entries directly below a prefix, one request for each thousand. It counts as a listing of its own."""
        counts = Listing(self.location, self.settings)
        try:
            pages = client_of(self.settings).get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._target[0], Prefix=prefix, Delimiter="/", **payer_of(self.settings)):
                counts._add(len(page.get("Contents", ())) + len(page.get("CommonPrefixes", ())))
                yield page
        except (ClientError, BotoCoreError) as error:
            raise read_failed(error, self.location, "cannot be listed") from None
