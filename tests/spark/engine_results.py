"""The results that runs of two engines must share."""

from typing import Any

from snaprebuild.snapshots.rebuild.rebuild_result import RebuildResult

__all__ = ["outcomes_of"]


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
