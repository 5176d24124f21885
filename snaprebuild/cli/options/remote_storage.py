"""Options of the verbs on remote storage and followers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from snaprebuild.cli.options.common import AsOf, ExpirationMs, Jobs, SelectionOptions
from snaprebuild.cli.options.description import option
from snaprebuild.followers import Profile

__all__ = [
    "LeaderLogDirs",
    "ProfileOption",
    "ProofOption",
    "RemoteLevel",
    "RemoteOptions",
    "RemoteReplayOptions",
    "TierLocation",
]


class RemoteLevel(StrEnum):
    """How much of remote storage is read."""

    FULL = "full"
    SNAPSHOT = "snapshot"


ProofOption = Annotated[
    RemoteLevel,
    option(
        "--proof",
        short="full: replay the copies below, which proves the snapshot",
        details="snapshot: take the snapshot unproven.",
        default="full",
    ),
]


ProfileOption = Annotated[
    Profile,
    option(
        "--profile",
        short="Rules that decide: those of brokers since 4.2 (kafka-4.3), or of the proposal (kip-1023)",
        details="They differ if remote storage has nothing usable, or ends above the log.",
        default="kafka-4.3",
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


LeaderLogDirs = Annotated[
    list[str] | None,
    option(
        "--log-dir",
        metavar="DIR",
        short="Log directory with the first offset on disk, best the leader's; repeatable",
        details="`tier audit` takes it with --level reachable; `tier metadata` reads log starts and leader epochs, too.",
        default="none",
    ),
]


class RemoteOptions(SelectionOptions, frozen=True):
    """Which partitions of a store are read, and what is known of the store besides its place."""

    metadata_log: MetadataLog = None
    key_prefix: str = ""
    private_key: Sequence[str] = ()


class RemoteReplayOptions(RemoteOptions, frozen=True):
    """How the copies of a store, and the log next to them, are replayed."""

    as_of: AsOf = None
    expiration_ms: ExpirationMs = None
    jobs: Jobs = None


TierLocation = Annotated[str, typer.Argument(metavar="STORE", help="Directory or s3://BUCKET/PREFIX with the objects.")]
