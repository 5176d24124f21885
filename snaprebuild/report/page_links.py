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

    There are at most ``LINKS_MAX`` links to findings; all of them are counted by severity. A partition with one that is more than a note is
    not healthy.
    """
    places = _Places(page)
    links = 0
    for number, finding in enumerate(page.findings):
        for partition in places.of(finding.path, page.finding_origins[number]):
            partition.severities[finding.severity] += 1
            if links < LINKS_MAX:
                partition.findings.append(number)
                links += 1
    for document in page.documents:
        for path in document.unread_paths:
            for partition in places.of(path, document.origin):
                partition.is_unread = True
    for number, fate in enumerate(page.fates):
        for partition in places.of(fate.path, page.fate_origins[number]):
            if fate.severity != "note":
                partition.fates.append(number)


_Key = tuple[str, str]
"""Origin and path."""


class _Places:
    """The partitions of a page by their directories, by their log directories, and by all directories above these."""

    def __init__(self, page: PageData) -> None:
        self._by_place: dict[_Key, list[PagePartition]] = {}
        self._by_log_dir: dict[_Key, list[PagePartition]] = {}
        self._by_ancestor: dict[_Key, list[PagePartition]] = {}
        for partition in page.all_partitions():
            origin = partition.origin
            self._by_place.setdefault((origin, partition.place), []).append(partition)
            ancestors = list(_ancestors(partition.place))
            for ancestor in ancestors:
                self._by_ancestor.setdefault((origin, ancestor), []).append(partition)
            if ancestors:
                self._by_log_dir.setdefault((origin, ancestors[0]), []).append(partition)

    def of(self, path: str, origin: str) -> list[PagePartition]:
        """The partitions that a path is about.

        A path in the directory of a partition is about that one. A log directory, a directory above several, and a file in a log
        directory are about all partitions below.

        Args:
            path: of a directory or file.
            origin: of its document. A path in a bucket is one for all hosts.
        """
        host = "" if "://" in path else origin
        above = list(_ancestors(path))
        for place in (path, *above):
            if (host, place) in self._by_place:
                return self._by_place[host, place]
        if (host, path) in self._by_ancestor:
            return self._by_ancestor[host, path]
        for place in above:
            if (host, place) in self._by_log_dir:
                return self._by_log_dir[host, place]
        return []


def _ancestors(path: str) -> Iterator[str]:
    """The directories above a path, the nearest first, without the root and without the scheme of a store."""
    parent = os.path.dirname(path)
    while parent not in ("", "/", path) and not parent.endswith((":", ":/")):
        yield parent
        path = parent
        parent = os.path.dirname(path)
