"""The Kafka releases that may start a directory, as far as options and files narrow them.

A release is (major, minor, patch). The rules of a start change only at some releases; ``RELEASES`` has each of them once, so that a rule
can be asked for every release of a range. Which releases may start a broker is decided in ``broker.broker_facts.releases_of``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import msgspec

__all__ = ["ALL_RELEASES", "RELEASES", "Release", "ReleaseRange", "parse_release", "release_of_level", "releases_text"]

Release = tuple[int, int, int]

RELEASES: tuple[Release, ...] = (
    *((2, 8, 0), (3, 0, 0), (3, 1, 0), (3, 2, 0), (3, 2, 1), (3, 3, 0), (3, 4, 0), (3, 5, 0), (3, 6, 0), (3, 6, 2)),
    *((3, 7, 0), (3, 7, 1), (3, 8, 0), (3, 9, 0), (4, 0, 0), (4, 1, 0), (4, 2, 0), (4, 3, 0), (4, 4, 0)),
)
"""Each minor release, each patch release that changes a rule, and the last patch release before a rule of the next one, ascending."""

_FIRST_LEVELS: tuple[tuple[int, Release], ...] = (
    *(
        (1, (3, 0, 0)),
        (2, (3, 1, 0)),
        (3, (3, 2, 0)),
        (4, (3, 3, 0)),
        (8, (3, 4, 0)),
        (9, (3, 5, 0)),
        (12, (3, 6, 0)),
        (15, (3, 7, 0)),
    ),
    *((20, (3, 8, 0)), (21, (3, 9, 0)), (22, (4, 0, 0)), (26, (4, 1, 0)), (28, (4, 2, 0)), (30, (4, 3, 0)), (31, (4, 4, 0))),
)
"""The first level of ``metadata.version`` of each release (``MetadataVersion``), ascending."""

_TEXT = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:-.*)?")

FIRST_WITH_DIRECTORY_ID: Release = (3, 7, 0)
"""The first release that writes ``directory.id``, and the broker epoch into the marker of a clean stop (KIP-858, KIP-966)."""

LAST_PATCH = 99


class ReleaseRange(msgspec.Struct, frozen=True):
    """The releases that may start a broker.

    Attributes:
        first: the lowest.
        last: the highest; its patch number is that of the newest patch release.
        source: everything that narrows the range, for a message; None where nothing does.
    """

    first: Release
    last: Release
    source: str | None = None

    @property
    def releases(self) -> tuple[Release, ...]:
        """One release for each set of rules in the range, ascending; never empty."""
        inside = tuple(release for release in RELEASES if self.first < release <= self.last)
        return (self.first, *inside)

    @property
    def evidence(self) -> str | None:
        """Which releases these are, and what shows it, for a message; None where nothing narrows the range."""
        if self.source is None:
            return None
        last = ".".join(map(str, self.last[:2] if self.last[2] == LAST_PATCH else self.last))
        releases = last if self.first == self.last else f"{'.'.join(map(str, self.first))} to {last}"
        return f"Kafka {releases} by {self.source}"

    def text_of(self, releases: Collection[Release]) -> str | None:
        """The releases of the range that something is true for, in words; None if it is true for all of them."""
        return None if len(releases) == len(self.releases) else releases_text(releases)

    def narrowed(self, first: Release | None, last: Release | None, source: str) -> ReleaseRange:
        """The part of the range between two releases; the range itself where nothing of it is left, as evidence does not agree then."""
        low = self.first if first is None else max(self.first, first)
        high = self.last if last is None else min(self.last, last)
        if low > high or (low, high) == (self.first, self.last):
            return self
        return ReleaseRange(low, high, source if self.source is None else f"{self.source}, {source}")


ALL_RELEASES = ReleaseRange(RELEASES[0], (4, 4, LAST_PATCH))
"""From the first release with these rules of loading to the newest one that was read."""


def parse_release(text: str) -> Release | None:
    """A release or a protocol version such as ``3.9.1``, ``3.9`` or ``3.9-IV0``; None for other text."""
    match = _TEXT.fullmatch(text.strip())
    return None if match is None else (int(match[1]), int(match[2]), int(match[3] or 0))


def release_of_level(level: int) -> Release | None:
    """The lowest release that reads a finalized level of ``metadata.version``; None below the first one."""
    releases = [release for first, release in _FIRST_LEVELS if first <= level]
    return releases[-1] if releases else None


def releases_text(releases: Iterable[Release]) -> str:
    """How a message names releases that share a fate: ``3.7.0``, or ``3.3.0 to 3.6.2``."""
    ordered = sorted(releases)
    first, last = (".".join(map(str, each)) for each in (ordered[0], ordered[-1]))
    return first if first == last else f"{first} to {last}"
