"""Scans of copies of real directories, and what a test asks of a result."""

import shutil
from pathlib import Path

from log_dirs import copy_of

from snaprebuild.findings import Severity
from snaprebuild.snapshots.scan.next_start import with_next_start
from snaprebuild.snapshots.scan.scan import scan_source
from snaprebuild.snapshots.scan.scan_result import PartitionScan, ScanResult, SnapshotStatus
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import open_source

DAY_MS = 86_400_000
# Bases of mixed-0 in kafka27-mixed (2.7.2, stopped with SIGTERM), its log end, and the snapshots that the broker left.
BASES = (0, 583, 1151, 1662, 2181, 2596, 3089, 3664, 4168, 4695, 5247, 5821, 6390, 7045, 7637)
LOG_END = 8231
LEFT = (7045, 7637, 8231)


def scanned(*paths: Path, topics: tuple[str, ...] = ()) -> ScanResult:
    return with_next_start(scan_source(open_source([str(path) for path in paths], None, Selection(topics=topics))), None)


def only(result: ScanResult) -> PartitionScan:
    (partition,) = result.partitions
    return partition


def codes(result: ScanResult, severity: Severity | None = None) -> set[str]:
    return {finding.code for finding in result.findings if severity is None or finding.severity is severity}


def message(result: ScanResult, code: str) -> str:
    return "; ".join(finding.message for finding in result.findings if finding.code == code)


def states(partition: PartitionScan) -> dict[int, str]:
    return {boundary.offset: boundary.state.value for boundary in partition.boundaries}


def offsets_of(partition: PartitionScan, state: SnapshotStatus) -> list[int]:
    return [boundary.offset for boundary in partition.boundaries if boundary.state is state]


def mixed_alone(fixture: str, place: Path) -> Path:
    """mixed-0 of a bundled directory, without the other partitions next to it."""
    root = copy_of(fixture, place)
    for name in ("deleted-0", "logappend-0", "plain-0"):
        shutil.rmtree(root / name)
    return root / "mixed-0"


def preflighted(path: Path) -> PartitionScan:
    """The scan of one partition, without what the next start does."""
    return only(scan_source(open_source([str(path)])))


def rolled_segments(partition: PartitionScan) -> list[tuple[int, int, str]]:
    """Fates of the rolled segments: base offset, next base offset, state."""
    return [(run.base_offset, run.next_base_offset, run.state.value) for run in partition.preflight.rolled_segments]
