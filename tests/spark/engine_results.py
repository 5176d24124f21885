"""The results that runs of two engines must share."""

from pathlib import Path
from typing import Any

from snaprebuild.snapshots.rebuild.rebuild_result import RebuildResult

__all__ = ["all_bytes", "outcomes_of"]


def all_bytes(root: Path) -> dict[str, bytes]:
    """Every file below a directory, by relative path."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def outcomes_of(result: RebuildResult) -> list[dict[str, Any]]:
    """The report of a rebuild about each partition, but for the time that it took."""
    return [
        {
            "boundaries": each.boundaries,
            "findings": each.findings,
            "read_bytes": each.outcome.read_bytes,
            "replay_index": each.outcome.replay_index,
            "replay_reason": each.outcome.replay_reason,
        }
        for each in result.partitions
    ]
