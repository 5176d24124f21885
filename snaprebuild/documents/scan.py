"""The document of ``scan``."""

from __future__ import annotations

from collections.abc import Sequence

from snaprebuild.broker.fates import StartFate
from snaprebuild.broker.status import StatusCounts, StatusWord
from snaprebuild.published import Document, Streamed
from snaprebuild.snapshots.scan.scan_parts import (
    BrokerSettings,
    ScannedLogDir,
    ScannedPartition,
    ScannedTopic,
    ScanRequest,
    ScanRun,
    UploadAttempts,
)
from snaprebuild.snapshots.scan.scan_result import ScanTotals

__all__ = ["Scan"]


class Scan(Document, frozen=True):
    """The JSON document of `snaprebuild scan`. Offsets are int64."""

    NAME = "scan"
    VERSION = 4

    request: ScanRequest
    run: ScanRun
    totals: ScanTotals
    log_dirs: Sequence[ScannedLogDir]
    """By path."""
    topics: Sequence[ScannedTopic]
    """By name, over all log directories."""
    partitions: Streamed[ScannedPartition]
    """The worst first."""
    upload_attempts: UploadAttempts
    status: StatusWord = StatusWord.HEALTHY
    """The worst of all, in the order of StatusWord."""
    fates: Sequence[StartFate] = ()
    """Effects of the next start, the worst first; partitions without one start as usual."""
    counts: StatusCounts = StatusCounts()
    """The counts of the first line."""
    settings: BrokerSettings | None = None
    """Null without `--server-properties`."""
