"""Options of the verb ``before-start``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from snaprebuild.cli.options.common import Deadline, DryRun, ExpirationMs, Jobs, LogOptions, ReceiptFile
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.kafka_release import KafkaRelease
from snaprebuild.cli.options.metadata import Metadata
from snaprebuild.cli.options.rebuild import SetAside

__all__ = ["BeforeStartOptions", "Order"]


class Order(StrEnum):
    """Which partition is worked on first."""

    BYTES_BLOCKED = "bytes-blocked"
    PATH = "path"


class BeforeStartOptions(LogOptions, frozen=True):
    """Where the log directories are, until when they are read, and how their producers expire."""

    deadline: Deadline = None
    fail_closed: Annotated[
        bool,
        option(
            "--fail-closed",
            short="Do not start CMD if the start itself would fail, or lose records that no other replica is known to hold",
            default="start it in any case",
        ),
    ] = False
    order: Annotated[
        Order,
        option(
            "--order",
            short="First partition",
            details="bytes-blocked: the one with the most bytes that cannot be uploaded. path: the first path.",
            default="bytes-blocked",
        ),
    ] = Order.BYTES_BLOCKED
    metadata: Metadata = None
    expiration_ms: ExpirationMs = None
    kafka_release: KafkaRelease = None
    set_aside: SetAside = False
    dry_run: DryRun = False
    receipt: ReceiptFile = None
    jobs: Jobs = None
