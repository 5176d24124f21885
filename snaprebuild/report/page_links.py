"""Links what documents say of paths to the partitions of a page: findings, fates of the next start, and paths that were not read."""

from __future__ import annotations

import os
from collections.abc import Iterator

from snaprebuild.report.page_data import PageData, PagePartition

__all__ = ["LINKS_MAX", "link_paths"]

LINKS_MAX = 200_000
"""Links from findings to partitions, at most: ten times the count for findings of one partition each. If a place has many partitions, each
finding of that place has as many links."""


def link_paths(page: PageData) -> None:
    """Gives each partition the findings, fates and unread paths of its directory, of a file inside, and of its log directory.

    There are at most ``LINKS_MAX`` links to findings. A partition with any of them that is more than a note is not healthy.
    """
    places = _Places(page)
    links = 0
    for number, finding in enumerate(page.findings):
        for partition in places.of(finding.path):
            partition.is_concerned |= finding.severity != "note"
            if links < LINKS_MAX:
                partition.findings.append(number)
                links += 1
    for path in page.unread_paths:
        for partition in places.of(path):
            partition.is_concerned = True
    for number, fate in enumerate(page.fates):
        for partition in places.of(fate.path):
            if fate.severity != "note":
                partition.is_concerned = True
                partition.fates.append(number)


class _Places:
    """The partitions of a page by their directories, and by the log directories that these are in."""

    def __init__(self, page: PageData) -> None:
        self._by_place: dict[str, list[PagePartition]] = {}
        self._by_log_dir: dict[str, list[PagePartition]] = {}
        for partition in page.all_partitions():
            self._by_place.setdefault(partition.place, []).append(partition)
            log_dir = os.path.dirname(partition.place)
            if log_dir:
                self._by_log_dir.setdefault(log_dir, []).append(partition)

    def of(self, path: str) -> Iterator[PagePartition]:
        """The partitions that a path is about: a directory of a partition, a file in it, a log directory, or a file in that."""
        parent = os.path.dirname(path)
        for by_path in (self._by_place, self._by_log_dir):
            for place in (path, parent):
                if place in by_path:
                    yield from by_path[place]
                    return
