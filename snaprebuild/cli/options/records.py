"""Options of ``inspect records``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from snaprebuild.cli.options.common import ServerProperties, TopicIds
from snaprebuild.cli.options.remote_storage import RemoteOptions

__all__ = ["LIMIT_MAX", "IsolationOption", "PayloadFormat", "RecordPlaces"]

LIMIT_MAX = 1_000_000
"""Records that are shown, at most: they are in memory."""


class PayloadFormat(StrEnum):
    """How keys or values are shown."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"
    JSON = "json"


class IsolationOption(StrEnum):
    """The values of ``consume.record_query.RecordIsolation``, which would import too much for a help text."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"
    ALL = "all"


StoreAndPaths = Annotated[list[str] | None, typer.Argument(metavar="[STORE] PATH...", hidden=True)]
"""STORE comes first, as with each verb that needs one."""


class RecordPlaces(RemoteOptions, frozen=True):
    """The logs and the remote storage that are read, and which partitions of them."""

    paths: StoreAndPaths = None
    server_properties: ServerProperties = None
    topic_id: TopicIds = None
