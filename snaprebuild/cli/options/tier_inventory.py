"""Options of the verb ``tier inventory``."""

from __future__ import annotations

from typing import Annotated

from snaprebuild.cli.options.common import AsOf, ServerProperties
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.metadata import Metadata
from snaprebuild.cli.options.remote_storage import RemoteOptions

__all__ = ["TierInventoryOptions"]


class TierInventoryOptions(RemoteOptions, frozen=True):
    """What is known of the cluster whose store is listed, and the moment of the ages."""

    as_of: AsOf = None
    metadata: Metadata = None
    server_properties: ServerProperties = None
    keys: Annotated[
        str | None,
        option(
            "--keys",
            metavar="FILE",
            short="Write a row for each key to FILE: JSON lines with state, reason, size, age, ETag and version",
            details="Never replaced.",
            default="none",
        ),
    ] = None
