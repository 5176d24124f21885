"""Options of the verb ``tier repair``."""

from __future__ import annotations

from snaprebuild.cli.options.common import AllowUnverified, DryRun, ReceiptFile, ServerProperties
from snaprebuild.cli.options.remote_storage import RemoteReplayOptions

__all__ = ["TierRepairOptions"]


class TierRepairOptions(RemoteReplayOptions, frozen=True):
    """Which copies of a store are repaired, and where the receipt goes."""

    allow_unverified: AllowUnverified = False
    dry_run: DryRun = False
    receipt: ReceiptFile = None
    server_properties: ServerProperties = None
