"""Options of the verb ``tier inventory``."""

from __future__ import annotations

from snaprebuild.cli.options.common import AsOf
from snaprebuild.cli.options.metadata import Metadata
from snaprebuild.cli.options.remote_storage import RemoteOptions

__all__ = ["TierInventoryOptions"]


class TierInventoryOptions(RemoteOptions, frozen=True):
    """What is known of the cluster whose store is listed, and the moment of the ages."""

    as_of: AsOf = None
    metadata: Metadata = None
