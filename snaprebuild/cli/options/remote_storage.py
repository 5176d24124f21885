"""Options of the verbs on remote storage and followers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
import typer

from snaprebuild.cli.options.description import option
from snaprebuild.followers import Profile

__all__ = [
    "ProfileOption",
    "ProofOption",
    "RemoteLevel",
    "TierLocation",
    "TierOptions",
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


class TierOptions(msgspec.Struct, frozen=True):
    """What the verbs that read remote storage know of it, besides its place."""

    metadata_log: MetadataLog = None
    key_prefix: str = ""
    private_key: Sequence[str] = ()


TierLocation = Annotated[str, typer.Argument(metavar="STORE", help="Directory or s3://BUCKET/PREFIX with the objects.")]
