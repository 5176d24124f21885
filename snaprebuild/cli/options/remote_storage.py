"""Options of the verbs on remote storage and followers, and the stores that they name."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from snaprebuild.cli.options.common import (
    S3Options,
    check_directories,
)
from snaprebuild.cli.options.description import option
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.storage.private_keys import PrivateKeys
    from snaprebuild.storage.store_path import StorePath
    from snaprebuild.tier.remote_partition import Tier


__all__ = [
    "FollowerDir",
    "LevelOption",
    "RemoteLevel",
    "TierLocation",
    "TierOptions",
    "open_tier",
    "opened_tier",
]


class RemoteLevel(StrEnum):
    """How much of remote storage is read."""

    FULL = "full"
    SNAPSHOT = "snapshot"


LevelOption = Annotated[
    RemoteLevel,
    option(
        "--level",
        short="full: replay the copies below, which proves the snapshot",
        details="snapshot: take the snapshot unproven.",
        default="full",
    ),
]


MetadataLog = Annotated[
    list[str] | None,
    option(
        "--metadata-log",
        metavar="DIR",
        short="Log directory with partitions of __remote_log_metadata; repeatable",
        details="All its partitions are needed.",
        risk="if the topic has not 50 partitions, a missing one may stay unnoticed, and good copies are reported as orphans",
        default="none, copies are not verified",
    ),
]


class TierOptions(msgspec.Struct, frozen=True):
    """What the verbs that read remote storage know of it, besides its place."""

    metadata_log: MetadataLog = None
    key_prefix: str = ""
    private_key: Sequence[str] = ()

    @property
    def key_files(self) -> list[str]:
        """The files that ``private_key`` names."""
        from snaprebuild.storage.private_keys import split_private_key

        return [split_private_key(each)[1] for each in self.private_key]

    def keys(self) -> PrivateKeys:
        """The private keys, checked before anything is asked of a store.

        Raises:
            UsageError: a file is no private key, or a name is missing.
        """
        from snaprebuild.storage.private_keys import PrivateKeys

        return PrivateKeys.of(self.private_key)


def open_tier(store: str, s3: S3Options, options: TierOptions) -> Tier:
    """Lists the remote storage that a verb names.

    Raises:
        UsageError: nothing is there, or the private key is none.
        ReadFailedError, RefusedError: as ``tier.remote_partition.open_tier``.
    """
    from snaprebuild.tier.remote_partition import open_tier as opened

    check_directories([store, *(options.metadata_log or [])])
    keys = options.keys()
    root, prefix = opened_tier(store, s3, options.key_prefix)
    return opened(root, options.metadata_log or (), s3.settings(), keys, prefix)


TierLocation = Annotated[str, typer.Argument(metavar="STORE", help="Directory or s3://BUCKET/PREFIX with the objects.")]


def opened_tier(location: str, s3: S3Options, key_prefix: str) -> tuple[StorePath, str]:
    """A location with its store, and ``key.prefix`` below the location.

    Raises:
        UsageError: there is no such directory.
    """
    from snaprebuild.storage.log_dir import directory_fault
    from snaprebuild.storage.remote.listing import split_key_prefix
    from snaprebuild.storage.store import absolute
    from snaprebuild.storage.stores import path_of

    root = path_of(absolute(location), s3.settings())
    if not key_prefix and not location.endswith("/"):
        root, key_prefix = split_key_prefix(root)
    if root.is_local and (fault := directory_fault(root.path)) is not None:
        raise UsageError(fault, path=location)
    return root, key_prefix


FollowerDir = Annotated[str, typer.Argument(metavar="DIR", help="Partition directory or log directory of a replica.")]
