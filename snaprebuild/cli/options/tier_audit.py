"""Options of the verb ``tier audit``."""

from __future__ import annotations

from typing import Annotated

from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.metadata import Metadata
from snaprebuild.cli.options.remote_storage import LeaderLogDirs, RemoteReplayOptions
from snaprebuild.tier import AuditLevel

__all__ = ["TierAuditOptions"]


class TierAuditOptions(RemoteReplayOptions, frozen=True):
    """How much of a store is audited, and what else shows which snapshots matter."""

    level: Annotated[
        AuditLevel,
        option(
            "--level",
            short="full: replay every segment",
            details="reachable: replay one --expiration-ms, for the snapshots from which a follower may still start. structure: "
            "parse manifests and snapshots only.",
            default="full",
        ),
    ] = AuditLevel.FULL
    local_log_start: Annotated[
        list[str] | None,
        option(
            "--local-log-start",
            metavar="TOPIC-PARTITION=OFFSET",
            short="First offset on the leader's disk, for each partition; repeatable",
            details="For --level reachable.",
            default="none, only the last copy counts as reachable",
        ),
    ] = None
    log_dir: LeaderLogDirs = None
    metadata: Metadata = None
