"""Options of the verb ``tier audit``."""

from __future__ import annotations

from typing import Annotated

from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.metadata import Metadata
from snaprebuild.cli.options.remote_storage import RemoteReplayOptions
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
    log_dir: Annotated[
        list[str] | None,
        option(
            "--log-dir",
            metavar="DIR",
            short="Log directory with the first offset on disk, best the leader's; repeatable",
            details="For --level reachable.",
            default="none",
        ),
    ] = None
    metadata: Metadata = None
    ledger: Annotated[
        str | None,
        option(
            "--ledger",
            metavar="FILE",
            short="Audit in turns: keep in FILE what was proven when, and go on there",
            details="The file is created if it is absent, and changed by each run. A run reads what was never read, then what was read "
            "first, within max_requests and max_read_bytes. For --level full.",
            default="none, everything is read",
        ),
    ] = None
