"""What ends the start of a partition: nothing after it happens there."""

from __future__ import annotations

import msgspec

from snaprebuild.broker.fates import Fate
from snaprebuild.broker.releases import Release

__all__ = ["Ending"]


class Ending(msgspec.Struct, frozen=True):
    """A fate that ends the start of a partition, and the releases that have it: from ``first`` on, below ``before``."""

    fate: Fate
    first: Release | None = None
    before: Release | None = None

    def applies_to(self, release: Release) -> bool:
        """Whether the release has this ending."""
        is_above = self.first is None or release >= self.first
        is_below = self.before is None or release < self.before
        return is_above and is_below
